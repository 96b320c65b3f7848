/* One rank takes more and more memory, and says how much it has: for a control group that does not
 * allow that. argv[1]: which; argv[2]: how many MiB at most. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, hungry = argc > 1 ? atoi(argv[1]) : 0, most = argc > 2 ? atoi(argv[2]) : 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    long sum = 0;
    for (int mib = 0; rank == hungry && mib < most; mib++) {
        char *more = malloc(1 << 20);
        if (!more)
            MPI_Abort(MPI_COMM_WORLD, 3);
        memset(more, mib + 1, 1 << 20);
        sum += more[mib];
    }
    long all = 0;
    MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d MiB\n", most);
    MPI_Finalize();
    return 0;
}
