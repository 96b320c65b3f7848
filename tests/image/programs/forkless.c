// Memory that a copy made by fork does not have, or has empty, and memory that the kernel may drop.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 10000);
    enum { BYTES = 1 << 18, WORDS = BYTES / 8 };
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    int advice[] = {MADV_DONTFORK, MADV_WIPEONFORK, MADV_DONTDUMP, MADV_MERGEABLE};
    uint64_t *areas[4];
    for (int a = 0; a < 4; a++) {
        areas[a] = mmap(NULL, BYTES, rw, flags, -1, 0);
        NEED(areas[a] != MAP_FAILED);
        // A kernel may have been built without the last one.
        int done = madvise(areas[a], BYTES, advice[a]) == 0;
        NEED(done || advice[a] == MADV_MERGEABLE);
    }
    for (long i = 0; i < n; i++) {
        for (int a = 0; a < 4; a++) {
            uint64_t *word = &areas[a][value_at((uint64_t)i) % WORDS];
            *word = *word * 31 + (uint64_t)(i + a);
        }
        work(1);
    }
    for (int a = 0; a < 4; a++) add_bytes(areas[a], BYTES);
    return finish("forkless");
}
