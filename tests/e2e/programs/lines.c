/* Rank 0 reads standard input line by line; each line goes around all ranks and is printed by the
 * last one. With an argument each rank has a socket to the kernel, which no image brings back. With
 * LINES_GATE the first line after 30,000 is read only when there is such a file. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int rank, ranks;
    char line[4096], *gate = getenv("LINES_GATE");
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc > 1 && socket(AF_NETLINK, SOCK_RAW, 0) < 0)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (long count = 0;; count++) {
        int length = 0;
        while (rank == 0 && count == 30000 && gate && access(gate, F_OK))
            usleep(1000);
        if (rank == 0) {
            length = fgets(line, sizeof line, stdin) ? (int)strlen(line) : -1;
            if (length > 0 && line[length - 1] == '\n')
                line[--length] = 0;
        }
        MPI_Bcast(&length, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (length < 0) {
            if (rank == ranks - 1)
                printf("%ld lines\n", count);
            break;
        }
        MPI_Bcast(line, length + 1, MPI_CHAR, 0, MPI_COMM_WORLD);
        if (rank == ranks - 1) {
            printf("%ld: %s\n", count, line);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
