/* Prints in every step what no repetition finds again: how long it took, what the clock says, its
 * process number. Names are handed on, so a rank that comes back must find the same; with
 * `--send` so are times by MPI_Wtime. Lines begin with `RANK STEP ` and have any length. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks, length, send = argc > 2 && !strcmp(argv[2], "--send");
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    double last = 0;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int step = 0; step < steps; step++) {
        struct timespec now;
        struct { double time; char name[MPI_MAX_PROCESSOR_NAME]; } mine, got;
        double start = MPI_Wtime();
        memset(&mine, 0, sizeof mine);
        mine.time = send ? start : step;
        MPI_Get_processor_name(name, &length);
        strcpy(mine.name, name);
        MPI_Sendrecv(&mine, sizeof mine, MPI_BYTE, (rank + 1) % ranks, 1, &got, sizeof got,
                     MPI_BYTE, (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (start < last) {
            printf("%d %d the clock went back\n", rank, step);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        /* A clock that is asked all the time. */
        while (MPI_Wtime() - start < 0.0005)
            ;
        last = MPI_Wtime();
        clock_gettime(CLOCK_REALTIME, &now);
        printf("%d %d took %.9f, now %ld.%09ld", rank, step, last - start, (long)now.tv_sec,
               now.tv_nsec);
        printf(" %.*s by %d\n", (int)(now.tv_nsec / 1000 % 7), "-------", (int)getpid());
    }
    MPI_Finalize();
    return 0;
}
