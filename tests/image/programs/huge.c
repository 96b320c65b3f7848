// Transparent huge pages: asked for, refused, split by protection, given back in part.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 8000);
    enum { HUGE = 2 << 20, COUNT = 6 };
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *raw = mmap(NULL, (COUNT + 1) * HUGE, rw, flags, -1, 0);
    NEED(raw != MAP_FAILED);
    char *base = (char *)(((uintptr_t)raw + HUGE - 1) & ~(uintptr_t)(HUGE - 1));
    NEED(madvise(base, COUNT / 2 * HUGE, MADV_HUGEPAGE) == 0);
    NEED(madvise(base + COUNT / 2 * HUGE, COUNT / 2 * HUGE, MADV_NOHUGEPAGE) == 0);
    for (long i = 0; i < COUNT * HUGE; i += 512) *(uint64_t *)(base + i) = value_at((uint64_t)i);
    NEED(mprotect(base + 8192, 4096, PROT_READ) == 0);
    CHECK(madvise(base + HUGE + 40960, 8192, MADV_DONTNEED) == 0);
    for (long i = 0; i < n; i++) {
        uint64_t at = value_at((uint64_t)i) % (COUNT * (uint64_t)HUGE / 4096) * 4096;
        if (at == 8192) continue;
        uint64_t *word = (uint64_t *)(base + at);
        *word = *word * 31 + (uint64_t)i;
        add(*word);
        work(1);
    }
    for (long i = 0; i < COUNT * HUGE; i += 512) add(*(uint64_t *)(base + i));
    return finish("huge");
}
