// Private views of shared memory that has no name, or has lost it: pages that were never written to
// through the view show what is written to the object, the others do not. "views ROUNDS".
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = 64, BYTES = PAGES * PAGE, KINDS = 2 };

static int object(int kind) {
    char name[80];
    snprintf(name, sizeof name, "/eyrie-test-views-%d", (int)getpid());
    int fd = kind ? memfd_create("views", 0) : shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    if (fd < 0 || ftruncate(fd, BYTES) || (!kind && shm_unlink(name))) exit(2);
    return fd;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    unsigned char *all[KINDS], *view[KINDS];
    for (int k = 0; k < KINDS; k++) {
        int fd = object(k);
        all[k] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        view[k] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        if (all[k] == MAP_FAILED || view[k] == MAP_FAILED) return 2;
        view[k][7 * PAGE] = 99;
    }
    uint64_t h = 1;
    for (long r = 0; r < rounds; r++) {
        for (int k = 0; k < KINDS; k++) {
            for (int page = (int)(r % 5); page < PAGES; page += 5) {
                all[k][page * PAGE + r % PAGE] = (unsigned char)(h = h * 6364136223846793005u + 9);
            }
            CHECK(view[k][7 * PAGE] == 99);
            CHECK(!memcmp(view[k], all[k], 7 * PAGE));
            CHECK(!memcmp(view[k] + 8 * PAGE, all[k] + 8 * PAGE, BYTES - 8 * PAGE));
        }
    }
    return finish(rounds);
}
