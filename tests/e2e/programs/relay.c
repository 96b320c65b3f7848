/* Rank 0 sends numbers, the others add them up, every second one received from any source, and
 * print now and then. `--pause N`: rank 0 reads a line of input before step N. `--crash N`: rank 1
 * dereferences a null pointer in step N. `--clock 1`: what is sent is the time of day, which the
 * kernel is asked for, so that it is not recorded. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size;
    long steps = 100, crash = -1, pause = -1, clock = 0;
    char line[64];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 1; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--steps")) steps = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--crash")) crash = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--pause")) pause = atol(argv[i + 1]);
        if (!strcmp(argv[i], "--clock")) clock = atol(argv[i + 1]);
    }
    volatile long sum = 0;
    for (volatile long step = 0; step < steps; step++) {
        long value = step * step;
        struct timespec now;
        if (clock && !syscall(SYS_clock_gettime, CLOCK_REALTIME, &now)) value = now.tv_nsec;
        if (rank == 0 && step == pause && !fgets(line, sizeof line, stdin)) return 2;
        for (int to = 1; rank == 0 && to < size; to++)
            MPI_Send(&value, 1, MPI_LONG, to, 5, MPI_COMM_WORLD);
        if (rank > 0) {
            int from = step % 2 ? MPI_ANY_SOURCE : 0;
            MPI_Recv(&value, 1, MPI_LONG, from, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sum += value;
            if (step % 10 == 0) {
                printf("rank %d step %ld sum %ld\n", rank, step, sum);
                fflush(stdout);
            }
            if (rank == 1 && step == crash) *(volatile int *)NULL = 1;
        }
        nanosleep(&(struct timespec){.tv_nsec = 3000000}, NULL);
    }
    if (rank == 0 && pause >= 0) printf("rank 0 had read: %s", line);
    MPI_Finalize();
    return 0;
}
