/*
 * Ends in the way of argument 1: `exit N` (all ranks exit with N after MPI_Finalize), `early N`
 * (rank 1 exits with N without MPI_Finalize while the others wait for it), `abort N` (rank 1 calls
 * MPI_Abort).
 */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 3)
        MPI_Abort(MPI_COMM_WORLD, 99);
    int code = atoi(argv[2]), last = rank == 1 % ranks;
    if (last && strcmp(argv[1], "early") == 0)
        exit(code);
    if (last && strcmp(argv[1], "abort") == 0)
        MPI_Abort(MPI_COMM_WORLD, code);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return code;
}
