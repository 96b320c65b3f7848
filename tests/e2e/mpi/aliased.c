/* One buffer given for both directions of a collective, on all ranks and on the root alone: who does so is
 * told MPI_ERR_BUFFER, nobody waits for ever, and the right call that follows gives the right result. */
#include "check.h"

static int size, data[64], other[64];

static void mine(void)
{
    for (int i = 0; i < 64; i++)
        data[i] = (rank + 1) * 100 + i;
}

static int sum_of(int upto, int i)
{
    return upto * (upto + 1) / 2 * 100 + upto * i;
}

/* A call that is refused, then one that is not. */
#define REFUSED(call)                                                                    \
    do {                                                                                 \
        mine();                                                                          \
        int code_ = (call);                                                              \
        CHECK(class_of(code_) == MPI_ERR_BUFFER, "%s: class %d", #call, class_of(code_)); \
        mine();                                                                          \
    } while (0)

/* Of one that is begun: it is refused as it begins. */
#define NOT_BEGUN(call)                     \
    do {                                    \
        MPI_Request request = MPI_REQUEST_NULL; \
        REFUSED(call);                      \
        CHECK(request == MPI_REQUEST_NULL, "%s gave a request", #call); \
    } while (0)

static void by_all(MPI_Comm comm)
{
    int counts[16], places[16], one[16];
    MPI_Datatype types[16];
    for (int r = 0; r < size; r++) {
        counts[r] = 1, places[r] = r, one[r] = r * (int)sizeof(int);
        types[r] = MPI_INT;
    }
    REFUSED(MPI_Allreduce(data, data, 4, MPI_INT, MPI_SUM, comm));
    OK(MPI_Allreduce(MPI_IN_PLACE, data, 4, MPI_INT, MPI_SUM, comm));
    CHECK(data[3] == sum_of(size, 3), "allreduce: %d", data[3]);
    NOT_BEGUN(MPI_Iallreduce(data, data, 4, MPI_INT, MPI_SUM, comm, &request));
    REFUSED(MPI_Scan(data, data, 2, MPI_INT, MPI_SUM, comm));
    OK(MPI_Scan(MPI_IN_PLACE, data, 2, MPI_INT, MPI_SUM, comm));
    CHECK(data[1] == sum_of(rank + 1, 1), "scan: %d", data[1]);
    REFUSED(MPI_Exscan(data, data, 2, MPI_INT, MPI_SUM, comm));
    OK(MPI_Exscan(MPI_IN_PLACE, data, 2, MPI_INT, MPI_SUM, comm));
    CHECK(rank == 0 || data[1] == sum_of(rank, 1), "exscan: %d", data[1]);
    REFUSED(MPI_Reduce_scatter_block(data, data, 1, MPI_INT, MPI_SUM, comm));
    OK(MPI_Reduce_scatter_block(MPI_IN_PLACE, data, 1, MPI_INT, MPI_SUM, comm));
    CHECK(data[0] == sum_of(size, rank), "reduce_scatter_block: %d", data[0]);
    REFUSED(MPI_Reduce_scatter(data, data, counts, MPI_INT, MPI_SUM, comm));
    OK(MPI_Reduce_scatter(MPI_IN_PLACE, data, counts, MPI_INT, MPI_SUM, comm));
    CHECK(data[0] == sum_of(size, rank), "reduce_scatter: %d", data[0]);
    REFUSED(MPI_Alltoall(data, 1, MPI_INT, data, 1, MPI_INT, comm));
    OK(MPI_Alltoall(MPI_IN_PLACE, 1, MPI_INT, data, 1, MPI_INT, comm));
    CHECK(data[size - 1] == size * 100 + rank, "alltoall: %d", data[size - 1]);
    NOT_BEGUN(MPI_Ialltoall(data, 1, MPI_INT, data, 1, MPI_INT, comm, &request));
    REFUSED(MPI_Alltoallv(data, counts, places, MPI_INT, data, counts, places, MPI_INT, comm));
    REFUSED(MPI_Alltoallw(data, counts, one, types, data, counts, one, types, comm));
    OK(MPI_Alltoallw(data, counts, one, types, other, counts, one, types, comm));
    CHECK(other[size - 1] == size * 100 + rank, "alltoallw: %d", other[size - 1]);
    /* The own block lies where it is to come to, of the rank 0 only: the others may go on. */
    mine();
    int code = MPI_Allgather(data, 1, MPI_INT, rank ? other : data, 1, MPI_INT, comm);
    CHECK(class_of(code) == (rank ? MPI_SUCCESS : MPI_ERR_BUFFER), "allgather: %d", code);
    if (rank == 0)
        OK(MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, data, 1, MPI_INT, comm));
    int *got = rank ? other : data;
    for (int r = 0; r < size; r++)
        CHECK(got[r] == (r + 1) * 100, "allgather of %d: %d", r, got[r]);
}

/* The root alone has both directions. It alone repeats the call. */
static void by_the_root(MPI_Comm comm, int root)
{
    int is_root = rank == root, code;
    mine();
    code = MPI_Gather(data + rank, 1, MPI_INT, is_root ? data : NULL, 1, MPI_INT, root, comm);
    CHECK(class_of(code) == (is_root ? MPI_ERR_BUFFER : MPI_SUCCESS), "gather: %d", code);
    if (is_root) {
        OK(MPI_Gather(MPI_IN_PLACE, 1, MPI_INT, data, 1, MPI_INT, root, comm));
        for (int r = 0; r < size; r++)
            CHECK(data[r] == (r + 1) * 100 + r, "gathered of %d: %d", r, data[r]);
    }
    mine();
    code = MPI_Reduce(data, is_root ? data : NULL, 3, MPI_INT, MPI_SUM, root, comm);
    CHECK(class_of(code) == (is_root ? MPI_ERR_BUFFER : MPI_SUCCESS), "reduce: %d", code);
    if (is_root) {
        OK(MPI_Reduce(MPI_IN_PLACE, data, 3, MPI_INT, MPI_SUM, root, comm));
        CHECK(data[2] == sum_of(size, 2), "reduced: %d", data[2]);
    }
    mine();
    other[0] = 0;
    code = MPI_Scatter(data, 1, MPI_INT, is_root ? data + root : other, 1, MPI_INT, root, comm);
    CHECK(class_of(code) == (is_root ? MPI_ERR_BUFFER : MPI_SUCCESS), "scatter: %d", code);
    if (is_root)
        OK(MPI_Scatter(data, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, root, comm));
    else
        CHECK(other[0] == (root + 1) * 100 + rank, "scattered: %d", other[0]);
}

int main(int argc, char **argv)
{
    MPI_Comm comm;
    begin(&argc, &argv);
    size = ranks;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    by_all(comm);
    for (int root = 0; root < ranks; root++)
        by_the_root(comm, root);
    OK(MPI_Comm_free(&comm));
    return finish("aliased");
}
