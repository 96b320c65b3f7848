/* Completion families, persistent requests, cancel, request_free, null and inactive requests. */
#include "check.h"

enum { MANY = 12 };

static void post_ring(MPI_Request *r, int *in, int *out)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int i = 0; i < MANY; i++) {
        in[i] = -1;
        out[i] = rank * 100 + i;
        OK(MPI_Irecv(&in[i], 1, MPI_INT, from, i, MPI_COMM_WORLD, &r[i]));
    }
    for (int i = MANY - 1; i >= 0; i--)
        OK(MPI_Isend(&out[i], 1, MPI_INT, to, i, MPI_COMM_WORLD, &r[MANY + i]));
}

static void all_in(const int *in)
{
    int from = (rank + ranks - 1) % ranks;
    for (int i = 0; i < MANY; i++)
        CHECK(in[i] == from * 100 + i, "receive %d has %d", i, in[i]);
}

static void waitany(void)
{
    MPI_Request r[2 * MANY];
    MPI_Status status;
    int in[MANY], out[MANY], seen[2 * MANY] = {0}, index;
    post_ring(r, in, out);
    for (int k = 0; k < 2 * MANY; k++) {
        OK(MPI_Waitany(2 * MANY, r, &index, &status));
        CHECK(index >= 0 && index < 2 * MANY && !seen[index], "index %d", index);
        CHECK(r[index] == MPI_REQUEST_NULL, "request %d is null", index);
        if (index < MANY)
            CHECK(status.MPI_TAG == index, "tag %d of request %d", status.MPI_TAG, index);
        seen[index] = 1;
    }
    OK(MPI_Waitany(2 * MANY, r, &index, &status));
    CHECK(index == MPI_UNDEFINED, "index %d of null requests", index);
    all_in(in);
}

static void testany(void)
{
    MPI_Request r[2 * MANY];
    MPI_Status status;
    int in[MANY], out[MANY], done = 0, flag, index;
    post_ring(r, in, out);
    while (done < 2 * MANY) {
        OK(MPI_Testany(2 * MANY, r, &index, &flag, &status));
        if (flag) {
            CHECK(index != MPI_UNDEFINED, "done %d", done);
            done++;
        }
    }
    OK(MPI_Testany(2 * MANY, r, &index, &flag, &status));
    CHECK(flag && index == MPI_UNDEFINED, "flag %d index %d", flag, index);
    all_in(in);
}

static void some(int wait)
{
    MPI_Request r[2 * MANY];
    MPI_Status statuses[2 * MANY];
    int in[MANY], out[MANY], done = 0, count, indices[2 * MANY], seen[2 * MANY] = {0};
    post_ring(r, in, out);
    while (done < 2 * MANY) {
        if (wait)
            OK(MPI_Waitsome(2 * MANY, r, &count, indices, statuses));
        else
            OK(MPI_Testsome(2 * MANY, r, &count, indices, statuses));
        CHECK(count != MPI_UNDEFINED && (!wait || count > 0), "count %d after %d", count, done);
        for (int i = 0; i < count; i++) {
            CHECK(!seen[indices[i]], "index %d twice", indices[i]);
            seen[indices[i]] = 1;
            if (indices[i] < MANY)
                CHECK(statuses[i].MPI_TAG == indices[i], "tag %d", statuses[i].MPI_TAG);
        }
        done += count;
    }
    OK(wait ? MPI_Waitsome(2 * MANY, r, &count, indices, statuses)
            : MPI_Testsome(2 * MANY, r, &count, indices, statuses));
    CHECK(count == MPI_UNDEFINED, "count %d of null requests", count);
    all_in(in);
}

static void test_and_testall(void)
{
    MPI_Request r[2 * MANY];
    MPI_Status statuses[2 * MANY];
    int in[MANY], out[MANY], flag = 0;
    post_ring(r, in, out);
    while (!flag)
        OK(MPI_Testall(2 * MANY, r, &flag, statuses));
    all_in(in);
    for (int i = 0; i < MANY; i++)
        CHECK(statuses[i].MPI_TAG == i, "status %d", i);
    post_ring(r, in, out);
    for (int i = 0; i < 2 * MANY; i++) {
        int peek = 0;
        while (!peek)
            OK(MPI_Request_get_status(r[i], &peek, &statuses[i]));
        CHECK(r[i] != MPI_REQUEST_NULL, "get_status leaves the request");
        flag = 0;
        while (!flag)
            OK(MPI_Test(&r[i], &flag, &statuses[i]));
        CHECK(r[i] == MPI_REQUEST_NULL, "test frees the request");
    }
    all_in(in);
}

static void null_requests(void)
{
    MPI_Request null = MPI_REQUEST_NULL;
    MPI_Status status;
    int flag = 0, count = -1;
    OK(MPI_Wait(&null, &status));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG && count == 0,
          "empty status");
    OK(MPI_Test(&null, &flag, &status));
    CHECK(flag, "a null request is done");
    OK(MPI_Waitall(0, NULL, MPI_STATUSES_IGNORE));
}

typedef int init_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

static void persistent(init_fn *init, int ready)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, out[100], in[100];
    MPI_Request r[2];
    MPI_Status s[2];
    OK(MPI_Recv_init(in, 100, MPI_INT, from, 5, MPI_COMM_WORLD, &r[0]));
    OK(init(out, 100, MPI_INT, to, 5, MPI_COMM_WORLD, &r[1]));
    int flag = 0;
    OK(MPI_Test(&r[0], &flag, &s[0]));
    CHECK(flag && r[0] != MPI_REQUEST_NULL, "an inactive request is done");
    for (int round = 0; round < 5; round++) {
        for (int i = 0; i < 100; i++)
            out[i] = rank * 10000 + round * 100 + i;
        if (ready) {
            OK(MPI_Start(&r[0]));
            OK(MPI_Barrier(MPI_COMM_WORLD));
            OK(MPI_Start(&r[1]));
        } else
            OK(MPI_Startall(2, r));
        OK(MPI_Waitall(2, r, s));
        CHECK(r[0] != MPI_REQUEST_NULL && r[1] != MPI_REQUEST_NULL, "persistent requests stay");
        CHECK(s[0].MPI_SOURCE == from, "source %d", s[0].MPI_SOURCE);
        for (int i = 0; i < 100; i++)
            CHECK(in[i] == from * 10000 + round * 100 + i, "round %d: %d", round, in[i]);
    }
    OK(MPI_Request_free(&r[0]));
    OK(MPI_Request_free(&r[1]));
    CHECK(r[0] == MPI_REQUEST_NULL, "free sets null");
}

static void cancel(void)
{
    int value = -1, cancelled = 0;
    MPI_Request r;
    MPI_Status status;
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 99, MPI_COMM_WORLD, &r));
    OK(MPI_Cancel(&r));
    OK(MPI_Wait(&r, &status));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(cancelled && r == MPI_REQUEST_NULL, "an unmatched receive can be cancelled");
    /* A message that is sent after the cancellation goes to the next receive. */
    int out = rank + 5;
    OK(MPI_Isend(&out, 1, MPI_INT, rank, 99, MPI_COMM_WORLD, &r));
    int second = -1;
    OK(MPI_Recv(&second, 1, MPI_INT, rank, 99, MPI_COMM_WORLD, &status));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    OK(MPI_Test_cancelled(&status, &cancelled));
    CHECK(!cancelled && second == rank + 5 && value == -1, "value %d second %d", value, second);
}

/* A send whose request is freed while it is under way is delivered all the same. */
static void free_active(void)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks, out = rank * 3, in = -1;
    MPI_Request r;
    OK(MPI_Isend(&out, 1, MPI_INT, to, 41, MPI_COMM_WORLD, &r));
    OK(MPI_Request_free(&r));
    OK(MPI_Recv(&in, 1, MPI_INT, from, 41, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    CHECK(in == from * 3, "in %d", in);
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* A synchronous send is not done before its receive has been posted. */
static void synchronous(void)
{
    int out = 1, in = 0, flag = 1;
    MPI_Request s, r;
    OK(MPI_Issend(&out, 1, MPI_INT, rank, 50, MPI_COMM_WORLD, &s));
    for (int i = 0; i < 100; i++) {
        OK(MPI_Test(&s, &flag, MPI_STATUS_IGNORE));
        CHECK(!flag, "a synchronous send is done without a receive");
    }
    OK(MPI_Irecv(&in, 1, MPI_INT, rank, 50, MPI_COMM_WORLD, &r));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&s, MPI_STATUS_IGNORE));
    CHECK(in == 1, "in %d", in);
}

#define EMPTY(call)                                                               \
    do {                                                                          \
        memset(&one, 0x55, sizeof one);                                           \
        OK(call);                                                                 \
        CHECK(one.MPI_SOURCE == MPI_ANY_SOURCE && one.MPI_TAG == MPI_ANY_TAG &&   \
                  one.MPI_ERROR == MPI_SUCCESS, "%s: %d %d %d", #call,            \
              one.MPI_SOURCE, one.MPI_TAG, one.MPI_ERROR);                        \
    } while (0)

/* No request, and persistent ones that were not started: their status is the empty one, with its error. */
static void empty_statuses(void)
{
    int index, flag = 0, x = 0;
    MPI_Status one, many[2];
    for (int kind = 0; kind < 2; kind++) {
        MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
        for (int i = 0; kind && i < 2; i++)
            OK(MPI_Recv_init(&x, 1, MPI_INT, rank, 70, MPI_COMM_WORLD, &requests[i]));
        EMPTY(MPI_Wait(&requests[0], &one));
        EMPTY(MPI_Test(&requests[0], &flag, &one));
        CHECK(flag, "test");
        EMPTY(MPI_Waitany(2, requests, &index, &one));
        CHECK(index == MPI_UNDEFINED, "index %d", index);
        EMPTY(MPI_Testany(2, requests, &index, &flag, &one));
        CHECK(flag && index == MPI_UNDEFINED, "index %d", index);
        EMPTY(MPI_Request_get_status(requests[0], &flag, &one));
        CHECK(flag, "get_status");
        for (int all = 0; all < 2; all++) {
            memset(many, 0x55, sizeof many);
            if (all)
                OK(MPI_Waitall(2, requests, many));
            else
                OK(MPI_Testall(2, requests, &flag, many));
            for (int i = 0; i < 2; i++)
                CHECK(many[i].MPI_ERROR == MPI_SUCCESS && many[i].MPI_TAG == MPI_ANY_TAG, "%d", i);
        }
        for (int i = 0; kind && i < 2; i++)
            OK(MPI_Request_free(&requests[i]));
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    static char buffer[1 << 16];
    OK(MPI_Buffer_attach(buffer, sizeof buffer));
    waitany();
    testany();
    some(1);
    some(0);
    test_and_testall();
    null_requests();
    empty_statuses();
    persistent(MPI_Send_init, 0);
    persistent(MPI_Ssend_init, 0);
    persistent(MPI_Bsend_init, 0);
    persistent(MPI_Rsend_init, 1);
    cancel();
    free_active();
    synchronous();
    void *detached;
    int bytes;
    OK(MPI_Buffer_detach(&detached, &bytes));
    return finish("requests");
}
