// A program beside the jobs of `benches/shared` that knows nothing of them.
//
//     beside UNITS    prints the seconds that so much work takes
//     beside 0        a busy loop, until it is killed
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv) {
    long units = argc > 1 ? atol(argv[1]) : 0;
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    volatile double x = 1;
    for (long unit = 0; unit < units || units == 0; unit++)
        for (int i = 0; i < 100000; i++) x = x * 0.999999 + 1e-6;
    clock_gettime(CLOCK_MONOTONIC, &b);
    printf("%.4f\n", (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
}
