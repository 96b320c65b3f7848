// Memory of letters: sixteen of them at random, so that it can be compressed to half, and takes its time
// to be. Each rank fills so many MiB, and says at its end, after it was let go, what it finds there.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    size_t bytes = strtoull(argv[1], NULL, 10) << 20;
    unsigned char *memory = malloc(bytes);
    if (!memory) MPI_Abort(MPI_COMM_WORLD, 1);
    uint64_t state = 88172645463325252ull + (uint64_t)rank;
    for (size_t i = 0; i < bytes; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memory[i] = (unsigned char)('a' + (state >> 40) % 16);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) puts("filled");
    fflush(stdout);
    MPI_Finalize();
    uint64_t sum = 0;
    for (size_t i = 0; i < bytes; i++) sum = sum * 31 + memory[i];
    printf("rank %d: sum %016llx\n", rank, (unsigned long long)sum);
    return 0;
}
