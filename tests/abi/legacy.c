/* The names that MPI-3 removed, as HPL and hpcc use them. A job of one rank. */
#include <mpi.h>
#include <stdio.h>

static int failed;

#define CHECK(condition)                                               \
    do {                                                               \
        if (!(condition)) {                                            \
            failed++;                                                  \
            printf("legacy.c:%d: not so: %s\n", __LINE__, #condition); \
        }                                                              \
    } while (0)

static int called;

static void heed(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    called += *code != MPI_SUCCESS;
}

int main(int argc, char **argv)
{
    struct { int a; double b[2]; } x = {1, {2, 3}}, y = {0, {0, 0}};
    int lengths[2] = {1, 2}, wrong = 5;
    MPI_Aint at[3], lb = -1, ub = -1, extent = -1;
    MPI_Datatype types[2] = {MPI_INT, MPI_DOUBLE}, made, rows;
    MPI_Handler_function *function = heed;
    MPI_Errhandler handler, found;
    MPI_Init(&argc, &argv);
    CHECK(MPI_Address(&x, &at[2]) == MPI_SUCCESS);
    MPI_Address(&x.a, &at[0]);
    MPI_Address(x.b, &at[1]);
    at[0] -= at[2], at[1] -= at[2];
    CHECK(MPI_Type_struct(2, lengths, at, types, &made) == MPI_SUCCESS);
    MPI_Type_commit(&made);
    CHECK(MPI_Type_extent(made, &extent) == MPI_SUCCESS && extent == sizeof x);
    CHECK(MPI_Type_lb(made, &lb) == MPI_SUCCESS && lb == 0);
    CHECK(MPI_Type_ub(made, &ub) == MPI_SUCCESS && ub == sizeof x);
    MPI_Sendrecv(&x, 1, made, 0, 1, &y, 1, made, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(y.a == 1 && y.b[1] == 3);
    CHECK(MPI_Type_hvector(2, 1, 32, MPI_DOUBLE, &rows) == MPI_SUCCESS);
    CHECK(MPI_Type_extent(rows, &extent) == MPI_SUCCESS && extent == 40);
    MPI_Type_free(&rows);
    CHECK(PMPI_Type_hindexed(2, lengths, at, MPI_INT, &rows) == MPI_SUCCESS);
    CHECK(MPI_Type_ub(rows, &ub) == MPI_SUCCESS && ub == 16);
    CHECK(MPI_Errhandler_create(function, &handler) == MPI_SUCCESS);
    CHECK(MPI_Errhandler_set(MPI_COMM_WORLD, handler) == MPI_SUCCESS);
    CHECK(MPI_Errhandler_get(MPI_COMM_WORLD, &found) == MPI_SUCCESS && found == handler);
    MPI_Send(&wrong, 1, MPI_INT, 99, 0, MPI_COMM_WORLD);
    CHECK(called == 1);
    /* An error without a communicator goes there as well: that of MPI_COMM_SELF was never set. */
    MPI_Type_commit(&(MPI_Datatype){MPI_DATATYPE_NULL});
    CHECK(called == 2);
    MPI_Finalize();
    printf("legacy: %d failed\n", failed);
    return failed != 0;
}
