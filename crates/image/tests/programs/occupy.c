// Lies where the restorer usually works, and where it would try next.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { BYTES = 1 << 16 };

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    static const uintptr_t places[] = {
        0x10000000000, 0x10000010000, 0x10010000000, 0x10030000000, 0x14000000000, 0x18000001000,
    };
    enum { PLACES = sizeof places / sizeof *places };
    unsigned char *all[PLACES];
    for (int k = 0; k < PLACES; k++) {
        all[k] = mmap((void *)places[k], BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
        if (all[k] != (void *)places[k]) return 2;
    }
    uint64_t h = 1;
    for (long r = 0; r < rounds; r++) {
        for (int k = 0; k < PLACES; k++) {
            for (int i = 0; i < BYTES; i += 64) {
                h = (h ^ all[k][i]) * 1099511628211ull;
                all[k][i] = (unsigned char)(h >> 24);
            }
        }
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%016llx\n", (unsigned long long)h);
    return fclose(out);
}
