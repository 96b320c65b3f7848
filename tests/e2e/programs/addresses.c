/*
 * Sends what follows from where memory lies: numbers that are seeded by addresses of the stack, the
 * program, the C library and a mapping. Argument 1: how many steps.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    void *mapped = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    void *kinds[] = {&rank, (void *)(uintptr_t)main, (void *)(uintptr_t)printf, mapped};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    for (int step = 0; step < steps; step++) {
        int told[KINDS], came[KINDS];
        for (int i = 0; i < KINDS; i++) {
            srand((unsigned)(uintptr_t)kinds[i] + (unsigned)step);
            told[i] = rand();
        }
        MPI_Sendrecv(told, KINDS, MPI_INT, (rank + 1) % size, 0, came, KINDS, MPI_INT,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        usleep(5000);
    }
    if (rank == 0)
        printf("addresses: %d steps\n", steps);
    MPI_Finalize();
    return 0;
}
