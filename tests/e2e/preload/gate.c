/*
 * Loaded before a program's libraries (LD_PRELOAD): its ranks wait in MPI_Finalize until the file
 * EYRIE_TEST_GATE exists, or one with the rank's number behind a dot. So a job does not end before
 * all has happened to it that a test wants, however fast it is.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int MPI_Finalize(void)
{
    int (*finalize)(void) = (int (*)(void))dlsym(RTLD_NEXT, "PMPI_Finalize");
    int (*number)(MPI_Comm, int *) = (int (*)(MPI_Comm, int *))dlsym(RTLD_NEXT, "PMPI_Comm_rank");
    const char *gate = getenv("EYRIE_TEST_GATE");
    char own[4096];
    int rank;
    if (gate != NULL && number(MPI_COMM_WORLD, &rank) == MPI_SUCCESS) {
        snprintf(own, sizeof own, "%s.%d", gate, rank);
        while (access(gate, F_OK) != 0 && access(own, F_OK) != 0)
            usleep(1000);
    }
    return finalize();
}
