/*
 * Each rank has a file that it reads and writes in place: a record hangs on what it held before and on
 * what came from the left. Argument 1: how many rounds; argument 2, if there is one: a file that is
 * waited for half-way. The files lie in the working folder, under names of the job's, and are gone in
 * the end. Prints a number that hangs on all records.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { RECORDS = 1024 };

static uint64_t mixed(uint64_t a, uint64_t b)
{
    a = (a ^ (b + 0x9e3779b97f4a7c15u)) * 0xbf58476d1ce4e5b9u;
    return a ^ (a >> 29);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 1000;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char name[200];
    const char *job = getenv("EYRIE_JOB");
    snprintf(name, sizeof name, "inplace.%s.%d", job ? job : "none", rank);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || ftruncate(file, RECORDS * 8) != 0)
        MPI_Abort(MPI_COMM_WORLD, 99);
    uint64_t came = (uint64_t)rank, all = 0, sum = 0, held = 0;
    for (int i = 0; i < rounds; i++) {
        while (argc > 2 && rank == 0 && i == rounds / 2 && access(argv[2], F_OK) != 0)
            usleep(1000);
        off_t at = (off_t)(mixed(came, (uint64_t)i) % RECORDS * 8);
        if (pread(file, &held, 8, at) != 8)
            MPI_Abort(MPI_COMM_WORLD, 98);
        held = mixed(held, came);
        if (pwrite(file, &held, 8, at) != 8)
            MPI_Abort(MPI_COMM_WORLD, 97);
        MPI_Sendrecv(&held, 1, MPI_UINT64_T, (rank + 1) % size, 0, &came, 1, MPI_UINT64_T,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (i % 10 == 9)
            usleep(500);
    }
    for (int i = 0; i < RECORDS; i++) {
        if (pread(file, &held, 8, i * 8) != 8)
            MPI_Abort(MPI_COMM_WORLD, 96);
        sum = mixed(sum, held);
    }
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d rounds, checksum %016" PRIx64 "\n", rounds, all);
    fflush(stdout);
    unlink(name);
    MPI_Finalize();
    return 0;
}
