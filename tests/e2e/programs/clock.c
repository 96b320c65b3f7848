/* Decides by a clock what it sends that it asks the kernel for, past the C library, which no log can
 * know: `eyrie verify` must say so. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    long sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 0; i < 50; i++) {
        struct timespec now;
        long mine, got;
        syscall(SYS_clock_gettime, CLOCK_REALTIME, &now);
        mine = now.tv_nsec;
        MPI_Sendrecv(&mine, 1, MPI_LONG, (rank + 1) % ranks, 1, &got, 1, MPI_LONG,
                     (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum += got & 0xff;
    }
    if (rank == 0)
        printf("clock: %s\n", sum >= 0 ? "done" : "overflow");
    MPI_Finalize();
    return 0;
}
