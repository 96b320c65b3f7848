/*
 * The messages of a stencil in two dimensions, without its arithmetic: each rank sends to its
 * neighbours in a grid and hears of them, again and again, until the job is ended.
 *
 *   halo PX PY BYTES    rank 0 prints `step N SECONDS` for each step
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "timing.h"

enum { SIDES = 4 };

/* The rank beside one, or none. */
static int beside(int x, int y, int px, int py)
{
    return x < 0 || y < 0 || x >= px || y >= py ? MPI_PROC_NULL : y * px + x;
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int px = argc > 3 ? atoi(argv[1]) : 0, py = argc > 3 ? atoi(argv[2]) : 0;
    int bytes = argc > 3 ? atoi(argv[3]) : 0;
    if (px < 1 || py < 1 || bytes < 1 || px * py != ranks) {
        if (rank == 0)
            fprintf(stderr, "usage: halo PX PY BYTES, with PX * PY ranks\n");
        MPI_Finalize();
        return 2;
    }
    int x = rank % px, y = rank / px;
    const int near[SIDES] = {beside(x - 1, y, px, py), beside(x + 1, y, px, py),
                             beside(x, y - 1, px, py), beside(x, y + 1, px, py)};
    char *out = calloc(SIDES, (size_t)bytes), *in = calloc(SIDES, (size_t)bytes);
    if (!out || !in) {
        fprintf(stderr, "halo: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (long step = 0;; step++) {
        MPI_Request requests[2 * SIDES];
        MPI_Barrier(MPI_COMM_WORLD);
        double begun = now_ns();
        for (int side = 0; side < SIDES; side++) {
            char *from = in + (size_t)side * (size_t)bytes, *to = out + (size_t)side * (size_t)bytes;
            MPI_Irecv(from, bytes, MPI_BYTE, near[side], 0, MPI_COMM_WORLD, &requests[side]);
            MPI_Isend(to, bytes, MPI_BYTE, near[side], 0, MPI_COMM_WORLD, &requests[SIDES + side]);
        }
        MPI_Waitall(2 * SIDES, requests, MPI_STATUSES_IGNORE);
        double own = (now_ns() - begun) / 1e9, longest;
        MPI_Reduce(&own, &longest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) {
            printf("step %ld %.6f\n", step, longest);
            fflush(stdout);
        }
    }
}
