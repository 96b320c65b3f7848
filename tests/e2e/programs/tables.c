/* Every rank fills the same table of 4 MiB and 1 MiB of its own, and reads all of both in each step.
 * With --pause rank 0 waits for a line of input half way, and the others for rank 0; with --drift it
 * does so in each step of the second half, and each changes another part of what a rank has. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TABLE_WORDS = 4 << 17, OWN_WORDS = 1 << 17, STEPS = 40 };

static uint64_t next(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t *filled(size_t words, uint64_t seed) {
    uint64_t *memory = malloc(words * sizeof *memory);
    for (size_t i = 0; memory && i < words; i++) memory[i] = next(&seed);
    return memory;
}

int main(int argc, char **argv) {
    int rank, drift = argc > 1 && !strcmp(argv[1], "--drift");
    int pause = drift || (argc > 1 && !strcmp(argv[1], "--pause"));
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    uint64_t *table = filled(TABLE_WORDS, 42), *own = filled(OWN_WORDS, 1000 + rank);
    if (!table || !own) MPI_Abort(MPI_COMM_WORLD, 3);
    uint64_t all = 1;
    for (int step = 0; step < STEPS; step++) {
        uint64_t sum = 0;
        for (size_t i = 0; i < TABLE_WORDS; i++) sum = sum * 31 + table[i];
        for (size_t i = 0; i < OWN_WORDS; i++) {
            if (!drift || i * 16 / OWN_WORDS == (size_t)step % 16) own[i] += all;
            sum = sum * 31 + own[i];
        }
        MPI_Allreduce(&sum, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0 && pause && (step == STEPS / 2 || (drift && step > STEPS / 2))) {
            char line[64];
            puts("paused");
            fflush(stdout);
            if (!fgets(line, sizeof line, stdin)) MPI_Abort(MPI_COMM_WORLD, 4);
        }
    }
    if (rank == 0) printf("%016llx\n", (unsigned long long)all);
    free(table);
    free(own);
    MPI_Finalize();
    return 0;
}
