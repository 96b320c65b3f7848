/* Point-to-point in every send mode, blocking and not, all sizes, self-sends, order, MPI_PROC_NULL,
 * truncation. */
#include "check.h"

static const size_t SIZES[] = {0,    1,    7,     8,     63,     64,      65,
                               1000, 4096, 65536, 65537, 300000, 1 << 20, (5 << 20) + 3};
enum { SIZE_COUNT = sizeof SIZES / sizeof *SIZES };

typedef int send_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm);
typedef int isend_fn(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

/* Around the ring with one blocking mode: even ranks send first. A ready send needs its receive
 * posted. */
static void ring_blocking(send_fn *send, int ready)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    if (ranks == 1)
        return;
    for (int k = 0; k < SIZE_COUNT; k++) {
        unsigned char *out = malloc(SIZES[k] + 1), *in = calloc(SIZES[k] + 1, 1);
        fill(out, SIZES[k], (unsigned)rank);
        MPI_Request request;
        MPI_Status status;
        OK(MPI_Irecv(in, (int)SIZES[k], MPI_BYTE, from, k, MPI_COMM_WORLD, &request));
        if (ready)
            OK(MPI_Barrier(MPI_COMM_WORLD));
        OK(send(out, (int)SIZES[k], MPI_BYTE, to, k, MPI_COMM_WORLD));
        OK(MPI_Wait(&request, &status));
        int count;
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(status.MPI_SOURCE == from && status.MPI_TAG == k, "from %d tag %d", status.MPI_SOURCE,
              status.MPI_TAG);
        CHECK((size_t)count == SIZES[k], "%d bytes instead of %zu", count, SIZES[k]);
        CHECK(is_filled(in, SIZES[k], (unsigned)from), "content of %zu bytes", SIZES[k]);
        free(out);
        free(in);
    }
}

/* Every rank sends to every rank (itself too), all at once. */
static void all_to_all(isend_fn *isend, int ready)
{
    for (int k = 0; k < SIZE_COUNT - 1; k++) {
        size_t bytes = SIZES[k];
        unsigned char *out = malloc((size_t)ranks * bytes + 1),
                      *in = calloc((size_t)ranks * bytes + 1, 1);
        MPI_Request *r = malloc(2 * (size_t)ranks * sizeof *r);
        MPI_Status *s = malloc(2 * (size_t)ranks * sizeof *s);
        for (int p = 0; p < ranks; p++)
            OK(MPI_Irecv(in + (size_t)p * bytes, (int)bytes, MPI_BYTE, p, 5, MPI_COMM_WORLD,
                         &r[p]));
        if (ready)
            OK(MPI_Barrier(MPI_COMM_WORLD));
        for (int p = 0; p < ranks; p++) {
            fill(out + (size_t)p * bytes, bytes, (unsigned)(rank * 100 + p));
            OK(isend(out + (size_t)p * bytes, (int)bytes, MPI_BYTE, p, 5, MPI_COMM_WORLD,
                     &r[ranks + p]));
        }
        OK(MPI_Waitall(2 * ranks, r, s));
        for (int p = 0; p < ranks; p++) {
            CHECK(s[p].MPI_SOURCE == p, "source %d", s[p].MPI_SOURCE);
            CHECK(is_filled(in + (size_t)p * bytes, bytes, (unsigned)(p * 100 + rank)),
                  "%zu bytes of %d", bytes, p);
            CHECK(r[p] == MPI_REQUEST_NULL && r[ranks + p] == MPI_REQUEST_NULL,
                  "requests are null after Waitall");
        }
        free(out);
        free(in);
        free(r);
        free(s);
    }
}

static void sendrecv(void)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    for (int k = 0; k < SIZE_COUNT; k++) {
        unsigned char *out = malloc(SIZES[k] + 1), *in = calloc(SIZES[k] + 1, 1);
        MPI_Status status;
        fill(out, SIZES[k], (unsigned)rank + 7);
        OK(MPI_Sendrecv(out, (int)SIZES[k], MPI_BYTE, to, 3, in, (int)SIZES[k], MPI_BYTE, from, 3,
                        MPI_COMM_WORLD, &status));
        CHECK(is_filled(in, SIZES[k], (unsigned)from + 7), "sendrecv of %zu", SIZES[k]);
        OK(MPI_Sendrecv_replace(out, (int)SIZES[k], MPI_BYTE, to, 4, from, 4, MPI_COMM_WORLD,
                                &status));
        CHECK(is_filled(out, SIZES[k], (unsigned)from + 7), "sendrecv_replace of %zu", SIZES[k]);
        CHECK(status.MPI_SOURCE == from && status.MPI_TAG == 4, "status");
        free(out);
        free(in);
    }
}

/* Messages of one pair and tag stay in order; tags pick out of order; wildcards take the oldest. */
static void order(void)
{
    enum { MANY = 500 };
    if (rank == 0) {
        for (int p = 1; p < ranks; p++)
            for (int i = 0; i < MANY; i++)
                OK(MPI_Send(&i, 1, MPI_INT, p, i % 3, MPI_COMM_WORLD));
    } else {
        int got, expected[3] = {0, 1, 2};
        MPI_Status status;
        for (int i = 2; i < MANY; i += 3) { /* tag 2 first, though sent last */
            OK(MPI_Recv(&got, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, &status));
            CHECK(got == i, "got %d instead of %d", got, i);
        }
        for (int i = 0; i < MANY; i++) {
            if (i % 3 == 2)
                continue;
            OK(MPI_Recv(&got, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status));
            CHECK(status.MPI_TAG < 2 && got == expected[status.MPI_TAG], "got %d with tag %d", got,
                  status.MPI_TAG);
            CHECK(got == i, "wildcard took %d instead of %d", got, i);
            expected[status.MPI_TAG] += 3;
        }
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* A posted wildcard receive before a specific one, and the other way round. */
static void posted_order(void)
{
    if (ranks < 2 || rank > 1)
        return;
    int peer = 1 - rank, in[4] = {-1, -1, -1, -1};
    MPI_Request r[4];
    MPI_Status s[4];
    OK(MPI_Irecv(&in[0], 1, MPI_INT, peer, 11, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Irecv(&in[1], 1, MPI_INT, peer, MPI_ANY_TAG, MPI_COMM_WORLD, &r[1]));
    OK(MPI_Irecv(&in[2], 1, MPI_INT, MPI_ANY_SOURCE, 11, MPI_COMM_WORLD, &r[2]));
    OK(MPI_Irecv(&in[3], 1, MPI_INT, peer, 12, MPI_COMM_WORLD, &r[3]));
    int out[4] = {100, 101, 102, 103}, tags[4] = {11, 12, 12, 11};
    for (int i = 0; i < 4; i++)
        OK(MPI_Send(&out[i], 1, MPI_INT, peer, tags[i], MPI_COMM_WORLD));
    OK(MPI_Waitall(4, r, s));
    CHECK(in[0] == 100 && in[1] == 101 && in[2] == 103 && in[3] == 102, "%d %d %d %d", in[0], in[1],
          in[2], in[3]);
    CHECK(s[1].MPI_TAG == 12 && s[2].MPI_SOURCE == peer, "statuses");
}

static void proc_null(void)
{
    int value = 42;
    MPI_Status status;
    MPI_Request request;
    OK(MPI_Send(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    OK(MPI_Ssend(&value, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD));
    OK(MPI_Recv(&value, 1, MPI_INT, MPI_PROC_NULL, 9, MPI_COMM_WORLD, &status));
    int count;
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(value == 42 && status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG &&
              count == 0,
          "source %d tag %d count %d", status.MPI_SOURCE, status.MPI_TAG, count);
    OK(MPI_Irecv(&value, 1, MPI_INT, MPI_PROC_NULL, 9, MPI_COMM_WORLD, &request));
    OK(MPI_Wait(&request, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL, "source %d", status.MPI_SOURCE);
}

/* Errors that are the receiver's own come back from the call. */
static void errors(void)
{
    int out[8] = {1, 2, 3, 4, 5, 6, 7, 8}, in[8] = {0};
    MPI_Status status;
    MPI_Request request;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* Errors that belong to no communicator go to MPI_COMM_SELF's handler. */
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    OK(MPI_Isend(out, 8, MPI_INT, rank, 1, MPI_COMM_WORLD, &request));
    int code = MPI_Recv(in, 4, MPI_INT, rank, 1, MPI_COMM_WORLD, &status);
    CHECK(class_of(code) == MPI_ERR_TRUNCATE, "class %d", class_of(code));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    code = MPI_Send(out, 1, MPI_INT, ranks, 0, MPI_COMM_WORLD);
    CHECK(class_of(code) == MPI_ERR_RANK, "class %d", class_of(code));
    code = MPI_Send(out, -1, MPI_INT, rank, 0, MPI_COMM_WORLD);
    CHECK(class_of(code) == MPI_ERR_COUNT, "class %d", class_of(code));
    code = MPI_Send(out, 1, MPI_INT, rank, -5, MPI_COMM_WORLD);
    CHECK(class_of(code) == MPI_ERR_TAG, "class %d", class_of(code));
    code = MPI_Send(out, 1, MPI_INT, rank, 0, MPI_COMM_NULL);
    CHECK(class_of(code) == MPI_ERR_COMM, "class %d", class_of(code));
    code = MPI_Send(out, 1, MPI_DATATYPE_NULL, rank, 0, MPI_COMM_WORLD);
    CHECK(class_of(code) == MPI_ERR_TYPE, "class %d", class_of(code));
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    int room = 2 * ((5 << 20) + 64) + 64 * (MPI_BSEND_OVERHEAD + 64);
    for (int k = 0; k < SIZE_COUNT; k++)
        room += (ranks + 1) * ((int)SIZES[k] + MPI_BSEND_OVERHEAD + 64);
    void *buffer = malloc((size_t)room), *detached;
    int detached_room;
    OK(MPI_Buffer_attach(buffer, room));
    ring_blocking(MPI_Send, 0);
    ring_blocking(MPI_Bsend, 0);
    ring_blocking(MPI_Ssend, 0);
    ring_blocking(MPI_Rsend, 1);
    all_to_all(MPI_Isend, 0);
    all_to_all(MPI_Ibsend, 0);
    all_to_all(MPI_Issend, 0);
    all_to_all(MPI_Irsend, 1);
    OK(MPI_Buffer_detach(&detached, &detached_room));
    CHECK(detached == buffer && detached_room == room, "detached %p of %d", detached,
          detached_room);
    free(buffer);
    sendrecv();
    order();
    posted_order();
    proc_null();
    errors();
    return finish("p2p");
}
