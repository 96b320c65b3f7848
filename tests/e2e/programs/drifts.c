/* Sends what no log knows: a processor's time stamp, which its receiver sends back. A rank that is run
 * again sends others, so no replay of it is right; a run of all ranks together always is.
 *
 * drifts FOLDER: goes on until FOLDER/stop is there. A rank that begins leaves a byte in
 * FOLDER/begun.RANK. drifts FOLDER RANK: this rank ends when FOLDER/leave is there, the others go on.
 * Rank 0 prints every 20th step. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static unsigned long stamp(void)
{
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    unsigned long now;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(now));
    return now;
#endif
}

static int there(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

/* Steps of a ring of these ranks, until the first of them sees the file. */
static long ring(MPI_Comm comm, const char *folder, const char *until, long step, int prints)
{
    int rank, ranks, stop = 0;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    for (; !stop; step++) {
        struct timespec pause = { 0, 500000 };
        unsigned long mine[2] = { step, stamp() }, got[2], back[2];
        int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
        MPI_Sendrecv(mine, 2, MPI_UNSIGNED_LONG, right, 1, got, 2, MPI_UNSIGNED_LONG, left, 1, comm,
                     MPI_STATUS_IGNORE);
        MPI_Sendrecv(got, 2, MPI_UNSIGNED_LONG, left, 2, back, 2, MPI_UNSIGNED_LONG, right, 2, comm,
                     MPI_STATUS_IGNORE);
        if (got[0] != (unsigned long)step || back[0] != mine[0] || back[1] != mine[1]) {
            printf("WRONG in step %ld of rank %d\n", step, rank);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        if (prints && step % 20 == 0)
            printf("step %ld\n", step);
        stop = rank == 0 && there(folder, until);
        MPI_Bcast(&stop, 1, MPI_INT, 0, comm);
        nanosleep(&pause, NULL);
    }
    return step;
}

int main(int argc, char **argv)
{
    int rank, leaver = argc > 2 ? atoi(argv[2]) : -1;
    long step = 0;
    char path[4096];
    FILE *begun;
    MPI_Comm rest;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    setvbuf(stdout, NULL, _IOLBF, 0);
    snprintf(path, sizeof path, "%s/begun.%d", argv[1], rank);
    begun = fopen(path, "a");
    fputc('b', begun);
    fclose(begun);
    MPI_Comm_split(MPI_COMM_WORLD, rank == leaver, rank, &rest);
    if (leaver >= 0)
        step = ring(MPI_COMM_WORLD, argv[1], "leave", step, rank == 0);
    if (rank != leaver)
        step = ring(rest, argv[1], "stop", step, rank == 0);
    if (rank == 0)
        printf("%s\n", step > 0 ? "done" : "nothing done");
    MPI_Finalize();
    return 0;
}
