/*
 * Collectives that are begun in one call and completed in another: non-blocking and persistent
 * ones, completed in any order and by any call, beside messages and blocking collectives of the
 * same communicator; those between neighbours; MPI_Isendrecv. On communicators of each size.
 */
#include "check.h"

/* So many that ranks can be killed in the middle. */
enum { ROUNDS = 60, MANY = 12 };

static MPI_Comm comm;
static int me, size;

/* The number that rank r contributes at place i of a round. */
static int number(int round, int r, int i)
{
    return (r + 1) * 1000 + i * 7 % 997 + round * 13;
}

static int sum_at(int round, int upto, int i)
{
    int sum = 0;
    for (int r = 0; r < upto; r++)
        sum += number(round, r, i);
    return sum;
}

static int *numbers(int round, int r, int count)
{
    int *data = malloc(((size_t)count + 1) * sizeof *data);
    for (int i = 0; i < count; i++)
        data[i] = number(round, r, i);
    return data;
}

static int *blank(int count)
{
    int *data = malloc(((size_t)count + 1) * sizeof *data);
    memset(data, 0xee, ((size_t)count + 1) * sizeof *data);
    return data;
}

/* Completes them by a call that depends on the round. */
static void complete(int round, int n, MPI_Request *requests)
{
    int left = n, at, done;
    int *indices = malloc((size_t)n * sizeof *indices);
    switch (round % 5) {
    case 0:
        OK(MPI_Waitall(n, requests, MPI_STATUSES_IGNORE));
        break;
    case 1:
        for (int i = n - 1; i >= 0; i--)
            OK(MPI_Wait(&requests[i], MPI_STATUS_IGNORE));
        break;
    case 2:
        while (left-- > 0)
            OK(MPI_Waitany(n, requests, &at, MPI_STATUS_IGNORE));
        break;
    case 3:
        do
            OK(MPI_Testall(n, requests, &done, MPI_STATUSES_IGNORE));
        while (!done);
        break;
    default:
        while (left > 0) {
            OK(MPI_Testsome(n, requests, &done, indices, MPI_STATUSES_IGNORE));
            left -= done;
        }
    }
    for (int i = 0; i < n; i++)
        CHECK(requests[i] == MPI_REQUEST_NULL, "request %d is there after it was completed", i);
    free(indices);
}

static void moved(int round, int count)
{
    int root = round % size, all = count * size;
    int *mine = numbers(round, me, count);
    int *told = me == root ? numbers(round, root, count) : blank(count);
    int *gathered = blank(all), *everywhere = blank(all), *part = blank(count);
    int *out = blank(all), *inn = blank(all), *over = blank(all), *varied = blank(all);
    int *counts = malloc((size_t)size * sizeof *counts);
    int *places = malloc((size_t)size * sizeof *places);
    for (int r = 0; r < size; r++) {
        counts[r] = count;
        places[r] = (size - 1 - r) * count;
        for (int i = 0; i < count; i++)
            out[r * count + i] = over[r * count + i] = number(round, me * 31 + r, i);
    }
    MPI_Request requests[8];
    OK(MPI_Ibcast(told, count, MPI_INT, root, comm, &requests[0]));
    OK(MPI_Igather(mine, count, MPI_INT, gathered, count, MPI_INT, root, comm, &requests[1]));
    OK(MPI_Iscatter(out, count, MPI_INT, part, count, MPI_INT, root, comm, &requests[2]));
    OK(MPI_Iallgather(mine, count, MPI_INT, everywhere, count, MPI_INT, comm, &requests[3]));
    OK(MPI_Ialltoall(out, count, MPI_INT, inn, count, MPI_INT, comm, &requests[4]));
    OK(MPI_Ialltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, over, count, MPI_INT, comm, &requests[5]));
    OK(MPI_Iallgatherv(mine, count, MPI_INT, varied, counts, places, MPI_INT, comm, &requests[6]));
    OK(MPI_Ibarrier(comm, &requests[7]));
    /* What is blocking in between takes nothing of theirs. */
    int one = me + round, sum = 0;
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == size * (size - 1) / 2 + size * round, "blocking in between: %d", sum);
    complete(round, 8, requests);
    for (int i = 0; i < count; i++) {
        CHECK(told[i] == number(round, root, i), "ibcast at %d", i);
        CHECK(part[i] == number(round, root * 31 + me, i), "iscatter at %d", i);
        for (int r = 0; r < size; r++) {
            int at = r * count + i;
            CHECK(everywhere[at] == number(round, r, i), "iallgather of %d", r);
            CHECK(varied[(size - 1 - r) * count + i] == number(round, r, i), "iallgatherv %d", r);
            CHECK(inn[at] == number(round, r * 31 + me, i), "ialltoall of %d", r);
            CHECK(over[at] == number(round, r * 31 + me, i), "ialltoall in place of %d", r);
            if (me == root)
                CHECK(gathered[at] == number(round, r, i), "igather of %d", r);
        }
    }
    int *buffers[] = {mine, told, gathered, everywhere, part, out, inn, over, varied, counts, places};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
}

/* x -> a x + b, one after the other: does not commute. */
static void chain(void *left, void *right, int *n, MPI_Datatype *type)
{
    (void)type;
    unsigned *l = left, *r = right;
    for (int i = 0; i < *n; i++, l += 2, r += 2) {
        unsigned a = l[0] * r[0], b = l[0] * r[1] + l[1];
        r[0] = a;
        r[1] = b;
    }
}

static void reduced(int round, int count)
{
    int root = (round + 1) % size, all = count * size;
    int *mine = numbers(round, me, all), *at_root = blank(all), *everywhere = blank(all);
    int *upto = blank(all), *below = blank(all), *share = blank(count), *placed = numbers(round, me, all);
    int *counts = malloc((size_t)size * sizeof *counts);
    for (int r = 0; r < size; r++)
        counts[r] = count;
    unsigned map[2] = {(unsigned)me * 2 + 3, (unsigned)me + 1}, total[2], first[2], other[2];
    MPI_Op op;
    MPI_Datatype pair;
    OK(MPI_Op_create(chain, 0, &op));
    OK(MPI_Type_contiguous(2, MPI_UNSIGNED, &pair));
    OK(MPI_Type_commit(&pair));
    MPI_Request requests[8];
    OK(MPI_Ireduce(mine, at_root, all, MPI_INT, MPI_SUM, root, comm, &requests[0]));
    OK(MPI_Iallreduce(mine, everywhere, all, MPI_INT, MPI_SUM, comm, &requests[1]));
    OK(MPI_Iscan(mine, upto, all, MPI_INT, MPI_SUM, comm, &requests[2]));
    OK(MPI_Iexscan(mine, below, all, MPI_INT, MPI_SUM, comm, &requests[3]));
    OK(MPI_Ireduce_scatter(mine, share, counts, MPI_INT, MPI_SUM, comm, &requests[4]));
    OK(MPI_Ireduce_scatter_block(MPI_IN_PLACE, placed, count, MPI_INT, MPI_SUM, comm, &requests[5]));
    OK(MPI_Iallreduce(map, total, 1, pair, op, comm, &requests[6]));
    OK(MPI_Iscan(map, first, 1, pair, op, comm, &requests[7]));
    complete(round, 8, requests);
    for (int i = 0; i < all; i++) {
        CHECK(everywhere[i] == sum_at(round, size, i), "iallreduce at %d", i);
        CHECK(upto[i] == sum_at(round, me + 1, i), "iscan at %d", i);
        if (me > 0)
            CHECK(below[i] == sum_at(round, me, i), "iexscan at %d", i);
        if (me == root)
            CHECK(at_root[i] == sum_at(round, size, i), "ireduce at %d", i);
    }
    for (int i = 0; i < count; i++) {
        CHECK(share[i] == sum_at(round, size, me * count + i), "ireduce_scatter at %d", i);
        CHECK(placed[i] == sum_at(round, size, me * count + i), "ireduce_scatter_block at %d", i);
    }
    OK(MPI_Allreduce(map, other, 1, pair, op, comm));
    CHECK(memcmp(total, other, sizeof total) == 0, "an operation that does not commute");
    OK(MPI_Scan(map, other, 1, pair, op, comm));
    CHECK(memcmp(first, other, sizeof first) == 0, "iscan that does not commute");
    OK(MPI_Type_free(&pair));
    OK(MPI_Op_free(&op));
    int *buffers[] = {mine, at_root, everywhere, upto, below, share, placed, counts};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++)
        free(buffers[i]);
}

/* Many of one kind at once, beside messages with the same tags. */
static void many(int round)
{
    int out[MANY], inn[MANY], sent = me + round, got = -1;
    MPI_Request requests[MANY + 2];
    for (int k = 0; k < MANY; k++) {
        out[k] = number(round, me, k);
        if (k == MANY / 2) {
            OK(MPI_Irecv(&got, 1, MPI_INT, (me + size - 1) % size, k, comm, &requests[MANY]));
            OK(MPI_Isend(&sent, 1, MPI_INT, (me + 1) % size, k, comm, &requests[MANY + 1]));
        }
        OK(MPI_Iallreduce(&out[k], &inn[k], 1, MPI_INT, MPI_SUM, comm, &requests[k]));
    }
    complete(round, MANY + 2, requests);
    for (int k = 0; k < MANY; k++)
        CHECK(inn[k] == sum_at(round, size, k), "number %d of many", k);
    CHECK(got == (me + size - 1) % size + round, "a message beside them: %d", got);
}

static void persistent(void)
{
    int own[2] = {0, 0}, sum[2], everywhere[64], told = 0;
    MPI_Request requests[4];
    OK(MPI_Allreduce_init(own, sum, 2, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &requests[0]));
    OK(MPI_Allgather_init(own, 1, MPI_INT, everywhere, 1, MPI_INT, comm, MPI_INFO_NULL, &requests[1]));
    OK(MPI_Bcast_init(&told, 1, MPI_INT, size - 1, comm, MPI_INFO_NULL, &requests[2]));
    OK(MPI_Barrier_init(comm, MPI_INFO_NULL, &requests[3]));
    for (int round = 0; round < ROUNDS; round++) {
        own[0] = number(round, me, 0);
        own[1] = number(round, me, 1);
        told = me == size - 1 ? round : -1;
        OK(MPI_Startall(4, requests));
        OK(MPI_Waitall(4, requests, MPI_STATUSES_IGNORE));
        CHECK(told == round, "bcast_init: %d", told);
        for (int i = 0; i < 2; i++)
            CHECK(sum[i] == sum_at(round, size, i), "allreduce_init in round %d", round);
        for (int r = 0; r < size; r++)
            CHECK(everywhere[r] == number(round, r, 0), "allgather_init of %d", r);
    }
    for (int i = 0; i < 4; i++)
        OK(MPI_Request_free(&requests[i]));
}

static void both_ways(int round)
{
    int to = (me + 1) % size, from = (me + size - 1) % size;
    int out = number(round, me, 1), inn = -1, both = number(round, me, 2), none = 5;
    MPI_Request requests[3];
    OK(MPI_Isendrecv(&out, 1, MPI_INT, to, 3, &inn, 1, MPI_INT, from, 3, comm, &requests[0]));
    OK(MPI_Isendrecv_replace(&both, 1, MPI_INT, to, 4, MPI_ANY_SOURCE, 4, comm, &requests[1]));
    OK(MPI_Isendrecv(&out, 1, MPI_INT, MPI_PROC_NULL, 3, &none, 1, MPI_INT, MPI_PROC_NULL, 3, comm,
                     &requests[2]));
    /* What their statuses say is tested in core: MPICH leaves them as they are. */
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    CHECK(inn == number(round, from, 1) && both == number(round, from, 2), "%d %d", inn, both);
    CHECK(none == 5, "from nobody: %d", none);
}

/* What is expected from a neighbour: its number at place i, or what was there before. */
static void from_neighbour(const char *what, int got, int r, int i)
{
    int expected = r == MPI_PROC_NULL ? -7 : number(i, r, i);
    CHECK(got == expected, "%s of %d: %d, not %d", what, r, got, expected);
}

/* On a line or ring of at least three, where all neighbours differ. */
static void neighbours(int periodic)
{
    int dims[1] = {size}, periods[1] = {periodic}, side[2], out[2], counts[2] = {1, 1};
    int places[2] = {1, 0};
    MPI_Aint bytes[2] = {sizeof(int), 0};
    MPI_Datatype types[2] = {MPI_INT, MPI_INT};
    MPI_Comm line;
    OK(MPI_Cart_create(comm, 1, dims, periods, 0, &line));
    OK(MPI_Cart_shift(line, 0, 1, &side[0], &side[1]));
    for (int i = 0; i < 2; i++)
        out[i] = number(1 - i, me, 1 - i);
    int own = number(0, me, 0), got[5][2] = {{-7, -7}, {-7, -7}, {-7, -7}, {-7, -7}, {-7, -7}};
    OK(MPI_Neighbor_alltoall(out, 1, MPI_INT, got[0], 1, MPI_INT, line));
    OK(MPI_Neighbor_allgather(&own, 1, MPI_INT, got[1], 1, MPI_INT, line));
    MPI_Request requests[3];
    OK(MPI_Ineighbor_alltoallv(out, counts, (int[]){0, 1}, MPI_INT, got[2], counts, places, MPI_INT,
                               line, &requests[0]));
    OK(MPI_Ineighbor_alltoallw(out, counts, (MPI_Aint[]){0, sizeof(int)}, types, got[3], counts,
                               bytes, types, line, &requests[1]));
    OK(MPI_Ineighbor_allgatherv(&own, 1, MPI_INT, got[4], counts, places, MPI_INT, line,
                                &requests[2]));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    for (int i = 0; i < 2; i++) {
        /* The one below sends upwards what it calls its second block, which is number 0. */
        from_neighbour("neighbor_alltoall", got[0][i], side[i], i);
        CHECK(got[1][i] == (side[i] == MPI_PROC_NULL ? -7 : number(0, side[i], 0)), "allgather");
        from_neighbour("ineighbor_alltoallv", got[2][1 - i], side[i], i);
        from_neighbour("ineighbor_alltoallw", got[3][1 - i], side[i], i);
        CHECK(got[4][1 - i] == got[1][i], "ineighbor_allgatherv");
    }
    MPI_Request again;
    OK(MPI_Neighbor_alltoall_init(out, 1, MPI_INT, got[0], 1, MPI_INT, line, MPI_INFO_NULL, &again));
    for (int round = 0; round < 3; round++) {
        got[0][0] = got[0][1] = -7;
        OK(MPI_Start(&again));
        OK(MPI_Wait(&again, MPI_STATUS_IGNORE));
        for (int i = 0; i < 2; i++)
            from_neighbour("neighbor_alltoall_init", got[0][i], side[i], i);
    }
    OK(MPI_Request_free(&again));
    OK(MPI_Comm_free(&line));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    for (int members = 1; members <= ranks; members++) {
        OK(MPI_Comm_split(MPI_COMM_WORLD, rank < members ? 0 : MPI_UNDEFINED, -rank, &comm));
        if (comm == MPI_COMM_NULL)
            continue;
        MPI_Comm_rank(comm, &me);
        MPI_Comm_size(comm, &size);
        for (int round = 0; round < ROUNDS; round++) {
            moved(round, 1 + round % 6 * 7);
            reduced(round, 1 + round % 6 * 5);
            many(round);
            both_ways(round);
        }
        moved(0, 20000);
        reduced(1, 3000);
        persistent();
        if (size >= 3) {
            neighbours(0);
            neighbours(1);
        }
        OK(MPI_Comm_free(&comm));
    }
    return finish("begun");
}
