/*
 * Rank 0 makes a file that it reads and writes, all ranks write a part of it, and rank 0 reads those of
 * the others and prints them. Argument 1: a file that it waits for before; it makes FILE.at then.
 */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, number, file = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == 0)
        file = open("slices", O_RDWR | O_CREAT | O_TRUNC, 0600);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0)
        file = open("slices", O_WRONLY);
    if (file < 0)
        MPI_Abort(MPI_COMM_WORLD, 99);
    number = 100 * rank + 3;
    if (pwrite(file, &number, sizeof number, rank * (off_t)sizeof number) != sizeof number)
        MPI_Abort(MPI_COMM_WORLD, 98);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        char at[4096];
        snprintf(at, sizeof at, "%s.at", argv[1]);
        close(open(at, O_WRONLY | O_CREAT, 0600));
        while (access(argv[1], F_OK) != 0)
            usleep(1000);
        for (int i = 1; i < size; i++) {
            if (pread(file, &number, sizeof number, i * (off_t)sizeof number) != sizeof number)
                MPI_Abort(MPI_COMM_WORLD, 97);
            printf("%d ", number);
        }
        printf("\n");
    }
    MPI_Finalize();
    return 0;
}
