// 256 MiB that keep changing.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 4;
    size_t n = (256ul << 20) / 8;
    uint64_t *a = malloc(n * 8), h = 1;
    for (size_t i = 0; i < n; i++) a[i] = i * 0x9e3779b97f4a7c15ull;
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    for (long r = 0; r < rounds; r++) {
        for (size_t i = 0; i < n; i++) {
            h = (h ^ a[i]) * 1099511628211ull;
            a[i] += h >> 3;
        }
        fprintf(out, "%016llx\n", (unsigned long long)h);
    }
    return fclose(out);
}
