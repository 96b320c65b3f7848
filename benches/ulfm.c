/*
 * What a loss costs a program that handles it itself (ULFM), and what being able to costs without one.
 *
 *   ulfm lose ROUNDS FILE   in each round the last rank kills itself in a loop of MPI_Allreduce; the others revoke,
 *                           shrink and meet. A line for each round: microseconds from the kill until rank 0 has an
 *                           error, and until the last of them is through a barrier on the new communicator.
 *   ulfm cost CALLS         nanoseconds of a ping-pong of 8 bytes between two ranks, and of MPI_Allreduce of one double
 *                           between all
 *
 * FILE is memory of all ranks, which are on one machine: who dies says there when.
 */
#include <mpi.h>

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Not by <mpi-ext.h>: that of Open MPI's wheel does not compile. */
int MPIX_Comm_revoke(MPI_Comm comm);
int MPIX_Comm_shrink(MPI_Comm comm, MPI_Comm *newcomm);

/* Calls that each rank has made before one dies. */
enum { BEFORE = 200 };

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void lose(int rounds, const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 4096) != 0)
        MPI_Abort(MPI_COMM_WORLD, 2);
    volatile int64_t *died = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int round = 0; round < rounds; round++) {
        int rank, size;
        double in = 1, out;
        MPI_Comm left;
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &size);
        if (size < 2)
            break;
        int error = MPI_SUCCESS;
        for (int i = 0; error == MPI_SUCCESS; i++) {
            if (i == BEFORE && rank == size - 1) {
                died[round] = now_ns();
                raise(SIGKILL);
            }
            error = MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, comm);
        }
        int64_t heard = now_ns();
        MPIX_Comm_revoke(comm);
        if (MPIX_Comm_shrink(comm, &left) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 3);
        MPI_Comm_set_errhandler(left, MPI_ERRORS_RETURN);
        if (MPI_Barrier(left) != MPI_SUCCESS)
            MPI_Abort(MPI_COMM_WORLD, 4);
        double repaired = (double)(now_ns() - died[round]) / 1e3, last;
        MPI_Reduce(&repaired, &last, 1, MPI_DOUBLE, MPI_MAX, 0, left);
        if (rank == 0)
            printf("%d %.1f %.1f\n", size, (double)(heard - died[round]) / 1e3, last), fflush(stdout);
        MPI_Comm_free(&comm);
        comm = left;
    }
    MPI_Comm_free(&comm);
}

static void cost(long calls)
{
    int rank;
    double in = 1, out = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    int64_t begun = now_ns();
    for (long i = 0; i < calls && rank < 2; i++) {
        if (rank == 0)
            MPI_Send(&in, 1, MPI_DOUBLE, 1, 1, MPI_COMM_WORLD);
        MPI_Recv(&out, 1, MPI_DOUBLE, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(&in, 1, MPI_DOUBLE, 0, 1, MPI_COMM_WORLD);
    }
    double pingpong = (double)(now_ns() - begun) / (double)calls;
    MPI_Barrier(MPI_COMM_WORLD);
    begun = now_ns();
    for (long i = 0; i < calls; i++)
        MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    double allreduce = (double)(now_ns() - begun) / (double)calls;
    if (rank == 0)
        printf("%.1f %.1f\n", pingpong, allreduce);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc == 4 && !strcmp(argv[1], "lose"))
        lose(atoi(argv[2]), argv[3]);
    else if (argc == 3 && !strcmp(argv[1], "cost"))
        cost(atol(argv[2]));
    else
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Finalize();
    return 0;
}
