/* What it costs that clocks are recorded: ns per call, of a program that asks all the time, and of one
 * that works for a microsecond in between.
 *
 *   build/bin/mpicc -O2 -o /tmp/clocks benches/clocks.c
 *   for how in auto plain; do build/bin/eyrie run -n 1 --clocks $how -- /tmp/clocks; done */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { CALLS = 4000000 };

static double kernel_ns(void)
{
    struct timespec now;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e9 + now.tv_nsec;
}

static volatile double sink;

static void work(int rounds)
{
    double sum = 1;
    for (int i = 0; i < rounds; i++)
        sum = sum * 1.0000001 + 1e-9;
    sink = sum;
}

static double cost(int which, int calls, int rounds)
{
    struct timespec at;
    struct timeval day;
    struct rusage usage;
    uint64_t bytes;
    double start = kernel_ns();
    for (int i = 0; i < calls; i++) {
        switch (which) {
        case 0: clock_gettime(CLOCK_MONOTONIC, &at); break;
        case 1: clock_gettime(CLOCK_REALTIME, &at); break;
        case 2: gettimeofday(&day, NULL); break;
        case 3: sink = time(NULL); break;
        case 4: sink = clock(); break;
        case 5: getrusage(RUSAGE_SELF, &usage); break;
        case 6: sink = getpid(); break;
        case 7: sink = getrandom(&bytes, sizeof bytes, 0); break;
        case 8: sink = MPI_Wtime(); break;
        }
        if (rounds)
            work(rounds);
    }
    return (kernel_ns() - start) / calls;
}

int main(int argc, char **argv)
{
    static const char *const NAMES[] = {"clock_gettime MONOTONIC", "clock_gettime REALTIME",
        "gettimeofday", "time", "clock", "getrusage", "getpid", "getrandom 8 B", "MPI_Wtime"};
    MPI_Init(&argc, &argv);
    for (int which = 0; which < 9; which++) {
        double best[2] = {1e9, 1e9};
        for (int round = 0; round < 5; round++) {
            double all = cost(which, CALLS / 4, 0), some = cost(which, CALLS / 16, 500);
            best[0] = all < best[0] ? all : best[0];
            best[1] = some < best[1] ? some : best[1];
        }
        printf("%-24s %8.1f ns, with work in between %8.1f ns\n", NAMES[which], best[0], best[1]);
    }
    MPI_Finalize();
    return 0;
}
