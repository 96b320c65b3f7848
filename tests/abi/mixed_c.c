/* The C part of mixed.f90: MPI_Fint, MPI_X_c2f and MPI_X_f2c, statuses in all three forms. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int passed, failed;

#define CHECK(condition)                                               \
    do {                                                               \
        if (condition) {                                               \
            passed++;                                                  \
        } else {                                                       \
            failed++;                                                  \
            printf("mixed_c.c:%d: not so: %s\n", __LINE__, #condition); \
        }                                                              \
    } while (0)

void check_handles_(MPI_Fint *comm, MPI_Fint *vector, MPI_Fint *group, MPI_Fint *info, MPI_Fint *op,
                    MPI_Fint *request)
{
    MPI_Comm c = MPI_Comm_f2c(*comm);
    MPI_Datatype t = MPI_Type_f2c(*vector);
    MPI_Request r = MPI_Request_f2c(*request);
    MPI_Status status;
    int size = 0, n = 0, x[2] = {0, 0};
    char value[8] = "";
    CHECK(MPI_Comm_size(c, &size) == MPI_SUCCESS && size == 1);
    CHECK(MPI_Comm_c2f(c) == *comm && PMPI_Comm_c2f(c) == *comm);
    CHECK(MPI_Comm_f2c(MPI_Comm_c2f(MPI_COMM_SELF)) == MPI_COMM_SELF);
    CHECK(MPI_Type_size(t, &size) == MPI_SUCCESS && size == 24 && MPI_Type_c2f(t) == *vector);
    CHECK(MPI_Group_size(MPI_Group_f2c(*group), &n) == MPI_SUCCESS && n == 1);
    CHECK(MPI_Group_c2f(MPI_Group_f2c(*group)) == *group);
    CHECK(MPI_Info_get(MPI_Info_f2c(*info), "key", 7, value, &n) == MPI_SUCCESS);
    CHECK(!strcmp(value, "value") && MPI_Info_c2f(MPI_Info_f2c(*info)) == *info);
    CHECK(MPI_Op_f2c(*op) == MPI_MAX && MPI_Op_c2f(MPI_MAX) == *op);
    CHECK(MPI_Errhandler_f2c(MPI_Errhandler_c2f(MPI_ERRORS_RETURN)) == MPI_ERRORS_RETURN);
    CHECK(MPI_File_f2c(MPI_File_c2f(MPI_FILE_NULL)) == MPI_FILE_NULL);
    CHECK(MPI_Win_f2c(MPI_Win_c2f(MPI_WIN_NULL)) == MPI_WIN_NULL);
    CHECK(MPI_Message_f2c(MPI_Message_c2f(MPI_MESSAGE_NO_PROC)) == MPI_MESSAGE_NO_PROC);
    CHECK(MPI_Session_f2c(MPI_Session_c2f(MPI_SESSION_NULL)) == MPI_SESSION_NULL);
    CHECK(MPI_Recv(x, 2, MPI_INT, 0, 11, c, &status) == MPI_SUCCESS && x[1] == 8);
    CHECK(MPI_Request_c2f(r) == *request && MPI_Wait(&r, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    *request = MPI_Request_c2f(r);
    static int out = 5;
    CHECK(MPI_Isend(&out, 1, MPI_INT, 0, 12, c, &r) == MPI_SUCCESS);
    CHECK(MPI_Request_free(&r) == MPI_SUCCESS);
}

void check_ignored_(MPI_Fint *one, MPI_Fint *many)
{
    CHECK(one == MPI_F_STATUS_IGNORE && many == MPI_F_STATUSES_IGNORE);
    CHECK(MPI_F08_STATUS_IGNORE != MPI_F08_STATUSES_IGNORE && MPI_F08_STATUS_IGNORE);
}

void check_status_(MPI_Fint *f_status)
{
    MPI_Status status, back;
    MPI_F08_status f08;
    MPI_Fint again[MPI_F_STATUS_SIZE];
    int n = 0;
    CHECK(MPI_Status_f2c(f_status, &status) == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == 0 && status.MPI_TAG == 12 && f_status[MPI_F_TAG] == 12);
    CHECK(MPI_Get_count(&status, MPI_INT, &n) == MPI_SUCCESS && n == 1);
    CHECK(MPI_Status_c2f08(&status, &f08) == MPI_SUCCESS && f08.MPI_TAG == 12);
    CHECK(MPI_Status_f082f(&f08, again) == MPI_SUCCESS && !memcmp(again, f_status, sizeof again));
    CHECK(MPI_Status_f2f08(again, &f08) == MPI_SUCCESS);
    CHECK(MPI_Status_f082c(&f08, &back) == MPI_SUCCESS && !memcmp(&back, &status, sizeof back));
    CHECK(PMPI_Status_c2f(&back, again) == MPI_SUCCESS && again[MPI_F_SOURCE] == 0);
}

void check_attribute_(MPI_Fint *key)
{
    MPI_Aint *value = NULL;
    MPI_Comm copy;
    int flag = 0;
    CHECK(MPI_Comm_get_attr(MPI_COMM_SELF, *key, &value, &flag) == MPI_SUCCESS && flag);
    CHECK(*value == 4711);
    MPI_Comm_dup(MPI_COMM_SELF, &copy);
    CHECK(MPI_Comm_get_attr(copy, *key, &value, &flag) == MPI_SUCCESS && flag && *value == 4711);
    MPI_Comm_free(&copy);
    CHECK(MPI_Comm_set_attr(MPI_COMM_SELF, *key, (void *)(MPI_Aint)-9) == MPI_SUCCESS);
}

void make_in_c_(MPI_Fint *comm, MPI_Fint *vector)
{
    MPI_Comm c;
    MPI_Datatype t = MPI_Type_f2c(*vector);
    MPI_Type_free(&t);
    MPI_Type_contiguous(3, MPI_DOUBLE, &t);
    MPI_Comm_dup(MPI_COMM_WORLD, &c);
    *comm = MPI_Comm_c2f(c);
    *vector = MPI_Type_c2f(t);
}

void mixed_end_(int *bad)
{
    failed += *bad;
    printf("mixed: %d passed, %d failed\n", passed, failed);
    exit(failed != 0);
}
