/*
 * Dies of its own bug: rank 1 writes through a null pointer in round N (argument 1, default 5),
 * each time it gets there. The rounds before are sound.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, ranks, sum = 0, bad = argc > 1 ? atoi(argv[1]) : 5;
    int *volatile nowhere = NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int round = 0; round < bad + 5; round++) {
        MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 1 % ranks && round == bad)
            *nowhere = sum;
    }
    MPI_Finalize();
    return 0;
}
