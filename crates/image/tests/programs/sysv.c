// System V segments: one that was marked for destruction, one that has a name, one attached twice,
// the second time for reading only.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/shm.h>
#include <unistd.h>

enum { BYTES = 50000 };
static long wrong;
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); wrong++; } } while (0)

static unsigned char *attach(int id, int flags) {
    void *p = shmat(id, NULL, flags);
    if (p == (void *)-1) exit(2);
    return p;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    int doomed = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
    unsigned char *a = attach(doomed, 0), *b = attach(doomed, SHM_RDONLY);
    shmctl(doomed, IPC_RMID, NULL);
    key_t key = 0x45590000 | (getpid() & 0xffff);
    int named = shmget(key, BYTES, IPC_CREAT | IPC_EXCL | 0640);
    if (named < 0) return 2;
    unsigned char *c = attach(named, 0);
    uint64_t h = 1;
    for (long r = 0; r < rounds; r++) {
        for (int i = (int)(r % 7); i < BYTES; i += 61) {
            h = (h ^ a[i] ^ c[i]) * 1099511628211ull;
            if (i / 4096 % 3 != 1) a[i] = (unsigned char)(h >> 24);
            if (i / 4096 % 4 != 1) c[i] = (unsigned char)(h >> 32);
        }
        CHECK(!memcmp(a, b, BYTES));
        if (r % 64 == 0) {
            CHECK(shmget(key, BYTES, 0) == named);
            struct shmid_ds info;
            CHECK(shmctl(named, IPC_STAT, &info) == 0 && info.shm_nattch == 1);
        }
    }
    CHECK(shmdt(c) == 0 && shmdt(b) == 0);
    // Gone already: it was frozen just before this, and went on to it before it was killed.
    CHECK(shmctl(named, IPC_RMID, NULL) == 0 || errno == EINVAL);
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%016llx wrong %ld\n", (unsigned long long)h, wrong);
    return fclose(out) || wrong;
}
