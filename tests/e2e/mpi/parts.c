/*
 * Partitioned messages, generalised requests, buffers of communicators and sessions.
 */
#include "check.h"

enum { ROUNDS = 120, PARTS = 8, EACH = 500, TAG = 3 };

static int number(int round, int world, int i)
{
    return (world + 1) * 100000 + i + round * 13;
}

/* A ring: each sends to the next in parts, in an order that depends on the round. */
static void ring(void)
{
    static int out[PARTS * EACH], inn[PARTS * EACH];
    int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
    MPI_Request requests[2];
    OK(MPI_Psend_init(out, PARTS, EACH, MPI_INT, next, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[0]));
    OK(MPI_Precv_init(inn, PARTS / 2, 2 * EACH, MPI_INT, before, TAG, MPI_COMM_WORLD, MPI_INFO_NULL,
                      &requests[1]));
    for (int round = 0; round < ROUNDS; round++) {
        OK(MPI_Startall(2, requests));
        for (int i = 0; i < PARTS * EACH; i++)
            out[i] = number(round, rank, i);
        int some[PARTS / 2], n = 0;
        for (int part = 1; part < PARTS; part += 2)
            some[n++] = part;
        OK(MPI_Pready_list(n, some, requests[0]));
        for (int part = 0; part < PARTS - 2; part += 2)
            OK(MPI_Pready(part, requests[0]));
        OK(MPI_Pready_range(PARTS - 2, PARTS - 2, requests[0]));
        int there = 0;
        while (round % 2 && !there)
            OK(MPI_Parrived(requests[1], round % (PARTS / 2), &there));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        for (int i = 0; i < PARTS * EACH; i++)
            CHECK(inn[i] == number(round, before, i), "round %d, %d: %d", round, i, inn[i]);
    }
    OK(MPI_Request_free(&requests[0]));
    OK(MPI_Request_free(&requests[1]));
}

static int queries, frees, cancels;

static int query(void *extra, MPI_Status *status)
{
    queries++;
    MPI_Status_set_elements(status, MPI_INT, *(int *)extra);
    MPI_Status_set_cancelled(status, 0);
    status->MPI_SOURCE = 4;
    status->MPI_TAG = 5;
    return MPI_SUCCESS;
}

static int freed(void *extra)
{
    frees += *(int *)extra > 0;
    return MPI_SUCCESS;
}

static int cancel(void *extra, int complete)
{
    (void)extra;
    cancels += complete ? 100 : 1;
    return MPI_SUCCESS;
}

static void generalised(void)
{
    int count = 6, n, done;
    MPI_Request request, list[2];
    MPI_Status status;
    OK(MPI_Grequest_start(query, freed, cancel, &count, &request));
    OK(MPI_Test(&request, &done, &status));
    CHECK(!done, "not complete yet");
    OK(MPI_Cancel(&request));
    OK(MPI_Grequest_complete(request));
    OK(MPI_Request_get_status(request, &done, &status));
    CHECK(done && queries == 1, "%d queries", queries);
    OK(MPI_Wait(&request, &status));
    OK(MPI_Get_count(&status, MPI_INT, &n));
    CHECK(request == MPI_REQUEST_NULL && n == 6 && status.MPI_SOURCE == 4 && status.MPI_TAG == 5,
          "%d %d %d", n, status.MPI_SOURCE, status.MPI_TAG);
    CHECK(queries == 2 && frees == 1 && cancels == 1, "%d %d %d", queries, frees, cancels);
    /* Beside a message. */
    int next = (rank + 1) % ranks, got = -1;
    OK(MPI_Grequest_start(query, freed, cancel, &count, &list[0]));
    OK(MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, TAG, MPI_COMM_WORLD, &list[1]));
    OK(MPI_Send(&rank, 1, MPI_INT, next, TAG, MPI_COMM_WORLD));
    OK(MPI_Grequest_complete(list[0]));
    OK(MPI_Waitall(2, list, MPI_STATUSES_IGNORE));
    CHECK(got == (rank + ranks - 1) % ranks, "%d", got);
    OK(MPI_Grequest_start(query, freed, cancel, &count, &request));
    MPI_Request copy = request;
    OK(MPI_Request_free(&request));
    CHECK(frees == 2, "%d", frees);
    OK(MPI_Grequest_complete(copy));
    CHECK(frees == 3 && queries == 3, "%d %d", frees, queries);
}

static void buffers(void)
{
    static char room[4096];
    void *at = NULL;
    int bytes, got, next = (rank + 1) % ranks;
    MPI_Comm comm;
    MPI_Request request;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_attach_buffer(comm, room, sizeof room));
    OK(MPI_Bsend(&rank, 1, MPI_INT, next, TAG, comm));
    OK(MPI_Comm_iflush_buffer(comm, &request));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Comm_flush_buffer(comm));
    OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, TAG, comm, MPI_STATUS_IGNORE));
    OK(MPI_Comm_detach_buffer(comm, &at, &bytes));
    CHECK(at == room && bytes == (int)sizeof room, "%p %d", at, bytes);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0));
    OK(MPI_Buffer_flush());
    OK(MPI_Buffer_detach(&at, &bytes));
    CHECK(at == MPI_BUFFER_AUTOMATIC, "%p", at);
}

/* A session beside MPI_Init: its own communicator of all ranks. */
static void sessions(void)
{
    MPI_Session session, second;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Info info;
    int n, length = 0, found = 0, flag;
    char name[MPI_MAX_PSET_NAME_LEN], text[16];
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session));
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &second));
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n));
    for (int i = 0; i < n; i++) {
        length = 0;
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, NULL));
        OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, &length, name));
        CHECK((int)strlen(name) == length - 1, "%s %d", name, length);
        found += !strcmp(name, "mpi://WORLD") || !strcmp(name, "mpi://SELF");
    }
    CHECK(found == 2, "%d", found);
    OK(MPI_Session_get_pset_info(session, "mpi://WORLD", &info));
    OK(MPI_Info_get(info, "mpi_size", sizeof text - 1, text, &flag));
    CHECK(flag && atoi(text) == ranks, "%s", text);
    OK(MPI_Info_free(&info));
    CHECK(class_of(MPI_Group_from_session_pset(session, "no://such", &group)) == MPI_ERR_ARG, "no set");
    OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
    OK(MPI_Session_finalize(&second));
    OK(MPI_Comm_create_from_group(group, "org.eyrie.session", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm));
    int sum;
    OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
    CHECK(sum == ranks * (ranks - 1) / 2, "%d", sum);
    OK(MPI_Comm_free(&comm));
    OK(MPI_Group_free(&group));
    OK(MPI_Session_finalize(&session));
    CHECK(session == MPI_SESSION_NULL, "it is gone");
    CHECK(class_of(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &n)) != MPI_SUCCESS, "no session");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    OK(MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN));
    sessions();
    generalised();
    buffers();
    ring();
    return finish("parts");
}
