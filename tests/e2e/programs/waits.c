/* Ranks that have much to repeat, and then wait outside of MPI, each after another kind of call.
 *
 * waits FOLDER: rank 0 reads a line, rank 3 computes, the others look for FOLDER/gate. A rank leaves a
 * byte in FOLDER/waits.RANK whenever it begins to. Takes four ranks. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int there(const char *folder)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/gate", folder);
    return access(path, F_OK) == 0;
}

int main(int argc, char **argv)
{
    int rank, ranks, flag, got;
    char path[4096], line[64] = "";
    double last = 0;
    unsigned sum = 1, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (unsigned step = 0; step < 200; step++) {
        unsigned from;
        MPI_Sendrecv(&sum, 1, MPI_UNSIGNED, (rank + 1) % ranks, 1, &from, 1, MPI_UNSIGNED,
                     (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum = sum * 31 + from + step;
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Send(&sum, 1, MPI_UNSIGNED, 1, 2, MPI_COMM_WORLD);
    else if (rank == 1)
        MPI_Recv(&got, 1, MPI_UNSIGNED, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (rank == 2)
        last = MPI_Wtime();
    else
        for (int i = 0; i < 3; i++)
            MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    snprintf(path, sizeof path, "%s/waits.%d", argv[1], rank);
    /* At a place: what is appended stands once, however often the rank begins. */
    int begun = open(path, O_CREAT | O_WRONLY, 0600);
    if (pwrite(begun, ".", 1, lseek(begun, 0, SEEK_END)) != 1)
        return 5;
    close(begun);
    if (rank == 0 && !fgets(line, sizeof line, stdin))
        return 3;
    while (rank > 0 && !there(argv[1]))
        for (int i = 0; i < 1000 && rank == 3; i++)
            sum = sum * 33 + 1 - (sum * 33 + 1 - sum);
    if (rank == 2 && MPI_Wtime() < last)
        return 4;
    MPI_Allreduce(&sum, &all, 1, MPI_UNSIGNED, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("sum %u after %s", all, line);
    MPI_Finalize();
    return 0;
}
