/*
 * Every blocking collective on intra-communicators of each size from 1 to all ranks, each root,
 * several sizes and types, with MPI_IN_PLACE where it is allowed, checked against local
 * computation.
 */
#include "check.h"

static MPI_Comm comm;
static int me, size;

/* The number that rank r contributes at place i. */
static int number(int r, int i)
{
    return (r + 1) * 1000 + i * 7 % 997;
}

static int sum_at(int upto, int i)
{
    int sum = 0;
    for (int r = 0; r < upto; r++)
        sum += number(r, i);
    return sum;
}

static int *numbers(int r, int count)
{
    int *data = malloc(((size_t)count + 1) * sizeof *data);
    for (int i = 0; i < count; i++)
        data[i] = number(r, i);
    return data;
}

static int *blank(size_t count)
{
    int *data = malloc((count + 1) * sizeof *data);
    memset(data, 0xee, (count + 1) * sizeof *data);
    return data;
}

static void bcast(int count)
{
    for (int root = 0; root < size; root++) {
        int *data = me == root ? numbers(root, count) : blank((size_t)count);
        OK(MPI_Bcast(data, count, MPI_INT, root, comm));
        for (int i = 0; i < count; i++)
            CHECK(data[i] == number(root, i), "bcast of %d from %d at %d: %d", count, root, i,
                  data[i]);
        free(data);
    }
}

static void gather_scatter(int count)
{
    size_t n = (size_t)count * (size_t)size;
    for (int root = 0; root < size; root++) {
        int *mine = numbers(me, count), *all = blank(n), *back = blank((size_t)count);
        OK(MPI_Gather(mine, count, MPI_INT, all, count, MPI_INT, root, comm));
        if (me == root)
            for (int r = 0; r < size; r++)
                for (int i = 0; i < count; i++)
                    CHECK(all[r * count + i] == number(r, i), "gather to %d", root);
        OK(MPI_Scatter(all, count, MPI_INT, back, count, MPI_INT, root, comm));
        for (int i = 0; i < count; i++)
            CHECK(back[i] == number(me, i), "scatter from %d", root);
        /* In place at the root. */
        if (me == root)
            memcpy(all + (size_t)me * (size_t)count, mine, (size_t)count * sizeof *all);
        OK(MPI_Gather(me == root ? MPI_IN_PLACE : mine, count, MPI_INT, all, count, MPI_INT, root,
                      comm));
        OK(MPI_Scatter(all, count, MPI_INT, me == root ? MPI_IN_PLACE : back, count, MPI_INT, root,
                       comm));
        for (int i = 0; i < count; i++)
            CHECK((me == root ? all[me * count + i] : back[i]) == number(me, i), "in place at %d",
                  root);
        free(mine);
        free(all);
        free(back);
    }
}

/* Rank r has r + count % 3 more numbers than count; pieces lie apart by gaps. */
static void gatherv_scatterv(int count)
{
    int *counts = calloc((size_t)size, sizeof *counts),
        *starts = calloc((size_t)size, sizeof *starts), total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r == 1 ? 0 : count + r;
        starts[r] = total + 2;
        total += counts[r] + 2;
    }
    int *mine = numbers(me, counts[me]), *all = blank((size_t)total),
        *back = blank((size_t)counts[me]);
    for (int root = 0; root < size; root++) {
        OK(MPI_Gatherv(mine, counts[me], MPI_INT, all, counts, starts, MPI_INT, root, comm));
        OK(MPI_Scatterv(all, counts, starts, MPI_INT, back, counts[me], MPI_INT, root, comm));
        for (int i = 0; i < counts[me]; i++)
            CHECK(back[i] == number(me, i), "scatterv from %d", root);
        OK(MPI_Allgatherv(mine, counts[me], MPI_INT, all, counts, starts, MPI_INT, comm));
        for (int r = 0; r < size; r++) {
            for (int i = 0; i < counts[r]; i++)
                CHECK(all[starts[r] + i] == number(r, i), "allgatherv of %d", r);
            CHECK(all[starts[r] - 1] == (int)0xeeeeeeee, "a gap was written");
        }
        for (int r = 0; r < size; r++)
            if (r != me)
                memset(all + starts[r], 0xee, (size_t)counts[r] * sizeof *all);
        OK(MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, counts, starts, MPI_INT, comm));
        for (int r = 0; r < size; r++)
            for (int i = 0; i < counts[r]; i++)
                CHECK(all[starts[r] + i] == number(r, i), "allgatherv in place of %d", r);
        memset(all, 0xee, (size_t)total * sizeof *all);
    }
    free(mine);
    free(all);
    free(back);
    free(counts);
    free(starts);
}

static void allgather_alltoall(int count)
{
    size_t n = (size_t)count * (size_t)size;
    int *mine = numbers(me, count), *all = blank(n), *out = blank(n), *in = blank(n);
    OK(MPI_Allgather(mine, count, MPI_INT, all, count, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++)
            CHECK(all[r * count + i] == number(r, i), "allgather of %d", r);
    memset(all, 0, n * sizeof *all);
    memcpy(all + (size_t)me * (size_t)count, mine, (size_t)count * sizeof *all);
    OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, count, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++) {
            CHECK(all[r * count + i] == number(r, i), "allgather in place of %d", r);
            out[r * count + i] = number(me * 31 + r, i);
        }
    OK(MPI_Alltoall(out, count, MPI_INT, in, count, MPI_INT, comm));
    OK(MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, out, count, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < count; i++) {
            CHECK(in[r * count + i] == number(r * 31 + me, i), "alltoall from %d", r);
            CHECK(out[r * count + i] == number(r * 31 + me, i), "alltoall in place from %d", r);
        }
    free(mine);
    free(all);
    free(out);
    free(in);
}

/* Rank a sends (a + b) % 3 * count + a numbers to b. */
static int piece(int a, int b, int count)
{
    return (a + b) % 3 * count + a;
}

static void alltoallv(int count, int by_bytes)
{
    int *table = malloc(6 * (size_t)size * sizeof *table);
    int *sc = table, *ss = sc + size, *rc = ss + size, *rs = rc + size, total_out = 0, total_in = 0;
    MPI_Datatype *types = malloc((size_t)size * sizeof *types);
    for (int r = 0; r < size; r++) {
        types[r] = MPI_INT;
        sc[r] = piece(me, r, count);
        rc[r] = piece(r, me, count);
        ss[r] = total_out;
        rs[r] = total_in + 1;
        total_out += sc[r];
        total_in += rc[r] + 1;
    }
    int *out = blank((size_t)total_out), *in = blank((size_t)total_in);
    for (int r = 0; r < size; r++)
        for (int i = 0; i < sc[r]; i++)
            out[ss[r] + i] = number(me * 17 + r, i);
    if (by_bytes) {
        for (int r = 0; r < size; r++) {
            ss[r] *= (int)sizeof(int);
            rs[r] *= (int)sizeof(int);
        }
        OK(MPI_Alltoallw(out, sc, ss, types, in, rc, rs, types, comm));
        for (int r = 0; r < size; r++)
            rs[r] /= (int)sizeof(int);
    } else
        OK(MPI_Alltoallv(out, sc, ss, MPI_INT, in, rc, rs, MPI_INT, comm));
    for (int r = 0; r < size; r++) {
        for (int i = 0; i < rc[r]; i++)
            CHECK(in[rs[r] + i] == number(r * 17 + me, i), "alltoall%c from %d at %d",
                  by_bytes ? 'w' : 'v', r, i);
        CHECK(in[rs[r] - 1] == (int)0xeeeeeeee, "a gap was written");
    }
    free(out);
    free(in);
    free(table);
    free(types);
}

static void reductions(int count)
{
    int *mine = numbers(me, count), *result = blank((size_t)count);
    for (int root = 0; root < size; root++) {
        OK(MPI_Reduce(mine, result, count, MPI_INT, MPI_SUM, root, comm));
        if (me == root)
            for (int i = 0; i < count; i++)
                CHECK(result[i] == sum_at(size, i), "reduce to %d at %d: %d", root, i, result[i]);
        int *place = numbers(me, count);
        OK(MPI_Reduce(me == root ? MPI_IN_PLACE : place, place, count, MPI_INT, MPI_SUM, root,
                      comm));
        if (me == root)
            for (int i = 0; i < count; i++)
                CHECK(place[i] == sum_at(size, i), "reduce in place to %d", root);
        free(place);
    }
    OK(MPI_Allreduce(mine, result, count, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < count; i++)
        CHECK(result[i] == sum_at(size, i), "allreduce at %d", i);
    memcpy(result, mine, (size_t)count * sizeof *result);
    OK(MPI_Allreduce(MPI_IN_PLACE, result, count, MPI_INT, MPI_MAX, comm));
    for (int i = 0; i < count; i++)
        CHECK(result[i] == number(size - 1, i), "allreduce in place at %d", i);
    OK(MPI_Scan(mine, result, count, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < count; i++)
        CHECK(result[i] == sum_at(me + 1, i), "scan at %d", i);
    memcpy(result, mine, (size_t)count * sizeof *result);
    OK(MPI_Scan(MPI_IN_PLACE, result, count, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < count; i++)
        CHECK(result[i] == sum_at(me + 1, i), "scan in place at %d", i);
    OK(MPI_Exscan(mine, result, count, MPI_INT, MPI_SUM, comm));
    if (me > 0)
        for (int i = 0; i < count; i++)
            CHECK(result[i] == sum_at(me, i), "exscan at %d", i);
    free(mine);
    free(result);
}

static void reduce_scatters(int count)
{
    int *counts = malloc((size_t)size * sizeof *counts), total = 0, before = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = r % 3 == 1 ? 0 : count + r;
        before += r < me ? counts[r] : 0;
        total += counts[r];
    }
    int *mine = numbers(me, total), *result = blank((size_t)total);
    OK(MPI_Reduce_scatter(mine, result, counts, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < counts[me]; i++)
        CHECK(result[i] == sum_at(size, before + i), "reduce_scatter at %d", i);
    memcpy(result, mine, (size_t)total * sizeof *result);
    OK(MPI_Reduce_scatter(MPI_IN_PLACE, result, counts, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < counts[me]; i++)
        CHECK(result[i] == sum_at(size, before + i), "reduce_scatter in place at %d", i);
    free(mine);
    free(result);
    mine = numbers(me, count * size);
    result = blank((size_t)count);
    OK(MPI_Reduce_scatter_block(mine, result, count, MPI_INT, MPI_SUM, comm));
    for (int i = 0; i < count; i++)
        CHECK(result[i] == sum_at(size, me * count + i), "reduce_scatter_block at %d", i);
    free(mine);
    free(result);
    free(counts);
}

/* Derived types on both sides that differ: a strided send, a contiguous receive. */
static void typed(void)
{
    enum { N = 50 };
    int *out = blank((size_t)(2 * N * size)), *in = blank((size_t)(N * size)),
        *wide = blank((size_t)(2 * N));
    MPI_Datatype every_other, sparse;
    OK(MPI_Type_vector(N, 1, 2, MPI_INT, &every_other));
    OK(MPI_Type_create_resized(every_other, 0, 2 * N * (MPI_Aint)sizeof(int), &sparse));
    OK(MPI_Type_commit(&sparse));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < N; i++)
            out[r * 2 * N + 2 * i] = number(me * 5 + r, i);
    OK(MPI_Alltoall(out, 1, sparse, in, N, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < N; i++)
            CHECK(in[r * N + i] == number(r * 5 + me, i), "typed alltoall from %d", r);
    OK(MPI_Allgather(out, 1, sparse, in, N, MPI_INT, comm));
    for (int r = 0; r < size; r++)
        for (int i = 0; i < N; i++)
            CHECK(in[r * N + i] == number(r * 5, i), "typed allgather of %d", r);
    if (me == 0)
        for (int i = 0; i < N; i++)
            wide[2 * i] = number(3, i);
    OK(MPI_Bcast(me == 0 ? wide : in, me == 0 ? 1 : N, me == 0 ? sparse : MPI_INT, 0, comm));
    for (int i = 0; i < N && me != 0; i++)
        CHECK(in[i] == number(3, i), "typed bcast at %d", i);
    OK(MPI_Type_free(&every_other));
    OK(MPI_Type_free(&sparse));
    free(out);
    free(in);
    free(wide);
}

/* No rank leaves a barrier before the last has come to it: seen through messages. */
static void barrier(void)
{
    for (int late = 0; late < size; late++) {
        int flag = 0, token = late;
        if (me == late)
            for (int r = 0; r < size; r++)
                if (r != me)
                    OK(MPI_Send(&token, 1, MPI_INT, r, 60, comm));
        OK(MPI_Barrier(comm));
        if (me != late) {
            while (!flag) /* the message is under way at the latest now */
                OK(MPI_Iprobe(late, 60, comm, &flag, MPI_STATUS_IGNORE));
            OK(MPI_Recv(&token, 1, MPI_INT, late, 60, comm, MPI_STATUS_IGNORE));
            CHECK(token == late, "token %d", token);
        }
    }
}

/* One buffer for both directions is refused where it is given, and the call has not been: with the right
 * buffer the rank then does what the others do. */
static void aliased(void)
{
    int *a = malloc(2 * sizeof(int) * size), *b = malloc(2 * sizeof(int) * size);
    int *ones = malloc(sizeof(int) * size), *at = malloc(sizeof(int) * size), sum = size * (size - 1) / 2;
    MPI_Datatype *types = malloc(sizeof *types * size);
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    for (int i = 0; i < size; i++)
        a[i] = me, ones[i] = 1, at[i] = i, types[i] = MPI_INT;
#define REFUSED(call) CHECK(class_of(call) == MPI_ERR_BUFFER, "%s", #call)
    if (me == 0) {
        REFUSED(MPI_Reduce(a, a, 1, MPI_INT, MPI_SUM, 0, comm));
        REFUSED(MPI_Gather(a, 1, MPI_INT, a, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Gatherv(a, 1, MPI_INT, a, ones, at, MPI_INT, 0, comm));
        REFUSED(MPI_Scatter(a, 1, MPI_INT, a, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Scatterv(a, ones, at, MPI_INT, a, 1, MPI_INT, 0, comm));
        REFUSED(MPI_Allgather(a, 1, MPI_INT, a, 1, MPI_INT, comm));
        REFUSED(MPI_Alltoall(a, 1, MPI_INT, a, 1, MPI_INT, comm));
        REFUSED(MPI_Alltoallv(a, ones, at, MPI_INT, a, ones, at, MPI_INT, comm));
        REFUSED(MPI_Alltoallw(a, ones, at, types, a, ones, at, types, comm));
        REFUSED(MPI_Reduce_scatter(a, a, ones, MPI_INT, MPI_SUM, comm));
        REFUSED(MPI_Reduce_scatter_block(a, a, 1, MPI_INT, MPI_SUM, comm));
    }
    REFUSED(MPI_Allreduce(a, a, 1, MPI_INT, MPI_SUM, comm));
    REFUSED(MPI_Scan(a, a, 1, MPI_INT, MPI_SUM, comm));
    REFUSED(MPI_Exscan(a, a, 1, MPI_INT, MPI_SUM, comm));
    OK(MPI_Reduce(a, b, 1, MPI_INT, MPI_SUM, 0, comm));
    CHECK(me || b[0] == sum, "reduce %d", b[0]);
    OK(MPI_Gather(a, 1, MPI_INT, b, 1, MPI_INT, 0, comm));
    CHECK(me || b[size - 1] == size - 1, "gather %d", b[size - 1]);
    /* Where nothing goes the type may be none. */
    for (int i = 0; i < size; i++)
        ones[i] = 0, types[i] = MPI_DATATYPE_NULL;
    OK(MPI_Alltoallw(a, ones, at, types, b, ones, at, types, comm));
    MPI_Request request;
    OK(MPI_Ialltoallw(a, ones, at, types, b, ones, at, types, comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL));
    free(a), free(b), free(ones), free(at), free(types);
}

int main(int argc, char **argv)
{
    static const int counts[] = {0, 1, 3, 64, 1000, 5003};
    begin(&argc, &argv);
    for (int parts = 1; parts <= ranks; parts++) {
        OK(MPI_Comm_split(MPI_COMM_WORLD, rank < parts ? 0 : MPI_UNDEFINED,
                          parts % 2 ? rank : -rank, &comm));
        if (comm != MPI_COMM_NULL) {
            MPI_Comm_rank(comm, &me);
            MPI_Comm_size(comm, &size);
            CHECK(size == parts && me == (parts % 2 ? rank : parts - 1 - rank), "rank %d of %d", me,
                  size);
            for (size_t k = 0; k < sizeof counts / sizeof *counts; k++) {
                bcast(counts[k]);
                gather_scatter(counts[k]);
                gatherv_scatterv(counts[k]);
                allgather_alltoall(counts[k]);
                alltoallv(counts[k], 0);
                alltoallv(counts[k], 1);
                reductions(counts[k]);
                reduce_scatters(counts[k]);
            }
            typed();
            aliased();
            barrier();
            OK(MPI_Comm_free(&comm));
        } else
            CHECK(rank >= parts, "no communicator");
    }
    return finish("coll");
}
