/*
 * MPI_Alltoall in batches: `alltoall BYTES:ROUNDS:BATCHES...` prints, for blocks of so many bytes,
 * `BYTES MIN_NS MEDIAN_NS` of a call. Each batch is timed by the rank that takes longest.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "timing.h"

enum { MOST_BATCHES = 1000 };

static double batch(char *out, char *in, int bytes, int rounds)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    for (int i = 0; i < rounds; i++)
        MPI_Alltoall(out, bytes, MPI_CHAR, in, bytes, MPI_CHAR, MPI_COMM_WORLD);
    double mine = (MPI_Wtime() - begin) * 1e9 / rounds, most;
    MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return most;
}

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i < argc; i++) {
        int bytes, rounds, batches;
        if (sscanf(argv[i], "%d:%d:%d", &bytes, &rounds, &batches) != 3 || bytes < 1 ||
            rounds < 1 || batches < 1 || batches > MOST_BATCHES) {
            fprintf(stderr, "alltoall: not BYTES:ROUNDS:BATCHES: %s\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        char *out = malloc((size_t)bytes * size), *in = malloc((size_t)bytes * size);
        double times[MOST_BATCHES];
        memset(out, rank, (size_t)bytes * size);
        batch(out, in, bytes, rounds);
        for (int b = 0; b < batches; b++)
            times[b] = batch(out, in, bytes, rounds);
        for (int r = 0; r < size; r++)
            if (in[(size_t)r * bytes] != (char)r)
                MPI_Abort(MPI_COMM_WORLD, 3);
        qsort(times, (size_t)batches, sizeof *times, ascending);
        if (rank == 0)
            printf("%d %.1f %.1f\n", bytes, times[0], times[batches / 2]);
        free(out);
        free(in);
    }
    MPI_Finalize();
    return 0;
}
