// Shared memory without a file of its own: anonymous, memfd, deleted; mapped several times, open or
// not, sparse, sealed. All its content decides about the result, and all views of it must agree.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 * PAGE };
static const int RW = PROT_READ | PROT_WRITE;
static long wrong;

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); wrong++; } } while (0)

static unsigned char *map(int fd, int prot, off_t offset, size_t bytes) {
    void *p = mmap(NULL, bytes, prot, MAP_SHARED, fd, offset);
    if (p == MAP_FAILED) exit(2);
    return p;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    unsigned char *views[6][2];
    // Anonymous, the second half of it mapped once more.
    views[0][0] = mmap(NULL, 2 * BYTES, RW, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    views[0][1] = mremap(views[0][0] + BYTES, 0, BYTES, MREMAP_MAYMOVE);
    if (views[0][1] == MAP_FAILED) return 2;
    views[0][0] += BYTES;
    // A memfd that stays open.
    int open_fd = memfd_create("stays open", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (ftruncate(open_fd, BYTES + 100)) return 2;
    fcntl(open_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
    views[1][0] = map(open_fd, RW, 0, BYTES);
    views[1][1] = map(open_fd, PROT_READ, 0, BYTES);
    lseek(open_fd, 1234, SEEK_SET);
    // One that is closed, with parts mapped out of order.
    int closed_fd = memfd_create("closed", 0);
    if (ftruncate(closed_fd, 2 * BYTES)) return 2;
    views[2][0] = map(closed_fd, RW, BYTES, BYTES);
    views[2][1] = map(closed_fd, RW, BYTES, BYTES);
    close(closed_fd);
    // A deleted file, and a deleted POSIX shared memory object.
    int deleted = open("deleted", O_RDWR | O_CREAT | O_TRUNC, 0640);
    if (ftruncate(deleted, BYTES) || unlink("deleted")) return 2;
    views[3][0] = map(deleted, RW, 0, BYTES);
    views[3][1] = map(deleted, PROT_READ, 0, BYTES);
    close(deleted);
    char name[64];
    snprintf(name, sizeof name, "/eyrie-test-%d", getpid());
    int shm = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (shm < 0 || ftruncate(shm, BYTES) || shm_unlink(name)) return 2;
    views[4][0] = map(shm, RW, 0, BYTES);
    views[4][1] = map(shm, RW, 0, BYTES);
    // Sealed against writing.
    int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    unsigned char page[PAGE];
    memset(page, 0x5a, PAGE);
    for (int i = 0; i < BYTES / PAGE; i++) if (write(sealed, page, PAGE) != PAGE) return 2;
    if (fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SEAL)) return 2;
    views[5][0] = map(sealed, PROT_READ, 0, BYTES);
    views[5][1] = views[5][0];
    // Large and hardly used.
    size_t large = 1ul << 33;
    unsigned char *sparse = mmap(NULL, large, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (sparse == MAP_FAILED) return 2;
    sparse[0] = 1;
    sparse[large - 1] = 2;
    close(open("begun", O_WRONLY | O_CREAT, 0600));
    uint64_t h = 1;
    for (long r = 0; r < rounds; r++) {
        for (int k = 0; k < 6; k++) {
            for (int i = (int)(r % 7); i < BYTES; i += 61) {
                h = (h ^ views[k][0][i]) * 1099511628211ull;
                if (k < 5 && i / PAGE % 3 != 1) views[k][0][i] = (unsigned char)(h >> 24);
            }
            CHECK(!memcmp(views[k][0], views[k][1], BYTES));
        }
        int at = (int)(h % BYTES);
        CHECK(pread(open_fd, page, 1, at) == 1 && page[0] == views[1][0][at]);
        sparse[h % 64 * (large / 64)] ^= (unsigned char)(h >> 8);
        h ^= sparse[r % 64 * (large / 64)];
    }
    CHECK(sparse[large - 1] == 2);
    CHECK(lseek(open_fd, 0, SEEK_CUR) == 1234);
    CHECK(fcntl(open_fd, F_GET_SEALS) == (F_SEAL_SHRINK | F_SEAL_GROW));
    CHECK(fcntl(sealed, F_GET_SEALS) == (F_SEAL_WRITE | F_SEAL_SEAL));
    CHECK(mprotect(views[5][0], BYTES, RW) != 0);
    CHECK(mprotect(views[1][1], BYTES, RW) == 0);
    struct stat info;
    CHECK(fstat(open_fd, &info) == 0 && info.st_size == BYTES + 100);
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%016llx wrong %ld\n", (unsigned long long)h, wrong);
    return fclose(out) || wrong;
}
