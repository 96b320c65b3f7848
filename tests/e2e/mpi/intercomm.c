/*
 * Inter-communicators: made, duplicated (also later), split, merged; messages and all collectives
 * between the two groups, blocking and begun; communicators from groups alone. The groups are the
 * even and the odd ranks; on one rank there is only what needs no second group.
 */
#include "check.h"

/* So many that ranks can be killed in the middle. */
enum { ROUNDS = 40, TAG = 9 };

static MPI_Comm local, inter;
static int side, me, size, others;

/* World rank of rank r of the other group. */
static int other(int r)
{
    return 2 * r + 1 - side;
}

static int number(int round, int world, int i)
{
    return (world + 1) * 1000 + i * 7 % 997 + round * 13;
}

/* The sum over the other group. */
static int sum_of_others(int round, int i)
{
    int sum = 0;
    for (int r = 0; r < others; r++)
        sum += number(round, other(r), i);
    return sum;
}

static void known(void)
{
    int flag, n, result;
    OK(MPI_Comm_test_inter(inter, &flag));
    CHECK(flag, "an inter-communicator");
    OK(MPI_Comm_test_inter(local, &flag));
    CHECK(!flag, "no inter-communicator");
    OK(MPI_Comm_remote_size(inter, &n));
    CHECK(n == others, "%d of %d there", n, others);
    MPI_Group group, world;
    OK(MPI_Comm_remote_group(inter, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int r = 0; r < others; r++) {
        int at;
        OK(MPI_Group_translate_ranks(group, 1, &r, world, &at));
        CHECK(at == other(r), "rank %d there is %d", r, at);
    }
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&world));
    MPI_Comm copy, later, near;
    OK(MPI_Comm_split_type(inter, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &near));
    if (near != MPI_COMM_NULL) {
        OK(MPI_Comm_test_inter(near, &flag));
        CHECK(flag, "who share memory are of both groups");
        OK(MPI_Comm_free(&near));
    }
    OK(MPI_Comm_split_type(inter, MPI_UNDEFINED, 0, MPI_INFO_NULL, &near));
    CHECK(near == MPI_COMM_NULL, "in no part");
    MPI_Request request;
    OK(MPI_Comm_idup(inter, &later, &request));
    OK(MPI_Comm_dup(inter, &copy));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_compare(inter, copy, &result));
    CHECK(result == MPI_CONGRUENT, "%d", result);
    OK(MPI_Comm_compare(inter, local, &result));
    CHECK(result == MPI_UNEQUAL, "%d", result);
    OK(MPI_Barrier(later));
    OK(MPI_Barrier(copy));
    OK(MPI_Comm_free(&later));
    OK(MPI_Comm_disconnect(&copy));
    CHECK(copy == MPI_COMM_NULL, "it is gone");
}

static void messages(int round)
{
    int own = number(round, rank, 0), got;
    MPI_Request *sent = malloc((size_t)others * sizeof *sent);
    for (int r = 0; r < others; r++)
        OK(MPI_Isend(&own, 1, MPI_INT, r, TAG, inter, &sent[r]));
    for (int n = 0; n < others; n++) {
        MPI_Status status;
        OK(MPI_Recv(&got, 1, MPI_INT, round % 2 ? n : MPI_ANY_SOURCE, TAG, inter, &status));
        CHECK(got == number(round, other(status.MPI_SOURCE), 0), "from %d: %d", status.MPI_SOURCE,
              got);
    }
    OK(MPI_Waitall(others, sent, MPI_STATUSES_IGNORE));
    free(sent);
}

/* One of the even ranks is the root. */
static void rooted(int round)
{
    int evens = side == 0 ? size : others, chosen = round % evens;
    int root = side == 1 ? chosen : me == chosen ? MPI_ROOT : MPI_PROC_NULL;
    int is_root = root == MPI_ROOT, word = is_root ? number(round, rank, 1) : 0;
    int from = side == 1 ? other(chosen) : 2 * chosen;
    OK(MPI_Bcast(&word, 1, MPI_INT, root, inter));
    if (root != MPI_PROC_NULL)
        CHECK(word == number(round, from, 1), "broadcast %d", word);
    int own = number(round, rank, 2), sum = 0, part = 0;
    int *all = calloc((size_t)others, sizeof *all), *parts = calloc((size_t)others, sizeof *parts);
    int *ones = calloc((size_t)others, sizeof *ones), *places = calloc((size_t)others, sizeof *places);
    for (int r = 0; r < others; r++) {
        parts[r] = number(round, rank, r);
        ones[r] = 1;
        places[r] = others - 1 - r;
    }
    OK(MPI_Gather(&own, 1, MPI_INT, all, 1, MPI_INT, root, inter));
    for (int r = 0; is_root && r < others; r++)
        CHECK(all[r] == number(round, other(r), 2), "gathered %d", all[r]);
    OK(MPI_Gatherv(&own, 1, MPI_INT, all, ones, places, MPI_INT, root, inter));
    for (int r = 0; is_root && r < others; r++)
        CHECK(all[places[r]] == number(round, other(r), 2), "gathered %d", all[r]);
    OK(MPI_Scatter(parts, 1, MPI_INT, &part, 1, MPI_INT, root, inter));
    if (side == 1)
        CHECK(part == number(round, from, me), "scattered %d", part);
    OK(MPI_Scatterv(parts, ones, places, MPI_INT, &part, 1, MPI_INT, root, inter));
    if (side == 1)
        CHECK(part == number(round, from, size - 1 - me), "scattered %d", part);
    /* Where there is no part, what else is given does not matter, even bytes that cannot be added. */
    MPI_Datatype type = root == MPI_PROC_NULL ? MPI_BYTE : MPI_INT;
    OK(MPI_Reduce(&own, &sum, 1, type, MPI_SUM, root, inter));
    if (is_root)
        CHECK(sum == sum_of_others(round, 2), "reduced %d", sum);
    free(all);
    free(parts);
    free(ones);
    free(places);
}

static void to_all(int round)
{
    size_t bytes = ((size_t)others + 1) * sizeof(int);
    int own = number(round, rank, 3), sum = 0, later = 0;
    int *all = malloc(bytes), *out = malloc(bytes), *inn = malloc(bytes), *begun = malloc(bytes);
    for (int r = 0; r < others; r++)
        out[r] = number(round, rank, other(r));
    MPI_Request requests[3];
    OK(MPI_Ibarrier(inter, &requests[0]));
    OK(MPI_Iallgather(&own, 1, MPI_INT, begun, 1, MPI_INT, inter, &requests[1]));
    OK(MPI_Iallreduce(&own, &later, 1, MPI_INT, MPI_SUM, inter, &requests[2]));
    OK(MPI_Allgather(&own, 1, MPI_INT, all, 1, MPI_INT, inter));
    OK(MPI_Alltoall(out, 1, MPI_INT, inn, 1, MPI_INT, inter));
    OK(MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, inter));
    OK(MPI_Waitall(3, requests, MPI_STATUSES_IGNORE));
    for (int r = 0; r < others; r++) {
        CHECK(all[r] == number(round, other(r), 3) && begun[r] == all[r], "%d", all[r]);
        CHECK(inn[r] == number(round, other(r), rank), "alltoall %d", inn[r]);
    }
    CHECK(sum == sum_of_others(round, 3) && later == sum, "%d", sum);
    free(all);
    free(out);
    free(inn);
    free(begun);
    /* As many elements as both sizes divide. */
    int total = size * others, share = total / size;
    int *many = malloc((size_t)total * sizeof *many), *kept = malloc((size_t)share * sizeof *kept);
    for (int i = 0; i < total; i++)
        many[i] = number(round, rank, i);
    OK(MPI_Reduce_scatter_block(many, kept, share, MPI_INT, MPI_SUM, inter));
    for (int i = 0; i < share; i++)
        CHECK(kept[i] == sum_of_others(round, me * share + i), "share %d", kept[i]);
    free(many);
    free(kept);
}

static void merged(int round)
{
    MPI_Comm whole, part;
    int n, at;
    OK(MPI_Intercomm_merge(inter, round % 2 ? side == 0 : side == 1, &whole));
    OK(MPI_Comm_size(whole, &n));
    OK(MPI_Comm_rank(whole, &at));
    CHECK(n == ranks, "%d", n);
    CHECK(at == me + ((round % 2 ? side == 0 : side == 1) ? others : 0), "rank %d", at);
    int sum;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, whole));
    CHECK(sum == ranks * (ranks - 1) / 2, "%d", sum);
    OK(MPI_Comm_free(&whole));
    OK(MPI_Comm_split(inter, me == 0, 0, &part));
    int both = me == 0 || (size > 1 && others > 1);
    CHECK((part != MPI_COMM_NULL) == both, "a part of both groups");
    if (part != MPI_COMM_NULL) {
        OK(MPI_Comm_remote_size(part, &n));
        CHECK(n == (me == 0 ? 1 : others - 1), "%d", n);
        OK(MPI_Barrier(part));
        OK(MPI_Comm_free(&part));
    }
}

static void from_groups(void)
{
    MPI_Group world, own, rest;
    MPI_Comm made, both;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    int range[1][3] = {{side, ranks - 1, 2}}, there[1][3] = {{1 - side, ranks - 1, 2}};
    OK(MPI_Group_range_incl(world, 1, range, &own));
    OK(MPI_Group_range_incl(world, 1, there, &rest));
    OK(MPI_Comm_create_from_group(own, "org.eyrie.own", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made));
    int n, sum;
    OK(MPI_Comm_size(made, &n));
    OK(MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, made));
    CHECK(n == size && sum == size * size, "%d %d", n, sum);
    OK(MPI_Intercomm_create_from_groups(own, 0, rest, 0, "org.eyrie.both", MPI_INFO_NULL,
                                        MPI_ERRORS_ARE_FATAL, &both));
    OK(MPI_Allreduce(&n, &sum, 1, MPI_INT, MPI_SUM, both));
    CHECK(sum == others * others, "%d", sum);
    OK(MPI_Comm_free(&both));
    OK(MPI_Comm_free(&made));
    OK(MPI_Group_free(&own));
    OK(MPI_Group_free(&rest));
    OK(MPI_Group_free(&world));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    MPI_Comm later;
    MPI_Request request;
    OK(MPI_Comm_idup(MPI_COMM_WORLD, &later, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(later));
    OK(MPI_Comm_free(&later));
    side = rank % 2;
    OK(MPI_Comm_split(MPI_COMM_WORLD, side, 0, &local));
    MPI_Comm_rank(local, &me);
    MPI_Comm_size(local, &size);
    others = ranks - size;
    if (ranks > 1) {
        for (int round = 0; round < ROUNDS; round++) {
            OK(MPI_Intercomm_create(local, 0, MPI_COMM_WORLD, 1 - side, TAG, &inter));
            known();
            messages(round);
            rooted(round);
            to_all(round);
            merged(round);
            OK(MPI_Comm_free(&inter));
        }
        from_groups();
    }
    return finish("intercomm");
}
