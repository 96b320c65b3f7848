/* Two ranks pass each other messages full of the text of the first argument, small ones and long
 * ones, and print it, until the file of the second argument is there. */

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LONG 100000

static char data[LONG], back[LONG];

int main(int argc, char **argv) {
    int rank, size, over = 0;
    long rounds = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 3 || size != 2) MPI_Abort(MPI_COMM_WORLD, 1);
    size_t length = strlen(argv[1]);
    for (size_t i = 0; i < LONG; i++) data[i] = argv[1][i % length];
    while (!over) {
        for (int count = 200; count <= LONG; count *= 500) {
            MPI_Sendrecv(data, count, MPI_CHAR, 1 - rank, 1, back, count, MPI_CHAR, 1 - rank, 1,
                         MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (memcmp(data, back, (size_t)count)) MPI_Abort(MPI_COMM_WORLD, 2);
        }
        if (rank == 0) over = access(argv[2], F_OK) == 0;
        MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (rounds++ == 0) {
            printf("%s\n", argv[1]);
            fflush(stdout);
        }
    }
    if (rank == 0) fprintf(stderr, "rounds %ld\n", rounds);
    MPI_Finalize();
    return 0;
}
