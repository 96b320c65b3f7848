// One sleep, of which the program is told how much is left; then what the clock says of it.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    double seconds = argc > 1 ? atof(argv[1]) : 2;
    struct timespec begun, ended, left, whole = {(time_t)seconds, 0};
    whole.tv_nsec = (long)((seconds - (double)whole.tv_sec) * 1e9);
    FILE *ready = fopen("ready", "w");
    fputs("ready\n", ready);
    fclose(ready);
    clock_gettime(CLOCK_MONOTONIC, &begun);
    long result = syscall(SYS_nanosleep, &whole, &left);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    double slept = (double)(ended.tv_sec - begun.tv_sec) + (double)(ended.tv_nsec - begun.tv_nsec) * 1e-9;
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%ld %f\n", result, slept);
    return fclose(out);
}
