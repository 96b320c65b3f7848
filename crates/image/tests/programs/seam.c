// Much shared memory and some of its own: `seam MIB MIB`. What changes are the last pages of the
// one and the first of the other. When `stop` is there, all is compared.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 512, BUSY = 200 };

static uint64_t noise(uint64_t i) {
    i = (i + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
    return i ^ (i >> 31);
}

static uint64_t *pages_of(size_t pages, int flags) {
    int rw = PROT_READ | PROT_WRITE;
    uint64_t *area = mmap(NULL, pages * 4096, rw, flags | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) exit(2);
    // Pages are to change one by one.
    madvise(area, pages * 4096, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < pages * WORDS; i++) area[i] = noise(i + (uint64_t)flags);
    return area;
}

static int is_whole(uint64_t *area, size_t pages, int flags, uint64_t *busy, uint64_t *added) {
    for (size_t page = 0; page < pages; page++) {
        uint64_t *at = area + page * WORDS;
        uint64_t first = noise(page * WORDS + (uint64_t)flags);
        if (at >= busy && at < busy + BUSY * WORDS) first += added[(at - busy) / WORDS];
        if (at[0] != first) return 0;
        for (size_t i = 1; i < WORDS; i++)
            if (at[i] != noise(page * WORDS + i + (uint64_t)flags)) return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    size_t shared = (size_t)atol(argv[1]) << 8, own = (size_t)atol(argv[2]) << 8;
    static uint64_t added[BUSY];
    uint64_t *area = pages_of(shared, MAP_SHARED), *mine = pages_of(own, MAP_PRIVATE);
    uint64_t *last = area + (shared - BUSY) * WORDS;
    FILE *ready = fopen("ready", "w");
    if (!ready || fclose(ready)) return 2;
    for (uint64_t i = 1; access("stop", F_OK); i++) {
        size_t page = i % BUSY;
        last[page * WORDS] += i;
        mine[page * WORDS] += i;
        added[page] += i;
    }
    if (!is_whole(area, shared, MAP_SHARED, last, added)) return 3;
    if (!is_whole(mine, own, MAP_PRIVATE, mine, added)) return 4;
    return 0;
}
