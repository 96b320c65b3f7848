/*
 * Calls that are wrong, each in a way of its own: wrongs WHAT. Where the job is to go on, rank 0 prints
 * what it was told.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int rank, ranks, value[8], other[8];

/* Wrong arguments of one call; the job ends. */
static void wrong_argument(const char *what)
{
    MPI_Comm none = MPI_COMM_NULL;
    if (strcmp(what, "rank") == 0)
        MPI_Send(value, 1, MPI_INT, 99, 5, MPI_COMM_WORLD);
    if (strcmp(what, "tag") == 0)
        MPI_Send(value, 1, MPI_INT, 0, -7, MPI_COMM_WORLD);
    if (strcmp(what, "count") == 0)
        MPI_Bcast(value, -3, MPI_INT, 0, MPI_COMM_WORLD);
    if (strcmp(what, "type") == 0)
        MPI_Recv(value, 1, MPI_DATATYPE_NULL, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (strcmp(what, "buffer") == 0)
        MPI_Allreduce(value, NULL, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(what, "root") == 0)
        MPI_Reduce(value, other, 1, MPI_INT, MPI_SUM, 44, MPI_COMM_WORLD);
    if (strcmp(what, "op") == 0)
        MPI_Allreduce(value, other, 1, MPI_INT, MPI_OP_NULL, MPI_COMM_WORLD);
    if (strcmp(what, "comm") == 0)
        MPI_Barrier(none);
}

/* Not all ranks call alike; the job ends. */
static void unlike(const char *what)
{
    int last = rank == ranks - 1;
    if (strcmp(what, "other-root") == 0)
        MPI_Bcast(value, 4, MPI_INT, last, MPI_COMM_WORLD);
    if (strcmp(what, "other-op") == 0)
        MPI_Allreduce(value, other, 4, MPI_INT, last ? MPI_MAX : MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(what, "other-size") == 0)
        MPI_Allreduce(value, other, last ? 5 : 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (strcmp(what, "other-order") == 0) {
        if (last)
            MPI_Barrier(MPI_COMM_WORLD);
        MPI_Bcast(value, 4, MPI_INT, 0, MPI_COMM_WORLD);
        if (!last)
            MPI_Barrier(MPI_COMM_WORLD);
    }
}

/* The error is returned, and its text asked for; then another error's. */
static void returned(void)
{
    char text[MPI_MAX_ERROR_STRING];
    int length;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Send(value, 1, MPI_INT, 1234, 0, MPI_COMM_WORLD);
    MPI_Error_string(code, text, &length);
    if (rank == 0)
        printf("%s\n", text);
    MPI_Error_string(MPI_ERR_TAG, text, &length);
    if (rank == 0)
        printf("%s\n", text);
}

/* Some of what is made is freed. */
static void leaks(void)
{
    MPI_Comm comms[3];
    MPI_Datatype type;
    MPI_Request request;
    for (int i = 0; i < 3; i++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    MPI_Comm_free(&comms[1]);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Send_init(value, 1, MPI_INT, rank, 0, MPI_COMM_WORLD, &request);
    MPI_Type_free(&type);
    MPI_Type_vector(2, 1, 2, MPI_INT, &type);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    wrong_argument(what);
    unlike(what);
    if (strcmp(what, "returned") == 0)
        returned();
    if (strcmp(what, "leaks") == 0)
        leaks();
    MPI_Finalize();
    if (rank == 0)
        printf("done\n");
    return 0;
}
