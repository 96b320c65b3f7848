#define _GNU_SOURCE
/* Dies at once on one node: that of the daemon whose process number is in FOLDER/bad, and only as one of
 * these ranks. A node that has a bad bar of memory, or lacks a library, is like that.
 *
 * picky FOLDER STEPS RANK...: a ring of at least three ranks, in which each receives from anybody; rank 0
 * prints what came of it. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int is_bad(const char *folder)
{
    char path[4096];
    long pid = 0;
    FILE *file;
    snprintf(path, sizeof path, "%s/bad", folder);
    file = fopen(path, "r");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%ld", &pid) != 1)
        pid = 0;
    fclose(file);
    /* The library records what getppid() says, and says it again wherever the rank is. */
    return pid == syscall(SYS_getppid);
}

int main(int argc, char **argv)
{
    int rank, ranks, picky = 0, arg, step, steps = atoi(argv[2]);
    unsigned long sum, all;
    struct timespec pause = { 0, 1000000 };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (arg = 3; arg < argc; arg++)
        picky |= atoi(argv[arg]) == rank;
    sum = rank + 1;
    for (step = 0; step < steps; step++) {
        unsigned long got[2];
        int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks, tag = step % 1000;
        MPI_Request sent[2];
        if (picky && is_bad(argv[1]))
            raise(SIGKILL);
        MPI_Isend(&sum, 1, MPI_UNSIGNED_LONG, right, tag, MPI_COMM_WORLD, &sent[0]);
        MPI_Isend(&sum, 1, MPI_UNSIGNED_LONG, left, tag, MPI_COMM_WORLD, &sent[1]);
        for (arg = 0; arg < 2; arg++)
            MPI_Recv(&got[arg], 1, MPI_UNSIGNED_LONG, MPI_ANY_SOURCE, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Waitall(2, sent, MPI_STATUSES_IGNORE);
        sum = sum * 31 + got[0] + got[1];
        if (rank == 0 && step % 100 == 0)
            printf("step %d\n", step);
        nanosleep(&pause, NULL);
    }
    MPI_Reduce(&sum, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("result %lu\n", all);
    MPI_Finalize();
    return 0;
}
