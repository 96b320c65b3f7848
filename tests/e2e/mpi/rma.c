/*
 * One-sided communication: windows of all kinds but shared ones, fences, groups, locks; puts, gets,
 * accumulations of basic and derived types, atomics; a queue of tickets, a halo by put, counters that
 * all ranks add to while they also exchange messages. With an argument nothing is sent that is not
 * the same in every process (for `eyrie verify`).
 */
#include "check.h"

/* So many that ranks can be killed in the middle. */
enum { ROUNDS = 40, EACH = 6 };

static int next, before;

static int number(int round, int world, int i)
{
    return (world + 1) * 1000 + i * 7 % 997 + round * 13;
}

/* Each puts to the next and gets from the one before, between fences. */
static void fences(void)
{
    int *memory;
    MPI_Win win;
    OK(MPI_Win_allocate(2 * EACH * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory,
                        &win));
    OK(MPI_Win_fence(MPI_MODE_NOPRECEDE, win));
    for (int round = 0; round < ROUNDS; round++) {
        int out[EACH], got[EACH];
        for (int i = 0; i < EACH; i++) {
            out[i] = number(round, rank, i);
            memory[EACH + i] = number(round, rank, i + 50);
        }
        OK(MPI_Win_fence(0, win));
        OK(MPI_Put(out, EACH, MPI_INT, next, 0, EACH, MPI_INT, win));
        OK(MPI_Get(got, EACH, MPI_INT, before, EACH, EACH, MPI_INT, win));
        OK(MPI_Win_fence(0, win));
        for (int i = 0; i < EACH; i++) {
            CHECK(memory[i] == number(round, before, i), "put %d", memory[i]);
            CHECK(got[i] == number(round, before, i + 50), "got %d", got[i]);
        }
    }
    OK(MPI_Win_fence(MPI_MODE_NOSUCCEED, win));
    OK(MPI_Win_free(&win));
}

/* The same by groups; a column of a matrix is put. */
static void groups(void)
{
    enum { ROWS = 5, COLUMNS = 4 };
    static int matrix[ROWS * COLUMNS], mine[ROWS * COLUMNS];
    MPI_Win win;
    MPI_Group world, from, to;
    MPI_Datatype column;
    OK(MPI_Type_vector(ROWS, 1, COLUMNS, MPI_INT, &column));
    OK(MPI_Type_commit(&column));
    OK(MPI_Win_create(matrix, sizeof matrix, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_incl(world, 1, &before, &from));
    OK(MPI_Group_incl(world, 1, &next, &to));
    for (int round = 0; round < ROUNDS; round++) {
        memset(matrix, 0, sizeof matrix);
        for (int i = 0; i < ROWS * COLUMNS; i++)
            mine[i] = number(round, rank, i);
        OK(MPI_Win_post(from, 0, win));
        OK(MPI_Win_start(to, 0, win));
        OK(MPI_Put(mine + 2, 1, column, next, 1, 1, column, win));
        OK(MPI_Accumulate(mine, 1, column, next, 3, 1, column, MPI_SUM, win));
        OK(MPI_Accumulate(mine, 1, column, next, 3, 1, column, MPI_SUM, win));
        OK(MPI_Win_complete(win));
        int done = 0;
        while (round % 2 && !done)
            OK(MPI_Win_test(win, &done));
        if (!done)
            OK(MPI_Win_wait(win));
        for (int r = 0; r < ROWS; r++) {
            CHECK(matrix[r * COLUMNS + 1] == number(round, before, r * COLUMNS + 2), "row %d", r);
            CHECK(matrix[r * COLUMNS + 3] == 2 * number(round, before, r * COLUMNS), "row %d", r);
            CHECK(matrix[r * COLUMNS] == 0, "row %d", r);
        }
    }
    OK(MPI_Group_free(&world));
    OK(MPI_Group_free(&from));
    OK(MPI_Group_free(&to));
    OK(MPI_Type_free(&column));
    OK(MPI_Win_free(&win));
}

/* All take tickets from rank 0 and add to everybody's counters; in between they send messages. */
/* Pairs whose parts do not fill them, several at once and by a derived type. */
static void pairs(void)
{
    struct pair {
        double value;
        int at;
    } own[6], theirs[6];
    MPI_Win win;
    MPI_Datatype every_other;
    OK(MPI_Type_vector(3, 1, 2, MPI_DOUBLE_INT, &every_other));
    OK(MPI_Type_commit(&every_other));
    for (int i = 0; i < 6; i++) {
        theirs[i] = (struct pair){i % 3, -1};
        own[i] = (struct pair){rank + i, rank};
    }
    OK(MPI_Win_create(theirs, sizeof theirs, sizeof *theirs, MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    OK(MPI_Win_fence(0, win));
    OK(MPI_Accumulate(own, 3, MPI_DOUBLE_INT, next, 0, 3, MPI_DOUBLE_INT, MPI_MAXLOC, win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < 6; i++) {
        double value = i < 3 ? before + i : i % 3;
        int at = i < 3 && before > 0 ? before : -1;
        /* Of equal values the lower index. */
        CHECK(theirs[i].value == value && theirs[i].at == at, "%d: %g at %d", i, theirs[i].value,
              theirs[i].at);
    }
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < 6; i++)
        theirs[i] = (struct pair){1, 7};
    OK(MPI_Win_fence(0, win));
    OK(MPI_Accumulate(own, 1, every_other, next, 0, 1, every_other, MPI_MINLOC, win));
    OK(MPI_Win_fence(0, win));
    for (int i = 0; i < 6; i++) {
        int less = i % 2 == 0 && before + i <= 1;
        CHECK(theirs[i].value == (less ? before + i : 1) && theirs[i].at == (less ? before : 7),
              "%d: %g at %d", i, theirs[i].value, theirs[i].at);
    }
    OK(MPI_Type_free(&every_other));
    OK(MPI_Win_free(&win));
}

static void atomics(void)
{
    static long tickets[2];
    double *sums;
    MPI_Win queue, counters;
    tickets[0] = tickets[1] = 0;
    OK(MPI_Win_create(tickets, sizeof tickets, sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &queue));
    OK(MPI_Win_allocate(2 * sizeof(double), sizeof(double), MPI_INFO_NULL, MPI_COMM_WORLD, &sums,
                        &counters));
    sums[0] = sums[1] = 0;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Win_lock_all(0, counters));
    long mine = 0, last = -1, one = 1;
    for (int round = 0; round < ROUNDS; round++) {
        long ticket;
        OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, queue));
        OK(MPI_Fetch_and_op(&one, &ticket, MPI_LONG, 0, 0, MPI_SUM, queue));
        OK(MPI_Win_unlock(0, queue));
        CHECK(ticket > last && ticket < (long)ranks * ROUNDS, "ticket %ld after %ld", ticket, last);
        last = ticket;
        mine += ticket;
        double amount = rank + 1;
        for (int r = 0; r < ranks; r++)
            OK(MPI_Accumulate(&amount, 1, MPI_DOUBLE, r, 0, 1, MPI_DOUBLE, MPI_SUM, counters));
        if (round % 3 == 0)
            OK(MPI_Win_flush_all(counters));
        int got, out = number(round, rank, 0);
        OK(MPI_Sendrecv(&out, 1, MPI_INT, next, 1, &got, 1, MPI_INT, before, 1, MPI_COMM_WORLD,
                        MPI_STATUS_IGNORE));
        CHECK(got == number(round, before, 0), "%d", got);
        /* A lock by compare and swap, and by the window's own. */
        long free_ = 0, own = rank + 1, was = -1;
        do {
            OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, queue));
            OK(MPI_Compare_and_swap(&own, &free_, &was, MPI_LONG, 0, 1, queue));
            OK(MPI_Win_unlock(0, queue));
        } while (was != 0);
        OK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, queue));
        long held;
        OK(MPI_Get(&held, 1, MPI_LONG, 0, 1, 1, MPI_LONG, queue));
        OK(MPI_Win_flush(0, queue));
        CHECK(held == own, "%ld has it", held);
        OK(MPI_Put(&free_, 1, MPI_LONG, 0, 1, 1, MPI_LONG, queue));
        OK(MPI_Win_unlock(0, queue));
    }
    OK(MPI_Win_unlock_all(counters));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    long all, n = (long)ranks * ROUNDS;
    OK(MPI_Allreduce(&mine, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(all == n * (n - 1) / 2, "each ticket once: %ld of %ld", all, n * (n - 1) / 2);
    CHECK(sums[0] == ROUNDS * (double)ranks * (ranks + 1) / 2, "%f", sums[0]);
    OK(MPI_Win_free(&queue));
    OK(MPI_Win_free(&counters));
}

/* Requests, a dynamic window, large data, what a fetch finds. */
static void others(void)
{
    enum { MANY = 100000 };
    static int big[MANY], got[MANY];
    MPI_Win win;
    MPI_Request requests[3];
    MPI_Aint address, there;
    OK(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win));
    /* In two pieces that lie side by side: an operation may concern both. */
    OK(MPI_Win_attach(win, big, sizeof big / 2));
    OK(MPI_Win_attach(win, big + MANY / 2, sizeof big / 2));
    OK(MPI_Get_address(big, &address));
    OK(MPI_Sendrecv(&address, 1, MPI_AINT, before, 2, &there, 1, MPI_AINT, next, 2, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < MANY; i++)
            got[i] = number(round, rank, i);
        OK(MPI_Win_lock(MPI_LOCK_SHARED, next, 0, win));
        OK(MPI_Rput(got, MANY, MPI_INT, next, there, MANY, MPI_INT, win, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        OK(MPI_Win_flush(next, win));
        memset(got, 0, sizeof got);
        int was[2] = {-1, -1}, one = 5;
        OK(MPI_Rget(got, MANY, MPI_INT, next, there, MANY, MPI_INT, win, &requests[0]));
        OK(MPI_Rget_accumulate(&one, 1, MPI_INT, &was[0], 1, MPI_INT, next, there, 1, MPI_INT,
                               MPI_SUM, win, &requests[1]));
        OK(MPI_Rget_accumulate(NULL, 0, MPI_INT, &was[1], 1, MPI_INT, next, there, 1, MPI_INT,
                               MPI_NO_OP, win, &requests[2]));
        OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
        OK(MPI_Win_unlock(next, win));
        for (int i = 0; i < MANY; i += 997)
            CHECK(got[i] == number(round, rank, i), "%d: %d", i, got[i]);
        CHECK(was[0] == number(round, rank, 0) && was[1] == was[0] + 5, "%d %d", was[0], was[1]);
        OK(MPI_Barrier(MPI_COMM_WORLD));
        CHECK(big[1] == number(round, before, 1) && big[0] == number(round, before, 0) + 5, "%d",
              big[0]);
        OK(MPI_Barrier(MPI_COMM_WORLD));
    }
    OK(MPI_Win_detach(win, big));
    OK(MPI_Win_detach(win, big + MANY / 2));
    OK(MPI_Win_free(&win));
}

static void objects(void)
{
    int *memory, *flavor, *model, *unit, flag, kind, length;
    MPI_Aint *size;
    void *base;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Win win;
    MPI_Errhandler handler;
    OK(MPI_Win_allocate(64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win));
    OK(MPI_Win_get_attr(win, MPI_WIN_BASE, &base, &flag));
    CHECK(flag && base == memory, "%p", base);
    OK(MPI_Win_get_attr(win, MPI_WIN_SIZE, &size, &flag));
    CHECK(flag && *size == 64, "%ld", (long)*size);
    OK(MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag));
    CHECK(flag && *unit == 4, "%d", *unit);
    OK(MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag));
    CHECK(flag && *flavor == MPI_WIN_FLAVOR_ALLOCATE, "%d", *flavor);
    OK(MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag));
    CHECK(flag && *model == MPI_WIN_UNIFIED, "%d", *model);
    OK(MPI_Win_set_name(win, "halo"));
    OK(MPI_Win_get_name(win, name, &length));
    CHECK(!strcmp(name, "halo") && length == 4, "%s", name);
    OK(MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &kind, NULL));
    OK(MPI_Win_set_attr(win, kind, memory));
    OK(MPI_Win_get_attr(win, kind, &base, &flag));
    CHECK(flag && base == memory, "%p", base);
    OK(MPI_Win_free_keyval(&kind));
    OK(MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN));
    OK(MPI_Win_get_errhandler(win, &handler));
    CHECK(handler == MPI_ERRORS_RETURN, "a handler");
    int lowest = rank == 0 ? 64 : 0, its_unit;
    MPI_Aint bytes;
    OK(MPI_Win_shared_query(win, rank, &bytes, &its_unit, &base));
    CHECK(bytes == 64 && its_unit == 4 && base == memory, "its own: %ld", (long)bytes);
    OK(MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &its_unit, &base));
    CHECK(bytes == lowest && base == (rank == 0 ? memory : NULL), "the lowest: %ld", (long)bytes);
    CHECK(class_of(MPI_Win_shared_query(win, ranks, &bytes, &its_unit, &base)) == MPI_ERR_RANK,
          "nobody's");
    if (ranks > 1) {
        OK(MPI_Win_shared_query(win, next, &bytes, &its_unit, &base));
        CHECK(bytes == 0 && base == NULL, "not to be reached: %ld", (long)bytes);
    }
    int one = 1;
    CHECK(class_of(MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, win)) == MPI_ERR_RMA_SYNC, "no epoch");
    CHECK(class_of(MPI_Win_unlock(0, win)) == MPI_ERR_RMA_SYNC, "no lock");
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    CHECK(class_of(MPI_Put(&one, 1, MPI_INT, 0, 16, 1, MPI_INT, win)) == MPI_ERR_RMA_RANGE, "beyond");
    CHECK(class_of(MPI_Put(&one, 1, MPI_INT, ranks, 0, 1, MPI_INT, win)) == MPI_ERR_RANK, "nobody");
    OK(MPI_Put(&one, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win));
    float new = 1, old = 0, was;
    CHECK(class_of(MPI_Compare_and_swap(&new, &old, &was, MPI_FLOAT, 0, 0, win)) == MPI_ERR_TYPE,
          "numbers with a point are not compared");
    /* No bytes: nothing is combined, whether type and operation fit or not. */
    OK(MPI_Accumulate(&one, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, MPI_SUM, win));
    OK(MPI_Get_accumulate(&one, 0, MPI_BYTE, &flag, 0, MPI_BYTE, 0, 0, 0, MPI_BYTE, MPI_SUM, win));
    CHECK(class_of(MPI_Accumulate(&one, 1, MPI_BYTE, 0, 0, 1, MPI_BYTE, MPI_SUM, win)) == MPI_ERR_OP,
          "bytes are not added");
    CHECK(class_of(MPI_Win_free(&win)) == MPI_ERR_RMA_SYNC && win != MPI_WIN_NULL, "a lock is held");
    OK(MPI_Win_unlock(0, win));
    /* A lock ends what a fence allows. */
    OK(MPI_Win_fence(0, win));
    OK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win));
    OK(MPI_Win_unlock(0, win));
    CHECK(class_of(MPI_Put(&one, 1, MPI_INT, 0, 0, 1, MPI_INT, win)) == MPI_ERR_RMA_SYNC, "over");
    MPI_Group all;
    OK(MPI_Win_get_group(win, &all));
    OK(MPI_Win_post(all, 0, win));
    CHECK(class_of(MPI_Win_free(&win)) == MPI_ERR_RMA_SYNC, "others may access it");
    OK(MPI_Win_start(all, 0, win));
    CHECK(class_of(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win)) == MPI_ERR_RMA_SYNC, "it accesses others");
    OK(MPI_Win_complete(win));
    OK(MPI_Win_wait(win));
    OK(MPI_Group_free(&all));
    OK(MPI_Win_free(&win));
    CHECK(win == MPI_WIN_NULL, "it is gone");
    MPI_Errhandler before_it;
    OK(MPI_Comm_get_errhandler(MPI_COMM_SELF, &before_it));
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    CHECK(class_of(MPI_Win_call_errhandler(win, MPI_ERR_OTHER)) == MPI_ERR_WIN, "no window");
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, before_it));
    OK(MPI_Errhandler_free(&before_it));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    next = (rank + 1) % ranks;
    before = (rank + ranks - 1) % ranks;
    objects();
    fences();
    groups();
    atomics();
    pairs();
    /* What it sends are addresses, which are others in each process. */
    if (argc < 2)
        others();
    return finish("rma");
}
