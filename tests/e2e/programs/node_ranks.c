/* Which ranks share memory by MPI_Comm_split_type, and steps among them: prints `RANK: RANKS... SUM`. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    int rank, size, ranks[64];
    long sum = 0, all = 0;
    MPI_Comm node;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &size);
    MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, node);
    for (int step = argc > 1 ? atoi(argv[1]) : 1; step > 0; step--) {
        sum += rank + step;
        MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, node);
        sum = all % 1000003;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    printf("%d:", rank);
    for (int i = 0; i < size; i++)
        printf(" %d", ranks[i]);
    printf(" %ld\n", sum);
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
