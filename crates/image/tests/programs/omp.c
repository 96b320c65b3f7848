// Parallel loops with barriers, static and dynamic; every number in the result is exact.
#include <omp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define N 4096

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    static double a[N], b[N];
    uint64_t total = 0;
    omp_set_dynamic(0);
    omp_set_num_threads(4);
    for (int i = 0; i < N; i++) a[i] = i % 17;
    for (long r = 0; r < rounds; r++) {
        uint64_t sum = 0;
#pragma omp parallel reduction(+ : sum)
        {
#pragma omp for schedule(static)
            for (int i = 0; i < N; i++) b[i] = 0.25 * (a[(i + 1) % N] + a[(i + N - 1) % N]) + 0.5 * a[i];
#pragma omp for schedule(dynamic, 64)
            for (int i = 0; i < N; i++) {
                a[i] = b[i] + (double)((i * r) % 5);
                sum += (uint64_t)(a[i] * 1024.0);
            }
        }
        total = (total ^ sum) * 1099511628211ull;
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%016llx\n", (unsigned long long)total);
    for (int i = 0; i < N; i++) fprintf(out, "%a\n", a[i]);
    return fclose(out);
}
