// Huge pages of the reserved pool, private and shared. Needs six free ones of 2 MiB.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 25000);
    enum { HUGE = 2 << 20, BYTES = 2 * HUGE };
    int rw = PROT_READ | PROT_WRITE;
    char *own = mmap(NULL, BYTES, rw, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    NEED(own != MAP_FAILED);
    char *shared = mmap(NULL, BYTES, rw, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
    NEED(shared != MAP_FAILED);
    for (long i = 0; i < n; i++) {
        uint64_t at = value_at((uint64_t)i) % (BYTES / 8);
        uint64_t *a = (uint64_t *)own + at, *b = (uint64_t *)shared + at;
        *a = *a * 31 + (uint64_t)i;
        *b += *a;
        add(*b);
        work(1);
    }
    for (long i = 0; i < BYTES; i += 64) {
        add(*(uint64_t *)(own + i));
        add(*(uint64_t *)(shared + i));
    }
    return finish("hugetlb");
}
