/*
 * Sends how often it was run, by the length of a file that each run makes longer: no replay can know
 * that. With a second argument it ends with that code.
 *
 * usage: counted FILE [CODE]
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long runs = 0;
    if (rank == 1) {
        FILE *f = fopen(argv[1], "a");
        fputc('x', f);
        runs = ftell(f);
        fclose(f);
    }
    if (argc > 2)
        exit(atoi(argv[2]));
    for (int i = 0; i < 4; i++) {
        long word = i == 2 ? runs : i;
        if (rank == 1)
            MPI_Ssend(&word, 1, MPI_LONG, 0, 5 + i, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&word, 1, MPI_LONG, 1, 5 + i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
