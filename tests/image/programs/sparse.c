// Far more address space than memory: pages never touched, pages of zeros, pages given back; a page
// read but never written must still be zero.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 7000);
    const size_t bytes = 64ull << 30;
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *area = mmap(NULL, bytes, rw, flags, -1, 0);
    NEED(area != MAP_FAILED);
    for (long i = 0; i < n; i++) {
        uint64_t page = value_at((uint64_t)i) % (bytes >> 12);
        uint64_t *at = (uint64_t *)(area + (page << 12));
        if (i % 3 == 0) CHECK(*at == 0);
        else *at = i % 3 == 1 ? page + 1 : 0;
        if (i % 5 == 4) {
            uint64_t old = value_at((uint64_t)i - 3) % (bytes >> 12);
            CHECK(madvise(area + (old << 12), 4096, MADV_DONTNEED) == 0);
        }
        work(1);
    }
    for (long i = 0; i < n; i++) {
        uint64_t page = value_at((uint64_t)i) % (bytes >> 12);
        add(*(uint64_t *)(area + (page << 12)));
    }
    return finish("sparse");
}
