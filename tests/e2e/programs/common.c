/*
 * Windows in memory that the ranks of a node share (MPI_Win_allocate_shared): stores that others load,
 * a field that lives there from round to round, atomics of MPI and of the language on the same counter,
 * puts and gets beside them. The ranks of a communicator of shared memory work together; all ranks
 * exchange messages in between. Prints a checksum that does not depend on who did what.
 *
 * usage: common ROUNDS
 *        common ROUNDS FILE  ranks only exchange messages until there is such a file
 *        common refused     the call must fail, with the class MPI_ERR_RMA_SHARED
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WIDE = 2000 };

static int rank, size, me, mates;
static MPI_Comm near;

#define MUST(condition)                                                              \
    do {                                                                             \
        if (!(condition)) {                                                          \
            fprintf(stderr, "common: rank %d: line %d: %s\n", rank, __LINE__, #condition); \
            MPI_Abort(MPI_COMM_WORLD, 3);                                            \
        }                                                                            \
    } while (0)

static uint64_t spread(uint64_t word)
{
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9ull;
    return word ^ (word >> 27);
}

static void *part_of(MPI_Win win, int of, MPI_Aint *bytes)
{
    void *base;
    int unit;
    MUST(MPI_Win_shared_query(win, of, bytes, &unit, &base) == MPI_SUCCESS && unit == 8);
    return base;
}

/* Parts lie one after the other, or each in pages of its own; some have none. */
static void layouts(void)
{
    MPI_Info apart;
    MPI_Info_create(&apart);
    MPI_Info_set(apart, "alloc_shared_noncontig", "true");
    for (int way = 0; way < 2; way++) {
        MPI_Win win;
        char *own, *at, *before = NULL;
        MPI_Aint bytes, mine = me == 1 ? 0 : (me + 1) * 24, bytes_before = 0;
        MUST(!MPI_Win_allocate_shared(mine, 8, way ? apart : MPI_INFO_NULL, near, &own, &win));
        for (int r = 0; r < mates; r++) {
            at = part_of(win, r, &bytes);
            MUST(bytes == (r == 1 ? 0 : (r + 1) * 24));
            MUST(way || !before || at == before + bytes_before);
            MUST(r != me || at == own);
            before = at;
            bytes_before = bytes;
        }
        at = part_of(win, MPI_PROC_NULL, &bytes);
        MUST(at == part_of(win, 0, &bytes_before) && bytes == 24);
        for (int i = 0; i < mine; i++)
            MUST(own[i] == 0);
        MPI_Barrier(near);
        memset(own, 'a' + me, (size_t)mine);
        MPI_Win_fence(0, win);
        for (int r = 0; r < mates; r++) {
            at = part_of(win, r, &bytes);
            for (int i = 0; i < bytes; i++)
                MUST(at[i] == 'a' + r);
        }
        MPI_Win_fence(0, win);
        MPI_Win_free(&win);
    }
    MPI_Info_free(&apart);
}

/* A round: the field is made anew from one's own and the next one's; everybody counts. */
static void turn(int round, uint64_t *own, const uint64_t *next, uint64_t *counter, double *sum,
                 MPI_Win field, MPI_Win counts)
{
    int to = (me + 1) % mates;
    uint64_t got, had, one = 1, mine = spread((uint64_t)(round * size + rank));
    double amount = rank + 1;
    MPI_Aint now = round % 2 * WIDE, then = (round + 1) % 2 * WIDE;
    for (int i = 0; i < WIDE; i++)
        own[then + i] = spread(own[now + i] + 3 * next[now + WIDE - 1 - i]);
    __atomic_fetch_add(counter, 1, __ATOMIC_SEQ_CST);
    MPI_Fetch_and_op(&one, &had, MPI_UINT64_T, 0, 0, MPI_SUM, counts);
    MPI_Accumulate(&amount, 1, MPI_DOUBLE, 0, 1, 1, MPI_DOUBLE, MPI_SUM, counts);
    MPI_Win_flush(0, counts);
    MUST(had < 2 * (uint64_t)mates * (uint64_t)(round + 1));
    MPI_Win_sync(field);
    MPI_Barrier(near);
    MPI_Win_sync(field);
    MUST(*counter == 2 * (uint64_t)mates * (uint64_t)(round + 1));
    MUST(*sum > 0);
    /* The last place of the next one's part is for this rank's number. */
    MPI_Put(&mine, 1, MPI_UINT64_T, to, 2 * WIDE, 1, MPI_UINT64_T, field);
    MPI_Win_flush(to, field);
    MPI_Get(&got, 1, MPI_UINT64_T, to, 2 * WIDE, 1, MPI_UINT64_T, field);
    MPI_Win_flush(to, field);
    MUST(got == mine);
    MPI_Barrier(near);
}

static void work(int rounds)
{
    uint64_t *own, *counter, all = 0, seen = 0;
    double *sum;
    MPI_Aint bytes;
    MPI_Win field, counts;
    MUST(!MPI_Win_allocate_shared((2 * WIDE + 1) * 8, 8, MPI_INFO_NULL, near, &own, &field));
    MUST(!MPI_Win_allocate_shared(me ? 0 : 16, 8, MPI_INFO_NULL, near, &counter, &counts));
    uint64_t *next = part_of(field, (me + 1) % mates, &bytes);
    counter = part_of(counts, 0, &bytes);
    sum = (double *)(counter + 1);
    for (int i = 0; i < WIDE; i++)
        own[i] = spread((uint64_t)(rank * WIDE + i));
    MPI_Win_lock_all(0, field);
    MPI_Win_lock_all(0, counts);
    MPI_Barrier(near);
    for (int round = 0; round < rounds; round++) {
        turn(round, own, next, counter, sum, field, counts);
        uint64_t out = own[(round + 1) % 2 * WIDE + 7], in;
        MPI_Sendrecv(&out, 1, MPI_UINT64_T, (rank + 1) % size, 1, &in, 1, MPI_UINT64_T,
                     (rank + size - 1) % size, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        seen = spread(seen + in);
    }
    MPI_Win_unlock_all(field);
    MPI_Win_unlock_all(counts);
    for (int i = 0; i < 2 * WIDE + 1; i++)
        seen = spread(seen + own[i]);
    if (me == 0)
        seen += *counter + (uint64_t)*sum;
    MPI_Reduce(&seen, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Win_free(&field);
    MPI_Win_free(&counts);
    if (rank == 0)
        printf("common: %d rounds, checksum %016llx\n", rounds, (unsigned long long)all);
    fflush(stdout);
}

/* Messages that the first rank takes from whoever sends, until there is this file. */
static void before(const char *file)
{
    for (int over = 0; !over;) {
        uint64_t word = (uint64_t)rank, sum = 0;
        if (rank) {
            MPI_Send(&word, 1, MPI_UINT64_T, 0, 2, MPI_COMM_WORLD);
        } else {
            for (int i = 1; i < size; i++, sum += word)
                MPI_Recv(&word, 1, MPI_UINT64_T, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MUST(sum == (uint64_t)(size * (size - 1) / 2));
            over = !access(file, F_OK);
            usleep(1000);
        }
        MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
}

static void refused(void)
{
    MPI_Win win;
    void *base;
    int code, class;
    MPI_Comm_set_errhandler(near, MPI_ERRORS_RETURN);
    code = MPI_Win_allocate_shared(64, 8, MPI_INFO_NULL, near, &base, &win);
    MPI_Error_class(code, &class);
    MUST(class == MPI_ERR_RMA_SHARED);
    if (rank == 0)
        printf("common: refused\n");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near);
    MPI_Comm_rank(near, &me);
    MPI_Comm_size(near, &mates);
    if (argc > 1 && !strcmp(argv[1], "refused")) {
        refused();
    } else {
        if (argc > 2)
            before(argv[2]);
        layouts();
        work(argc > 1 ? atoi(argv[1]) : 100);
    }
    MPI_Comm_free(&near);
    MPI_Finalize();
    return 0;
}
