/*
 * Calls a function of the standard that this release does not have, with MPI_ERRORS_RETURN: the
 * call must return an error of class MPI_ERR_UNSUPPORTED_OPERATION, and the program goes on.
 * Without an argument it is a window's creation; with `fatal` the default error handler stays, and
 * the job must end.
 */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, class, memory[4];
    MPI_Win window = MPI_WIN_NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc < 2)
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Error_class(code, &class);
    if (rank == 0)
        printf("unsupported: %s\n",
               class == MPI_ERR_UNSUPPORTED_OPERATION ? "said so" : "said something else");
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
