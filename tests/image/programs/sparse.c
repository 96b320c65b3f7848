// Far more address space than memory: pages never touched, pages of zeros, pages given back; a page
// read but never written must still be zero.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

// A page for each round, and no page for two.
static uint64_t page_of(long round) {
    return (uint64_t)round * 0x9e3779b97f4a7c15ull % (1 << 24);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 7000);
    const size_t bytes = 4096ull << 24;
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *area = mmap(NULL, bytes, rw, flags, -1, 0);
    NEED(area != MAP_FAILED);
    for (long i = 0; i < n; i++) {
        uint64_t page = page_of(i);
        uint64_t *at = (uint64_t *)(area + (page << 12));
        if (i % 3 == 0) CHECK(*at == 0);
        else *at = i % 3 == 1 ? page + 1 : 0;
        if (i % 5 == 4) {
            uint64_t old = page_of(i - 3);
            CHECK(madvise(area + (old << 12), 4096, MADV_DONTNEED) == 0);
        }
        work(1);
    }
    for (long i = 0; i < n; i++) {
        uint64_t page = page_of(i);
        add(*(uint64_t *)(area + (page << 12)));
    }
    return finish("sparse");
}
