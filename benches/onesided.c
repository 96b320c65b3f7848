/*
 * One-sided operations of rank 0 on rank 1, each completed by a flush: what one takes, in batches.
 * Rank 1 waits in a barrier meanwhile.
 *
 *   onesided ROUNDS BATCHES    prints `NAME MIN_NS MEDIAN_NS` for each (rank 0)
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { BYTES = 65536, MOST_BATCHES = 1000 };

static int rounds, batches, rank;
static char own[BYTES];

static void put(MPI_Win win)
{
    MPI_Put(own, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, win);
}

static void get(MPI_Win win)
{
    MPI_Get(own, 8, MPI_BYTE, 1, 0, 8, MPI_BYTE, win);
}

static void put_large(MPI_Win win)
{
    MPI_Put(own, BYTES, MPI_BYTE, 1, 0, BYTES, MPI_BYTE, win);
}

static void get_large(MPI_Win win)
{
    MPI_Get(own, BYTES, MPI_BYTE, 1, 0, BYTES, MPI_BYTE, win);
}

static void fetch(MPI_Win win)
{
    static long one = 1, was;
    MPI_Fetch_and_op(&one, &was, MPI_LONG, 1, 0, MPI_SUM, win);
}

static void swap(MPI_Win win)
{
    static long one = 1, zero = 0, was;
    MPI_Compare_and_swap(&one, &zero, &was, MPI_LONG, 1, 0, win);
}

static void accumulate(MPI_Win win)
{
    static double some[16];
    MPI_Accumulate(some, 16, MPI_DOUBLE, 1, 0, 16, MPI_DOUBLE, MPI_SUM, win);
}

static void measure(const char *what, const char *name, void (*operation)(MPI_Win), MPI_Win win)
{
    static double times[MOST_BATCHES];
    MPI_Barrier(MPI_COMM_WORLD);
    for (int b = -1; rank == 0 && b < batches; b++) {
        double began = now_ns();
        for (int i = 0; i < rounds; i++) {
            operation(win);
            MPI_Win_flush(1, win);
        }
        if (b >= 0)
            times[b] = (now_ns() - began) / rounds;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        qsort(times, (size_t)batches, sizeof *times, ascending);
        printf("%s_%s %.1f %.1f\n", what, name, times[0], times[batches / 2]);
    }
}

static void all_of(const char *what, MPI_Win win)
{
    MPI_Win_lock_all(0, win);
    measure(what, "put", put, win);
    measure(what, "get", get, win);
    measure(what, "put_64K", put_large, win);
    measure(what, "get_64K", get_large, win);
    measure(what, "fetch_and_op", fetch, win);
    measure(what, "compare_and_swap", swap, win);
    measure(what, "accumulate_16", accumulate, win);
    MPI_Win_unlock_all(win);
    MPI_Win_free(&win);
}

int main(int argc, char **argv)
{
    static char memory[BYTES];
    void *base;
    MPI_Win win;
    rounds = argc > 1 ? atoi(argv[1]) : 1000;
    batches = argc > 2 && atoi(argv[2]) <= MOST_BATCHES ? atoi(argv[2]) : 15;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Win_allocate(BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    all_of("allocated", win);
    MPI_Win_create(memory, BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    all_of("created", win);
    MPI_Finalize();
    return 0;
}
