// Memory for `benches/migrate`: each rank holds so many MiB of noise, and writes to so many percent
// of their pages in each step, in turn; then all add up what they have counted.
//
//     noise MIB PERCENT MS    a step takes at least MS milliseconds; ends when it is killed
#define _GNU_SOURCE
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { PAGE = 4096 };

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) MPI_Abort(MPI_COMM_WORLD, 2);
    size_t bytes = strtoull(argv[1], NULL, 10) << 20, pages = bytes / PAGE;
    size_t share = pages * strtoull(argv[2], NULL, 10) / 100, next = 0;
    long pause_ms = strtol(argv[3], NULL, 10);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t *memory = malloc(bytes), state = 88172645463325252ull + (uint64_t)rank;
    if (!memory) MPI_Abort(MPI_COMM_WORLD, 1);
    for (size_t i = 0; i < bytes / sizeof *memory; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        memory[i] = state ^= state << 17;
    }
    for (uint64_t step = 1;; step++) {
        for (size_t i = 0; i < share; i++, next = (next + 1) % pages)
            memory[next * (PAGE / sizeof *memory)] += step;
        struct timespec pause = {pause_ms / 1000, pause_ms % 1000 * 1000000};
        nanosleep(&pause, NULL);
        uint64_t all = 0;
        MPI_Allreduce(&step, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0 && step == 1) {
            puts("filled");
            fflush(stdout);
        }
    }
}
