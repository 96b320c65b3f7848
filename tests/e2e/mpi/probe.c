/* MPI_Probe, Iprobe, Mprobe, Improbe, Mrecv, Imrecv; counts of what was found. */
#include "check.h"

static void probe_then_receive(void)
{
    if (rank != 0) {
        int data[100];
        for (int i = 0; i < 100; i++)
            data[i] = rank * 1000 + i;
        OK(MPI_Send(data, rank * 3, MPI_INT, 0, rank, MPI_COMM_WORLD));
        return;
    }
    for (int p = 1; p < ranks; p++) {
        MPI_Status found, got;
        int count, data[100] = {0};
        OK(MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found));
        OK(MPI_Get_count(&found, MPI_INT, &count));
        CHECK(found.MPI_TAG == found.MPI_SOURCE && count == found.MPI_SOURCE * 3, "count %d",
              count);
        OK(MPI_Recv(data, count, MPI_INT, found.MPI_SOURCE, found.MPI_TAG, MPI_COMM_WORLD, &got));
        CHECK(got.MPI_SOURCE == found.MPI_SOURCE, "received of %d, found of %d", got.MPI_SOURCE,
              found.MPI_SOURCE);
        for (int i = 0; i < count; i++)
            CHECK(data[i] == got.MPI_SOURCE * 1000 + i, "data %d", data[i]);
    }
}

static void iprobe(void)
{
    int flag = 1, out = rank, value = -1;
    MPI_Status status;
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, &status));
    CHECK(!flag, "found a message that nobody sent");
    OK(MPI_Barrier(MPI_COMM_WORLD));
    MPI_Request request;
    OK(MPI_Isend(&out, 1, MPI_INT, (rank + 1) % ranks, 77, MPI_COMM_WORLD, &request));
    do
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, &status));
    while (!flag);
    CHECK(status.MPI_SOURCE == (rank + ranks - 1) % ranks, "found %d", status.MPI_SOURCE);
    OK(MPI_Iprobe(MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(flag, "a probed message stays there");
    OK(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 77, MPI_COMM_WORLD, &status));
    CHECK(value == (rank + ranks - 1) % ranks, "value %d", value);
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

/* A matched message is no more visible to probes and receives. */
static void mprobe(void)
{
    double out[3][3] = {{rank + 0.5, 0, 9}, {rank + 0.5, 1, 9}, {rank + 0.5, 2, 9}}, in[4] = {0};
    MPI_Request r[3], receive;
    for (int i = 0; i < 3; i++)
        OK(MPI_Isend(out[i], 2 + i % 2, MPI_DOUBLE, rank, 20, MPI_COMM_WORLD, &r[i]));
    MPI_Message first, second;
    MPI_Status status;
    int flag, count;
    OK(MPI_Mprobe(rank, 20, MPI_COMM_WORLD, &first, &status));
    do
        OK(MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &second, &status));
    while (!flag);
    OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
    CHECK(count == 3, "the second message has 3 numbers, not %d", count);
    OK(MPI_Recv(in, 4, MPI_DOUBLE, MPI_ANY_SOURCE, 20, MPI_COMM_WORLD, &status));
    CHECK(in[1] == 2, "the receive took message %g", in[1]);
    OK(MPI_Imrecv(in, 4, MPI_DOUBLE, &second, &receive));
    CHECK(second == MPI_MESSAGE_NULL, "Imrecv sets the message to null");
    OK(MPI_Wait(&receive, &status));
    CHECK(in[0] == rank + 0.5 && in[1] == 1, "message %g %g", in[0], in[1]);
    OK(MPI_Mrecv(in, 4, MPI_DOUBLE, &first, &status));
    CHECK(first == MPI_MESSAGE_NULL && in[1] == 0, "message %g", in[1]);
    OK(MPI_Get_count(&status, MPI_DOUBLE, &count));
    CHECK(count == 2 && status.MPI_SOURCE == rank && status.MPI_TAG == 20, "count %d", count);
    OK(MPI_Waitall(3, r, MPI_STATUSES_IGNORE));
}

static void mprobe_between_ranks(void)
{
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    static unsigned char out[200000], in[200000];
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    fill(out, sizeof out, (unsigned)rank);
    OK(MPI_Isend(out, (int)sizeof out, MPI_BYTE, to, 21, MPI_COMM_WORLD, &request));
    OK(MPI_Mprobe(MPI_ANY_SOURCE, 21, MPI_COMM_WORLD, &message, &status));
    CHECK(status.MPI_SOURCE == from, "source %d", status.MPI_SOURCE);
    OK(MPI_Mrecv(in, (int)sizeof in, MPI_BYTE, &message, MPI_STATUS_IGNORE));
    CHECK(is_filled(in, sizeof in, (unsigned)from), "content");
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
}

static void null_probes(void)
{
    MPI_Status status;
    MPI_Message message;
    int flag = 0, count = -1;
    OK(MPI_Probe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &status));
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG, "probe of nobody");
    OK(MPI_Iprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &flag, &status));
    CHECK(flag, "iprobe of nobody finds at once");
    OK(MPI_Mprobe(MPI_PROC_NULL, 1, MPI_COMM_WORLD, &message, &status));
    CHECK(message == MPI_MESSAGE_NO_PROC, "mprobe of nobody");
    OK(MPI_Mrecv(NULL, 0, MPI_BYTE, &message, &status));
    OK(MPI_Get_count(&status, MPI_BYTE, &count));
    CHECK(count == 0 && message == MPI_MESSAGE_NULL, "count %d", count);
}

/* Counts in a type that the bytes do not fill. */
static void counts(void)
{
    unsigned char bytes[10] = {0}, got[10];
    MPI_Request request;
    MPI_Status status;
    int count;
    OK(MPI_Isend(bytes, 10, MPI_BYTE, rank, 30, MPI_COMM_WORLD, &request));
    OK(MPI_Recv(got, 10, MPI_BYTE, rank, 30, MPI_COMM_WORLD, &status));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Get_count(&status, MPI_INT, &count));
    CHECK(count == MPI_UNDEFINED, "10 bytes are %d ints", count);
    MPI_Datatype pair;
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_commit(&pair));
    int data[6] = {0}, pairs[6];
    OK(MPI_Isend(data, 3, MPI_INT, rank, 31, MPI_COMM_WORLD, &request));
    OK(MPI_Recv(pairs, 3, pair, rank, 31, MPI_COMM_WORLD, &status));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Get_count(&status, pair, &count));
    CHECK(count == MPI_UNDEFINED, "1.5 pairs are %d pairs", count);
    OK(MPI_Get_elements(&status, pair, &count));
    CHECK(count == 3, "1.5 pairs have %d elements", count);
    OK(MPI_Status_set_elements(&status, MPI_INT, 5));
    OK(MPI_Get_elements(&status, MPI_INT, &count));
    CHECK(count == 5, "set 5 elements, got %d", count);
    OK(MPI_Type_free(&pair));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    probe_then_receive();
    iprobe();
    mprobe();
    OK(MPI_Barrier(MPI_COMM_WORLD));
    mprobe_between_ranks();
    null_probes();
    counts();
    return finish("probe");
}
