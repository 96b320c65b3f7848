// Nothing but the vdso's clock: most freezes catch it inside the vdso.
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10000000;
    struct timespec last = {0, 0}, now;
    struct timeval tv;
    long back = 0;
    for (long i = 0; i < rounds; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec < last.tv_sec || (now.tv_sec == last.tv_sec && now.tv_nsec < last.tv_nsec)) back++;
        last = now;
        gettimeofday(&tv, NULL);
        if (time(NULL) < 1000000) back++;
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%ld rounds, %ld backwards\n", rounds, back);
    return fclose(out);
}
