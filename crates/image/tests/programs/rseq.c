// sched_getcpu() comes from the rseq area; it must follow the processor that the thread runs on.
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 20000;
    cpu_set_t all, one;
    sched_getaffinity(0, sizeof all, &all);
    long wrong = 0, tried = 0;
    for (long i = 0; i < rounds; i++) {
        int cpu = (int)(i % CPU_SETSIZE);
        if (!CPU_ISSET(cpu, &all)) continue;
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        if (sched_setaffinity(0, sizeof one, &one)) continue;
        for (int k = 0; k < 20000; k++) {
            tried++;
            if (sched_getcpu() != cpu) wrong++;
        }
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "tried %ld wrong %ld\n", tried, wrong);
    return fclose(out);
}
