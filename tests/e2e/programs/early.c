/*
 * Sends from buffers into which receives are pending. In a run the answer cannot be there before what
 * it answers was sent; in a replay it is in the log from the beginning. Wrong by the letter, right on
 * every MPI. Rank 0 answers each rank with another value; prints a checksum of all that was sent
 * and received.
 *
 * usage: early ROUNDS [FIRST_WAY LAST_WAY]
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SMALL 8
#define LARGE (48 * 1024)
#define WAYS 10
/* Not among the ways: neighbours send each other this much at once, and complete what they receive
   afterwards. */
#define BEYOND 10
#define HUGE ((size_t)1536 * 1024)

static int rank, size;
static uint64_t sum = 1;

static void mix(const uint64_t *words, int n)
{
    for (int i = 0; i < n; i++)
        sum = (sum ^ words[i]) * 1099511628211ull;
}

static void answer(uint64_t *words, int n, uint64_t seed)
{
    for (int i = 0; i < n; i++)
        words[i] = (words[i] + seed + (uint64_t)i) * 0x9e3779b97f4a7c15ull;
}

static void complete(int way, MPI_Request *request)
{
    MPI_Request both[2] = {MPI_REQUEST_NULL, *request};
    MPI_Status status;
    int done = 0, index, indices[2];
    switch (way % 5) {
    case 0:
        MPI_Wait(request, &status);
        break;
    case 1:
        while (!done)
            MPI_Test(request, &done, &status);
        break;
    case 2:
        MPI_Waitany(2, both, &index, &status);
        break;
    case 3:
        while (done <= 0)
            MPI_Testsome(2, both, &done, indices, &status);
        break;
    default:
        while (!done)
            MPI_Request_get_status(*request, &done, &status);
        MPI_Wait(request, MPI_STATUS_IGNORE);
    }
}

/* Every rank but the first: what it sends is what it had before the answer. */
static void ask(int way, int round, uint64_t *a, int n, MPI_Datatype type, MPI_Request *kept)
{
    MPI_Request r = MPI_REQUEST_NULL, more[2];
    uint64_t last = 0, out[SMALL];
    int from = way == 1 || way == 7 ? MPI_ANY_SOURCE : 0;
    switch (way) {
    case 4: /* freed: it is there when something that was sent later is */
        MPI_Irecv(a, 1, type, 0, round, MPI_COMM_WORLD, &r);
        MPI_Request_free(&r);
        MPI_Send(a, 1, type, 0, round, MPI_COMM_WORLD);
        MPI_Recv(&last, 1, MPI_UINT64_T, 0, round + 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        mix(&last, 1);
        return;
    case 5: /* a collective sends from there */
        MPI_Irecv(a, 1, type, 0, round, MPI_COMM_WORLD, &r);
        MPI_Allreduce(a, out, SMALL, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        mix(out, SMALL);
        break;
    case 6: /* a collective receives there */
        MPI_Ibcast(a, 1, type, 0, MPI_COMM_WORLD, &r);
        MPI_Send(a, 1, type, 0, round, MPI_COMM_WORLD);
        break;
    case 8: /* persistent */
        MPI_Start(kept);
        MPI_Send(a, 1, type, 0, round, MPI_COMM_WORLD);
        complete(round, kept);
        mix(a, n);
        return;
    case 9: /* synchronous, and another receive before it in the same buffer */
        MPI_Irecv(a, 1, type, 0, round, MPI_COMM_WORLD, &more[0]);
        MPI_Irecv(a, 1, type, 0, round, MPI_COMM_WORLD, &more[1]);
        MPI_Ssend(a, 1, type, 0, round, MPI_COMM_WORLD);
        MPI_Wait(&more[0], MPI_STATUS_IGNORE);
        mix(a, n);
        MPI_Send(a, 1, type, 0, round, MPI_COMM_WORLD);
        r = more[1];
        break;
    default:
        MPI_Irecv(a, 1, type, from, round, MPI_COMM_WORLD, &r);
        MPI_Send(a, 1, type, 0, round, MPI_COMM_WORLD);
    }
    complete(round, &r);
    mix(a, n);
}

static void reply(int way, int round, uint64_t *a, uint64_t *b, int n, MPI_Datatype type)
{
    uint64_t out[SMALL];
    if (way == 5) {
        MPI_Allreduce(a, out, SMALL, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        mix(out, SMALL);
    }
    if (way == 6) {
        for (int r = 1; r < size; r++) {
            MPI_Recv(b, 1, type, r, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            mix(b, n);
        }
        answer(b, n, (uint64_t)round);
        MPI_Request r;
        MPI_Ibcast(b, 1, type, 0, MPI_COMM_WORLD, &r);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
        return;
    }
    for (int r = 1; r < size; r++) {
        for (int k = 0; k < (way == 9 ? 2 : 1); k++) {
            if (way != 5)
                MPI_Recv(b, 1, type, r, round, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            mix(b, n);
            answer(b, n, (uint64_t)(round * size + r));
            MPI_Send(b, 1, type, r, round, MPI_COMM_WORLD);
        }
        if (way == 4)
            MPI_Send(b, 1, MPI_UINT64_T, r, round + 1, MPI_COMM_WORLD);
    }
}

/* Messages beyond the log pass each other. */
static void pass(int round)
{
    int peer = rank ^ 1;
    if (peer >= size)
        return;
    uint64_t *out = malloc(HUGE * sizeof *out), *in = calloc(HUGE, sizeof *in);
    MPI_Request r;
    for (size_t i = 0; i < HUGE; i++)
        out[i] = (i + (uint64_t)(round * size + rank)) * 0x9e3779b97f4a7c15ull;
    MPI_Irecv(in, (int)HUGE, MPI_UINT64_T, peer, round, MPI_COMM_WORLD, &r);
    MPI_Send(out, (int)HUGE, MPI_UINT64_T, peer, round, MPI_COMM_WORLD);
    mix(in, 1000);
    complete(round, &r);
    mix(in, (int)HUGE);
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    int rounds = argc > 1 ? atoi(argv[1]) : 300;
    int first = argc > 3 ? atoi(argv[2]) : 0, last = argc > 3 ? atoi(argv[3]) : WAYS - 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    uint64_t *a = calloc(2 * LARGE, sizeof *a), *b = calloc(2 * LARGE, sizeof *b), *all = NULL;
    MPI_Datatype small, spread, large;
    MPI_Type_contiguous(SMALL, MPI_UINT64_T, &small);
    MPI_Type_vector(SMALL, 3, 7, MPI_UINT64_T, &spread);
    MPI_Type_contiguous(LARGE, MPI_UINT64_T, &large);
    MPI_Type_commit(&small);
    MPI_Type_commit(&spread);
    MPI_Type_commit(&large);
    MPI_Request kept;
    MPI_Recv_init(a, 1, small, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &kept);
    for (int s = 0; s < rounds; s++) {
        int way = first + s % (last - first + 1);
        if (way == BEYOND) {
            pass(s);
            continue;
        }
        /* One in eight is large: a megabyte would take most of the time. */
        MPI_Datatype type = way == 2 ? spread : way == 3 && s % 8 == 3 ? large : small;
        int n = way == 2 ? 7 * SMALL : way == 3 && s % 8 == 3 ? LARGE : SMALL;
        if (rank == 0)
            reply(way, 2 * s, a, b, n, type);
        else
            ask(way, 2 * s, a, n, type, &kept);
        /* Round a ring: what is sent on must not hang on what has arrived. */
        if (way == 7) {
            int to = (rank + 1) % size;
            MPI_Request r;
            MPI_Irecv(a, SMALL, MPI_UINT64_T, MPI_ANY_SOURCE, 2 * s + 1, MPI_COMM_WORLD, &r);
            MPI_Send(a, SMALL, MPI_UINT64_T, to, 2 * s + 1, MPI_COMM_WORLD);
            complete(s, &r);
            mix(a, SMALL);
        }
    }
    MPI_Request_free(&kept);
    if (rank == 0)
        all = calloc((size_t)size, sizeof *all);
    MPI_Gather(&sum, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < size; r++)
        printf("early: rank %d: checksum %016llx\n", r, (unsigned long long)all[r]);
    MPI_Type_free(&small);
    MPI_Type_free(&spread);
    MPI_Type_free(&large);
    MPI_Finalize();
    return 0;
}
