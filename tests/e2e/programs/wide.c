/*
 * Collectives of all sizes for so many rounds, also on communicators that are made on the way. It
 * prints what came out of them: `exact` of what does not depend on the order of additions, `sums`
 * of what does, bit by bit.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 40000 };

static const int counts[] = {1, 100, 1500, 9000, MOST};
static uint64_t exact = 1, sums = 1;
static uint64_t *in, *out;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

static void take(uint64_t *hash, const uint64_t *data, int count)
{
    for (int i = 0; i < count; i++)
        *hash = mix(*hash ^ data[i]);
}

static void numbers(int rank, int round, int count)
{
    for (int i = 0; i < count; i++)
        in[i] = mix((uint64_t)rank << 40 ^ (uint64_t)round << 20 ^ (uint64_t)i);
}

static void moves(MPI_Comm comm, int round, int count)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int root = round % size, each = count / size + 1;
    numbers(rank, round, each * size);
    memset(out, 0, sizeof *out * (size_t)(each * size));
    if (rank == root)
        memcpy(out, in, sizeof *out * (size_t)count);
    MPI_Bcast(out, count, MPI_UINT64_T, root, comm);
    take(&exact, out, count);
    MPI_Allgather(in, each, MPI_UINT64_T, out, each, MPI_UINT64_T, comm);
    take(&exact, out, each * size);
    int lengths[64], places[64], at = 0;
    for (int r = 0; r < size; r++) {
        lengths[r] = (each * (r + 1)) / size;
        places[r] = at;
        at += lengths[r];
    }
    MPI_Allgatherv(in, lengths[rank], MPI_UINT64_T, out, lengths, places, MPI_UINT64_T, comm);
    take(&exact, out, at);
    MPI_Alltoall(in, each, MPI_UINT64_T, out, each, MPI_UINT64_T, comm);
    take(&exact, out, each * size);
    MPI_Gather(in, each, MPI_UINT64_T, out, each, MPI_UINT64_T, root, comm);
    if (rank == root)
        take(&exact, out, each * size);
    MPI_Barrier(comm);
}

static void reductions(MPI_Comm comm, int round, int count)
{
    int rank, size;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    int root = (round + 1) % size, each = count / size + 1;
    numbers(rank, round + 1000, each * size);
    MPI_Allreduce(in, out, count, MPI_UINT64_T, MPI_SUM, comm);
    take(&exact, out, count);
    MPI_Reduce(in, out, count, MPI_UINT64_T, MPI_BXOR, root, comm);
    if (rank == root)
        take(&exact, out, count);
    MPI_Reduce_scatter_block(in, out, each, MPI_UINT64_T, MPI_SUM, comm);
    take(&exact, out, each);
    /* Their sums depend on the order of additions. */
    double *from = (double *)in, *to = (double *)out;
    for (int i = 0; i < each * size; i++)
        from[i] = (double)(in[i] >> 11) / (double)(1 + in[i] % 1009);
    MPI_Allreduce(from, to, count, MPI_DOUBLE, MPI_SUM, comm);
    take(&sums, out, count);
    MPI_Reduce(from, to, count, MPI_DOUBLE, MPI_SUM, root, comm);
    if (rank == root)
        take(&sums, out, count);
    MPI_Reduce_scatter_block(from, to, each, MPI_DOUBLE, MPI_SUM, comm);
    take(&sums, out, each);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, rounds = argc > 1 ? atoi(argv[1]) : 10;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    in = calloc(MOST + 64, sizeof *in);
    out = calloc(MOST + 64, sizeof *out);
    MPI_Comm half;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    for (int round = 0; round < rounds; round++) {
        int count = counts[round % (int)(sizeof counts / sizeof *counts)];
        MPI_Comm twin;
        MPI_Comm_dup(MPI_COMM_WORLD, &twin);
        MPI_Comm all[] = {MPI_COMM_WORLD, half, twin};
        for (int c = 0; c < 3; c++) {
            moves(all[c], round, count);
            reductions(all[c], round, count);
        }
        MPI_Comm_free(&twin);
        if (rank == 0 && round % 10 == 9) {
            printf("round %d\n", round + 1);
            fflush(stdout);
        }
    }
    uint64_t own[2] = {exact, sums}, of_all[2];
    MPI_Allreduce(own, of_all, 2, MPI_UINT64_T, MPI_BXOR, MPI_COMM_WORLD);
    if (rank == 0)
        printf("exact %016llx\nsums %016llx\n", (unsigned long long)of_all[0], (unsigned long long)of_all[1]);
    MPI_Finalize();
    return 0;
}
