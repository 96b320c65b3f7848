/*
 * Large messages round a ring, in every way they can be sent and received; the sender writes to its
 * buffer again as soon as it may, and the receiver checks every word. Prints a checksum of all.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST (600 * 1000)

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return *state >> 33;
}

static void fill(uint64_t *words, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        words[i] = (seed + (uint64_t)i) * 0x9e3779b97f4a7c15ull;
}

static uint64_t check(const uint64_t *words, int n, uint64_t seed)
{
    uint64_t sum = 0;
    for (int i = 0; i < n; i++) {
        if (words[i] != (seed + (uint64_t)i) * 0x9e3779b97f4a7c15ull) {
            fprintf(stderr, "bulk: word %d of %d is wrong\n", i, n);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        sum = (sum ^ words[i]) * 1099511628211ull;
    }
    return sum;
}

int main(int argc, char **argv)
{
    int rank, size, steps = argc > 1 ? atoi(argv[1]) : 100;
    uint64_t all = 0, state = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    uint64_t *out = malloc(MOST * sizeof *out), *in = malloc(MOST * sizeof *in);
    int to = (rank + 1) % size, from = (rank + size - 1) % size;
    MPI_Datatype pair;
    MPI_Type_vector(MOST / 2 / 100, 50, 100, MPI_UINT64_T, &pair);
    MPI_Type_commit(&pair);
    for (int s = 0; s < steps; s++) {
        /* The same on all ranks: sizes from just below to far above the one where it matters. */
        int n = 10000 + (int)(next(&state) % (MOST - 10000)), way = (int)(next(&state) % 5);
        uint64_t mine = (uint64_t)(s * size + rank) << 20;
        uint64_t theirs = (uint64_t)(s * size + from) << 20;
        MPI_Request r[2];
        MPI_Status status;
        int got;
        fill(out, n, mine);
        switch (way) {
        case 0: /* blocking, one after the other */
            if (rank % 2 == 0)
                MPI_Send(out, n, MPI_UINT64_T, to, s, MPI_COMM_WORLD);
            else
                MPI_Recv(in, MOST, MPI_UINT64_T, from, s, MPI_COMM_WORLD, &status);
            fill(rank % 2 == 0 ? out : out + n, rank % 2 == 0 ? n : 0, ~mine);
            if (rank % 2 == 0) {
                MPI_Recv(in, MOST, MPI_UINT64_T, from, s, MPI_COMM_WORLD, &status);
            } else {
                MPI_Send(out, n, MPI_UINT64_T, to, s, MPI_COMM_WORLD);
                fill(out, n, ~mine);
            }
            break;
        case 1: /* posted before it comes, from anybody */
            MPI_Irecv(in, MOST, MPI_UINT64_T, MPI_ANY_SOURCE, s, MPI_COMM_WORLD, &r[0]);
            MPI_Isend(out, n, MPI_UINT64_T, to, s, MPI_COMM_WORLD, &r[1]);
            MPI_Wait(&r[1], MPI_STATUS_IGNORE);
            fill(out, n, ~mine);
            MPI_Wait(&r[0], &status);
            break;
        case 2: /* there before it is asked for */
            MPI_Isend(out, n, MPI_UINT64_T, to, s, MPI_COMM_WORLD, &r[1]);
            MPI_Probe(from, s, MPI_COMM_WORLD, &status);
            MPI_Recv(in, MOST, MPI_UINT64_T, from, s, MPI_COMM_WORLD, &status);
            MPI_Wait(&r[1], MPI_STATUS_IGNORE);
            fill(out, n, ~mine);
            break;
        case 3: /* in one call */
            MPI_Sendrecv(out, n, MPI_UINT64_T, to, s, in, MOST, MPI_UINT64_T, from, s,
                         MPI_COMM_WORLD, &status);
            fill(out, n, ~mine);
            break;
        default: /* gaps on the sender's side */
            fill(out, MOST, mine);
            MPI_Irecv(in, MOST, MPI_UINT64_T, from, s, MPI_COMM_WORLD, &r[0]);
            MPI_Ssend(out, 1, pair, to, s, MPI_COMM_WORLD);
            fill(out, MOST, ~mine);
            MPI_Wait(&r[0], &status);
        }
        MPI_Get_count(&status, MPI_UINT64_T, &got);
        if (way == 4) {
            if (got != MOST / 4)
                MPI_Abort(MPI_COMM_WORLD, 4);
            for (int block = 0; block < got / 50; block++)
                all += check(in + 50 * block, 50, theirs + 100 * (uint64_t)block);
        } else {
            if (got != n)
                MPI_Abort(MPI_COMM_WORLD, 5);
            all += check(in, n, theirs);
        }
    }
    MPI_Reduce(rank ? &all : MPI_IN_PLACE, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("bulk: checksum %016llx\n", (unsigned long long)all);
    MPI_Type_free(&pair);
    MPI_Finalize();
    return 0;
}
