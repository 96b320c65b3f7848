/* Groups and communicators: set operations, dup, split, create, create_group, isolation of
 * contexts, comparison. */
#include "check.h"

static void groups(void)
{
    MPI_Group world, even, odd, all, none, back;
    int members[64], count = 0, result, n;
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    for (int r = 0; r < ranks; r += 2)
        members[count++] = r;
    OK(MPI_Group_incl(world, count, members, &even));
    OK(MPI_Group_excl(world, count, members, &odd));
    OK(MPI_Group_size(even, &n));
    CHECK(n == (ranks + 1) / 2, "even %d", n);
    OK(MPI_Group_size(odd, &n));
    CHECK(n == ranks / 2, "odd %d", n);
    OK(MPI_Group_rank(even, &n));
    CHECK(n == (rank % 2 ? MPI_UNDEFINED : rank / 2), "own rank %d", n);
    OK(MPI_Group_union(even, odd, &all));
    OK(MPI_Group_compare(all, world, &result));
    CHECK(result == (ranks <= 2 ? MPI_IDENT : MPI_SIMILAR), "union compares as %d", result);
    OK(MPI_Group_intersection(even, odd, &none));
    CHECK(none == MPI_GROUP_EMPTY || (MPI_Group_size(none, &n) == MPI_SUCCESS && n == 0),
          "intersection");
    OK(MPI_Group_difference(world, odd, &back));
    OK(MPI_Group_compare(back, even, &result));
    CHECK(result == MPI_IDENT, "difference compares as %d", result);
    int from[2] = {0, ranks - 1}, to[2];
    OK(MPI_Group_translate_ranks(world, 2, from, even, to));
    CHECK(to[0] == 0 && to[1] == ((ranks - 1) % 2 ? MPI_UNDEFINED : (ranks - 1) / 2), "%d %d",
          to[0], to[1]);
    MPI_Group reversed;
    int range[1][3] = {{ranks - 1, 0, -1}};
    OK(MPI_Group_range_incl(world, 1, range, &reversed));
    OK(MPI_Group_rank(reversed, &n));
    CHECK(n == ranks - 1 - rank, "reversed rank %d", n);
    MPI_Group rest;
    OK(MPI_Group_range_excl(world, 1, (int[1][3]){{0, 0, 1}}, &rest));
    OK(MPI_Group_size(rest, &n));
    CHECK(n == ranks - 1, "rest %d", n);
    MPI_Comm comm;
    OK(MPI_Comm_create(MPI_COMM_WORLD, reversed, &comm));
    MPI_Comm_rank(comm, &n);
    CHECK(n == ranks - 1 - rank, "rank %d in the reversed communicator", n);
    OK(MPI_Comm_compare(comm, MPI_COMM_WORLD, &result));
    CHECK(result == (ranks == 1 ? MPI_CONGRUENT : MPI_SIMILAR), "compares as %d", result);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Comm_create(MPI_COMM_WORLD, even, &comm));
    CHECK((comm == MPI_COMM_NULL) == (rank % 2 == 1), "only members get a communicator");
    if (comm != MPI_COMM_NULL)
        OK(MPI_Comm_free(&comm));
    if (rank % 2 == 0) { /* only the members take part */
        int sum = 0, one = 1;
        OK(MPI_Comm_create_group(MPI_COMM_WORLD, even, 5, &comm));
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm));
        CHECK(sum == (ranks + 1) / 2, "sum %d", sum);
        OK(MPI_Comm_free(&comm));
    }
    MPI_Group *made[] = {&world, &even, &odd, &all, &back, &reversed};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
        OK(MPI_Group_free(made[i]));
        CHECK(*made[i] == MPI_GROUP_NULL, "a freed group is null");
    }
    if (none != MPI_GROUP_EMPTY)
        OK(MPI_Group_free(&none));
    if (rest != MPI_GROUP_EMPTY)
        OK(MPI_Group_free(&rest));
}

/* Messages with the same tag in two communicators do not meet. */
static void isolation(void)
{
    MPI_Comm dup;
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, a = 1000 + rank,
        b = 2000 + rank, in = 0, result;
    MPI_Request r[2];
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &dup));
    OK(MPI_Comm_compare(dup, MPI_COMM_WORLD, &result));
    CHECK(result == MPI_CONGRUENT, "dup compares as %d", result);
    OK(MPI_Comm_compare(dup, dup, &result));
    CHECK(result == MPI_IDENT, "itself compares as %d", result);
    OK(MPI_Isend(&a, 1, MPI_INT, to, 1, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Isend(&b, 1, MPI_INT, to, 1, dup, &r[1]));
    OK(MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, dup, MPI_STATUS_IGNORE));
    CHECK(in == 2000 + from, "in the copy: %d", in);
    OK(MPI_Barrier(dup));
    OK(MPI_Recv(&in, 1, MPI_INT, from, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(in == 1000 + from, "in the world: %d", in);
    OK(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    OK(MPI_Comm_free(&dup));
    CHECK(dup == MPI_COMM_NULL, "a freed communicator is null");
}

static void splits(void)
{
    MPI_Comm part, again, none;
    int me, n, sum, one = rank;
    OK(MPI_Comm_split(MPI_COMM_WORLD, rank % 3, -rank, &part));
    MPI_Comm_rank(part, &me);
    MPI_Comm_size(part, &n);
    CHECK(n == (ranks - rank % 3 + 2) / 3 && me == n - 1 - rank / 3, "rank %d of %d", me, n);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, part));
    int expected = 0;
    for (int r = rank % 3; r < ranks; r += 3)
        expected += r;
    CHECK(sum == expected, "sum %d instead of %d", sum, expected);
    OK(MPI_Comm_split(part, 0, 0, &again)); /* equal keys keep the order */
    int me_again;
    MPI_Comm_rank(again, &me_again);
    CHECK(me_again == me, "rank %d", me_again);
    OK(MPI_Comm_split(MPI_COMM_WORLD, MPI_UNDEFINED, 0, &none));
    CHECK(none == MPI_COMM_NULL, "undefined colour");
    MPI_Comm shared;
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared));
    MPI_Comm_size(shared, &n);
    CHECK(n == ranks, "one machine: %d", n);
    OK(MPI_Comm_free(&shared));
    MPI_Info hint;
    OK(MPI_Info_create(&hint));
    OK(MPI_Info_set(hint, "mpi_hw_resource_type", "mpi_shared_memory"));
    for (int guided = 0; guided < 2; guided++) {
        int type = guided ? MPI_COMM_TYPE_HW_GUIDED : MPI_COMM_TYPE_RESOURCE_GUIDED;
        OK(MPI_Comm_split_type(MPI_COMM_WORLD, type, -rank, hint, &shared));
        CHECK(shared != MPI_COMM_NULL, "shared memory, guided");
        MPI_Comm_size(shared, &n);
        MPI_Comm_rank(shared, &me);
        CHECK(n == ranks && me == ranks - 1 - rank, "rank %d of %d", me, n);
        OK(MPI_Comm_free(&shared));
    }
    OK(MPI_Info_free(&hint));
    OK(MPI_Comm_free(&again));
    OK(MPI_Comm_free(&part));
}

/* Many communicators made and freed in different orders on different ranks' sub-groups. */
static void churn(void)
{
    for (int round = 0; round < 60; round++) {
        MPI_Comm a, b, c;
        int sum = 0, one = 1, n;
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &a));
        OK(MPI_Comm_split(a, (rank + round) % 2, rank, &b));
        OK(MPI_Comm_free(&a));
        OK(MPI_Comm_dup(b, &c));
        OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, c));
        MPI_Comm_size(b, &n);
        CHECK(sum == n, "round %d: %d of %d", round, sum, n);
        OK(MPI_Comm_free(&b));
        OK(MPI_Comm_free(&c));
    }
}

static void names_and_self(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length, n, flag;
    OK(MPI_Comm_get_name(MPI_COMM_WORLD, name, &length));
    CHECK(!strcmp(name, "MPI_COMM_WORLD"), "name %s", name);
    OK(MPI_Comm_get_name(MPI_COMM_SELF, name, &length));
    CHECK(!strcmp(name, "MPI_COMM_SELF"), "name %s", name);
    MPI_Comm copy;
    OK(MPI_Comm_dup(MPI_COMM_SELF, &copy));
    OK(MPI_Comm_set_name(copy, "mine"));
    OK(MPI_Comm_get_name(copy, name, &length));
    CHECK(!strcmp(name, "mine") && length == 4, "name %s", name);
    MPI_Comm_size(copy, &n);
    CHECK(n == 1, "self has %d", n);
    OK(MPI_Comm_test_inter(copy, &flag));
    CHECK(!flag, "no inter-communicator");
    OK(MPI_Comm_free(&copy));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    groups();
    isolation();
    splits();
    churn();
    names_and_self();
    return finish("comms");
}
