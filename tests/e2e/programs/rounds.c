/*
 * Threads of each rank that call MPI at the same time, for so many rounds: a ring of each thread,
 * work that goes to whichever thread of another rank takes it first, and reductions on a
 * communicator of each thread. The result depends on none of the orders; all of them are chance.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 3, RING = 10, WORK = 20, LONGEST = 5000 };

static MPI_Comm own[THREADS];
static int rank, size, rounds;
static uint64_t sums[THREADS];
static uint64_t shared;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

static void fail(const char *what, int t, int round)
{
    fprintf(stderr, "rounds: %s: rank %d thread %d round %d\n", what, rank, t, round);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void ring(int t, int round)
{
    static _Thread_local uint64_t out[LONGEST], in[LONGEST];
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    int count = (int)(mix((uint64_t)round * 7 + (uint64_t)t) % (round % 16 ? 200 : LONGEST)) + 1;
    MPI_Request request;
    MPI_Status status;
    for (int i = 0; i < count; i++)
        out[i] = mix((uint64_t)rank << 40 | (uint64_t)t << 32 | (uint64_t)(round + i));
    MPI_Irecv(in, LONGEST, MPI_UINT64_T, left, RING + t, MPI_COMM_WORLD, &request);
    MPI_Send(out, count, MPI_UINT64_T, right, RING + t, MPI_COMM_WORLD);
    if (round % 3)
        MPI_Wait(&request, &status);
    else
        for (int done = 0; !done;)
            MPI_Test(&request, &done, &status);
    for (int i = 0; i < count; i++)
        if (in[i] != mix((uint64_t)left << 40 | (uint64_t)t << 32 | (uint64_t)(round + i)))
            fail("a word is wrong", t, round);
    sums[t] = mix(sums[t] + in[count - 1]);
}

/* One piece of work for each rank, and as many from anybody. */
static void work(int t, int round)
{
    for (int to = 0; to < size; to++) {
        uint64_t piece = mix((uint64_t)(rank * 1000 + t) << 32 | (uint64_t)round) >> 8;
        MPI_Send(&piece, 1, MPI_UINT64_T, to, WORK, MPI_COMM_WORLD);
    }
    for (int n = 0; n < size; n++) {
        uint64_t piece = 0;
        if (round % 2) {
            MPI_Recv(&piece, 1, MPI_UINT64_T, MPI_ANY_SOURCE, WORK, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        } else {
            MPI_Message message;
            MPI_Mprobe(MPI_ANY_SOURCE, WORK, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
            MPI_Mrecv(&piece, 1, MPI_UINT64_T, &message, MPI_STATUS_IGNORE);
        }
        __atomic_fetch_add(&shared, mix(piece), __ATOMIC_RELAXED);
    }
}

static void *run(void *arg)
{
    int t = (int)(intptr_t)arg;
    for (int round = 0; round < rounds; round++) {
        ring(t, round);
        work(t, round);
        if (round % 8 == 7) {
            uint64_t all = 0;
            MPI_Allreduce(&sums[t], &all, 1, MPI_UINT64_T, MPI_SUM, own[t]);
            sums[t] = mix(sums[t] ^ all);
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    int provided = -1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided != MPI_THREAD_MULTIPLE)
        fail("MPI_THREAD_MULTIPLE is not given", 0, provided);
    rounds = argc > 1 ? atoi(argv[1]) : 200;
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &own[t]);
    for (intptr_t t = 1; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, run, (void *)t))
            fail("no thread", (int)t, 0);
    run(NULL);
    for (int t = 1; t < THREADS; t++)
        pthread_join(threads[t], NULL);
    uint64_t own_sum = shared, all = 0;
    for (int t = 0; t < THREADS; t++)
        own_sum += mix(sums[t]);
    MPI_Reduce(&own_sum, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("rounds: checksum %016llx\n", (unsigned long long)all);
    MPI_Finalize();
    return 0;
}
