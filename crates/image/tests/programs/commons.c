// Much memory shared with others, little of which changes: `commons MIB`. What each page holds is
// also known in memory of the program's own; when `stop` is there, all is compared.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WORDS = 512 };

static uint64_t noise(uint64_t i) {
    i = (i + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
    return i ^ (i >> 31);
}

int main(int argc, char **argv) {
    size_t pages = (argc > 1 ? (size_t)atol(argv[1]) : 1) << 8;
    uint64_t *area = mmap(NULL, pages * 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t *last = calloc(pages, 8);
    if (area == MAP_FAILED || !last) return 2;
    for (size_t i = 0; i < pages * WORDS; i++) area[i] = noise(i);
    for (size_t page = 0; page < pages; page++) last[page] = area[page * WORDS];
    FILE *ready = fopen("ready", "w");
    if (!ready || fclose(ready)) return 2;
    for (uint64_t i = 0; access("stop", F_OK); i++) {
        size_t page = noise(i) % (pages / 100 + 1);
        area[page * WORDS] += i;
        last[page] += i;
    }
    for (size_t page = 0; page < pages; page++) {
        if (area[page * WORDS] != last[page]) return 3;
        for (size_t i = 1; i < WORDS; i++)
            if (area[page * WORDS + i] != noise(page * WORDS + i)) return 4;
    }
    return 0;
}
