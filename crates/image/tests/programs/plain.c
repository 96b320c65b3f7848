// Heap, stdio to a file, the clock, a changing hash: the everyday program.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    uint64_t h = 1469598103934665603ull;
    char *kept[64] = {0};
    for (long i = 0; i < rounds; i++) {
        size_t n = 1000 + (h >> 40) % 100000;
        char *p = malloc(n);
        memset(p, (int)h, n);
        for (size_t k = 0; k < n; k++) h = (h ^ (unsigned char)p[k]) * 1099511628211ull + k;
        free(kept[i % 64]);
        kept[i % 64] = p;
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (i % 10 == 0) fprintf(out, "%ld %016llx\n", i, (unsigned long long)h);
    }
    return fclose(out);
}
