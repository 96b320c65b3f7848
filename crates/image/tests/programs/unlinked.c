// Files without a path: memfds, sealed and mapped, and deleted files that are written on.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>
#include <sys/stat.h>

enum { BIG = 3 << 20 };

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    int plain = memfd_create("plain", MFD_CLOEXEC);
    int sealed = memfd_create("sealed", MFD_ALLOW_SEALING);
    int mapped = memfd_create("mapped", 0);
    CHECK(write(sealed, "for good", 8) == 8);
    int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
    CHECK(!fcntl(sealed, F_ADD_SEALS, seals) && lseek(sealed, 3, SEEK_SET) == 3);
    CHECK(!ftruncate(mapped, BIG) && !fchmod(plain, 0640));
    uint64_t *shared = mmap(NULL, BIG, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 0);
    uint64_t *once = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, mapped, 4096);
    CHECK(shared != MAP_FAILED && once != MAP_FAILED);
    int log = open("log", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
    int reader = open("log", O_RDONLY), scratch = open("scratch", O_RDWR | O_CREAT | O_TRUNC, 0604);
    unlink("log");
    unlink("scratch");
    int nameless = open(".", O_RDWR | O_TMPFILE, 0600);
    CHECK(log >= 0 && reader >= 0 && scratch >= 0 && nameless >= 0);
    CHECK(pwrite(scratch, "hole", 4, 10 << 20) == 4);
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", plain);
    int other = open(path, O_RDONLY);
    close(open("begun", O_WRONLY | O_CREAT, 0600));
    for (long r = 0; r < rounds; r++) {
        uint64_t value = (uint64_t)r * 0x9e3779b97f4a7c15, seen = 0;
        CHECK(write(plain, &value, 8) == 8 && read(other, &seen, 8) == 8 && seen == value);
        CHECK(lseek(plain, 0, SEEK_CUR) == 8 * (r + 1));
        CHECK(write(log, &value, 8) == 8 && read(reader, &seen, 8) == 8 && seen == value);
        CHECK(pwrite(scratch, &value, 8, r * 16) == 8 && pread(scratch, &seen, 8, r * 16) == 8);
        CHECK(seen == value && lseek(scratch, 0, SEEK_END) == (10 << 20) + 4);
        shared[(r * 977) % (BIG / 8)] = value;
        CHECK(pread(mapped, &seen, 8, (r * 977) % (BIG / 8) * 8) == 8 && seen == value);
        CHECK(once[0] == shared[512] && once[1023] == shared[1535]);
        CHECK(pwrite(nameless, &value, 8, 100) == 8);
        char text[8];
        CHECK(pread(sealed, text, 8, 0) == 8 && !memcmp(text, "for good", 8));
        CHECK(lseek(sealed, 0, SEEK_CUR) == 3 && fcntl(sealed, F_GET_SEALS) == seals);
        CHECK(pwrite(sealed, "x", 1, 0) == -1 && errno == EPERM);
        CHECK(fcntl(log, F_GETFL) & O_APPEND && fcntl(plain, F_GETFD) == FD_CLOEXEC);
        struct stat about;
        CHECK(!fstat(scratch, &about) && about.st_nlink == 0 && (about.st_mode & 0777) == 0604);
        CHECK(!fstat(plain, &about) && (about.st_mode & 0777) == 0640);
        CHECK(access("log", F_OK) && access("scratch", F_OK));
    }
    uint64_t sum = 0, value;
    for (long r = 0; r < rounds; r++) {
        CHECK(pread(plain, &value, 8, r * 8) == 8);
        sum = sum * 31 + value;
        CHECK(pread(log, &value, 8, r * 8) == 8);
        sum = sum * 31 + value;
        CHECK(pread(scratch, &value, 8, r * 16) == 8);
        sum = sum * 31 + value;
    }
    for (long i = 0; i < BIG / 8; i++) sum = sum * 31 + shared[i];
    char text[4];
    CHECK(pread(scratch, text, 4, 10 << 20) == 4 && !memcmp(text, "hole", 4));
    printf("%lx\n", sum);
    FILE *out = fopen("sum", "w");
    fprintf(out, "%lx\n", (unsigned long)sum);
    fclose(out);
    return finish(rounds + (long)(sum & 0xffff) * 1000000);
}
