/*
 * Appends a line with a number to the file of argument 1, which it keeps open, again and again, as
 * many as argument 2 says; then it prints how many. Half-way it waits until the file of argument 3,
 * if there is one, exists.
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
        while (argc > 3 && i == count / 2 && access(argv[3], F_OK) != 0)
            usleep(1000);
        if (dprintf(file, "%d\n", i) < 0)
            MPI_Abort(MPI_COMM_WORLD, 98);
        usleep(20000);
    }
    printf("%d lines\n", count);
    MPI_Finalize();
    return 0;
}
