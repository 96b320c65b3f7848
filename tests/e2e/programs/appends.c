/*
 * Appends a line with a number to the file of argument 1, which it keeps open, again and again, as
 * many as argument 2 says; then it prints how many.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 3)
        MPI_Abort(MPI_COMM_WORLD, 99);
    int file = open(argv[1], O_WRONLY | O_CREAT | O_APPEND, 0600), count = atoi(argv[2]);
    for (int i = 0; i < count; i++) {
        if (dprintf(file, "%d\n", i) < 0)
            MPI_Abort(MPI_COMM_WORLD, 98);
        usleep(20000);
    }
    printf("%d lines\n", count);
    MPI_Finalize();
    return 0;
}
