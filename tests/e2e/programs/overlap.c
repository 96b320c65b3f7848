/*
 * Collectives that overlap, for runs under kills: MPI_Ibcast, MPI_Iallreduce and MPI_Ialltoallv of several
 * sizes are begun while those of the step before are still under way, with messages in between,
 * and completed in every way. Prints a checksum of each rank.
 *
 * usage: overlap STEPS
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Steps that are under way at once, collectives of a step, the most elements of one. */
enum { DEEP = 2, OF_STEP = 3, MOST = 4096 };

static int rank, size;
static uint64_t sum = 1;

struct step {
    MPI_Request requests[OF_STEP];
    uint64_t told[MOST];
    double operand[MOST], reduced[MOST];
    uint64_t *out, *in;
    int *counts, *places, *counts_in, *places_in, all_in, count;
};

static uint64_t word(uint64_t a, uint64_t b)
{
    uint64_t w = (a + 1) * 0x9e3779b97f4a7c15ull + b * 0xbf58476d1ce4e5b9ull;
    return w ^ (w >> 29);
}

static void mix(uint64_t w)
{
    sum = (sum ^ w) * 1099511628211ull;
}

/* Elements of a step: mostly few, at times many. */
static int elements(int number)
{
    return number % 16 == 5 ? MOST : 1 + number * 7 % 60;
}

/* What rank FROM has for rank TO. */
static int share(int number, int from, int to)
{
    return (from * 3 + to * 5 + number) % 8 * (number % 16 == 9 ? 100 : 1);
}

static void begin_step(struct step *s, int number)
{
    int root = number % size, out = 0, in = 0;
    s->count = elements(number);
    for (int i = 0; i < s->count; i++) {
        s->told[i] = rank == root ? word(sum, (uint64_t)i) : 0;
        s->operand[i] = (double)(word(sum, (uint64_t)i) % 100003) / 7.0;
    }
    for (int r = 0; r < size; r++) {
        s->counts[r] = share(number, rank, r);
        s->counts_in[r] = share(number, r, rank);
        s->places[r] = out;
        s->places_in[r] = in;
        out += s->counts[r];
        in += s->counts_in[r];
    }
    for (int i = 0; i < out; i++)
        s->out[i] = word(sum, (uint64_t)(i + number));
    s->all_in = in;
    MPI_Ibcast(s->told, s->count, MPI_UINT64_T, root, MPI_COMM_WORLD, &s->requests[0]);
    MPI_Iallreduce(s->operand, s->reduced, s->count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD,
                   &s->requests[1]);
    MPI_Ialltoallv(s->out, s->counts, s->places, MPI_UINT64_T, s->in, s->counts_in, s->places_in,
                   MPI_UINT64_T, MPI_COMM_WORLD, &s->requests[2]);
}

static void complete(struct step *s, int number)
{
    int at, done = 0, left = OF_STEP, indices[OF_STEP];
    switch (number % 5) {
    case 0:
        MPI_Waitall(OF_STEP, s->requests, MPI_STATUSES_IGNORE);
        break;
    case 1:
        for (int i = OF_STEP - 1; i >= 0; i--)
            MPI_Wait(&s->requests[i], MPI_STATUS_IGNORE);
        break;
    case 2:
        while (left-- > 0)
            MPI_Waitany(OF_STEP, s->requests, &at, MPI_STATUS_IGNORE);
        break;
    case 3:
        while (!done)
            MPI_Testall(OF_STEP, s->requests, &done, MPI_STATUSES_IGNORE);
        break;
    default:
        for (; left > 0; left -= done)
            MPI_Testsome(OF_STEP, s->requests, &done, indices, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < s->count; i++) {
        mix(s->told[i]);
        mix((uint64_t)(s->reduced[i] * 1024.0));
    }
    for (int i = 0; i < s->all_in; i++)
        mix(s->in[i]);
}

static struct step *room(void)
{
    struct step *s = calloc(1, sizeof *s);
    size_t most = (size_t)size * 8 * 100, ranks = (size_t)size;
    s->out = calloc(most, sizeof *s->out);
    s->in = calloc(most, sizeof *s->in);
    s->counts = calloc(4 * ranks, sizeof *s->counts);
    s->places = s->counts + ranks;
    s->counts_in = s->places + ranks;
    s->places_in = s->counts_in + ranks;
    return s;
}

int main(int argc, char **argv)
{
    int steps = argc > 1 ? atoi(argv[1]) : 100;
    struct step *under_way[DEEP];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < DEEP; i++)
        under_way[i] = room();
    for (int number = 0; number < steps + DEEP - 1; number++) {
        if (number < steps)
            begin_step(under_way[number % DEEP], number);
        uint64_t out = sum, in;
        MPI_Sendrecv(&out, 1, MPI_UINT64_T, next, 1, &in, 1, MPI_UINT64_T, before, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        mix(in);
        if (number >= DEEP - 1)
            complete(under_way[(number + 1) % DEEP], number);
    }
    uint64_t *all = calloc((size_t)size, sizeof *all);
    MPI_Gather(&sum, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < size; r++)
        printf("overlap: rank %d: checksum %016llx\n", r, (unsigned long long)all[r]);
    for (int i = 0; i < DEEP; i++) {
        free(under_way[i]->out);
        free(under_way[i]->in);
        free(under_way[i]->counts);
        free(under_way[i]);
    }
    free(all);
    MPI_Finalize();
    return 0;
}
