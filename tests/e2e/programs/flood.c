/*
 * Sends more than a small log holds, while it has a socket to the kernel, which no image brings back: its
 * checkpoints are refused, so log space cannot be had. The job must go on all the same, and say
 * that it is no longer protected.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { MESSAGES = 1000, BYTES = 65536 };

int main(int argc, char **argv)
{
    static unsigned char buffer[BYTES];
    int rank;
    unsigned long sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (socket(AF_NETLINK, SOCK_RAW, 0) < 0)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (int i = 0; i < MESSAGES; i++) {
        if (rank == 0) {
            memset(buffer, i, BYTES);
            MPI_Send(buffer, BYTES, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        } else if (rank == 1) {
            MPI_Recv(buffer, BYTES, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            sum += buffer[0] + buffer[BYTES - 1];
        }
    }
    if (rank == 1)
        printf("flood: sum %lu\n", sum);
    MPI_Finalize();
    return 0;
}
