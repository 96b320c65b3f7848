/*
 * A rank dies before, in or after a call, and the others handle it (ULFM).
 *
 *   ulfm CALL before|in|after VICTIM
 *
 * Whoever gets an error revokes the communicator, so that nobody waits for somebody who has given up. Then all that
 * live shrink it, and the new one must work. Run with `eyrie run --on-failure report`. `ulfm all` lists the calls.
 */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "../mpi/check.h"

static int victim;
static MPI_Win window;
static MPI_File file;
static const char *path;

enum { COUNT = 300, LARGE = 1 << 20 };
static double in[16 * COUNT], out[16 * COUNT];
static char *large, *larger;

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

/* The first error of a call's parts. */
static int first(int a, int b) { return a != MPI_SUCCESS ? a : b; }

/* Completes a request: the error is in the call's result or in the status. */
static int complete(MPI_Request *request)
{
    int error = MPI_Wait(request, MPI_STATUS_IGNORE);
    if (*request != MPI_REQUEST_NULL) {
        /* It waits for a message of anybody. */
        MPI_Cancel(request);
        MPI_Request_free(request);
    }
    return error;
}

static int right(void) { return (rank + 1) % ranks; }
static int left(void) { return (rank + ranks - 1) % ranks; }

static int call_barrier(MPI_Comm comm) { return MPI_Barrier(comm); }
static int call_bcast(MPI_Comm comm) { return MPI_Bcast(large, LARGE, MPI_CHAR, 0, comm); }
static int call_reduce(MPI_Comm comm) { return MPI_Reduce(in, out, COUNT, MPI_DOUBLE, MPI_SUM, ranks - 1, comm); }
static int call_allreduce(MPI_Comm comm) { return MPI_Allreduce(in, out, COUNT, MPI_DOUBLE, MPI_SUM, comm); }
static int call_allreduce_large(MPI_Comm comm)
{
    return MPI_Allreduce(large, larger, LARGE / 8, MPI_DOUBLE, MPI_MAX, comm);
}
static int call_gather(MPI_Comm comm) { return MPI_Gather(in, COUNT, MPI_DOUBLE, out, COUNT, MPI_DOUBLE, 0, comm); }
static int call_scatter(MPI_Comm comm) { return MPI_Scatter(in, COUNT, MPI_DOUBLE, out, COUNT, MPI_DOUBLE, 0, comm); }
static int call_allgather(MPI_Comm comm) { return MPI_Allgather(in, COUNT, MPI_DOUBLE, out, COUNT, MPI_DOUBLE, comm); }
static int call_alltoall(MPI_Comm comm) { return MPI_Alltoall(in, COUNT, MPI_DOUBLE, out, COUNT, MPI_DOUBLE, comm); }
static int call_scan(MPI_Comm comm) { return MPI_Scan(in, out, COUNT, MPI_DOUBLE, MPI_SUM, comm); }
static int call_reduce_scatter(MPI_Comm comm)
{
    return MPI_Reduce_scatter_block(in, out, COUNT, MPI_DOUBLE, MPI_SUM, comm);
}
static int call_ibarrier(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Ibarrier(comm, &request);
    return first(error, complete(&request));
}
static int call_iallreduce(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Iallreduce(in, out, COUNT, MPI_DOUBLE, MPI_SUM, comm, &request);
    return first(error, complete(&request));
}
static int call_ibcast(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Ibcast(large, LARGE, MPI_CHAR, 0, comm, &request);
    return first(error, complete(&request));
}
static int call_sendrecv(MPI_Comm comm)
{
    return MPI_Sendrecv(in, COUNT, MPI_DOUBLE, right(), 1, out, COUNT, MPI_DOUBLE, left(), 1, comm, MPI_STATUS_IGNORE);
}
static int call_large(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Irecv(larger, LARGE, MPI_CHAR, left(), 2, comm, &request);
    error = first(error, MPI_Send(large, LARGE, MPI_CHAR, right(), 2, comm));
    if (error != MPI_SUCCESS && request != MPI_REQUEST_NULL) {
        /* Its sender may have given up, too. */
        MPI_Comm_revoke(comm);
    }
    return first(error, complete(&request));
}
static int call_ssend(MPI_Comm comm)
{
    if (ranks % 2 == 1 && rank == ranks - 1)
        return MPI_Recv(out, 0, MPI_DOUBLE, 0, 9, comm, MPI_STATUS_IGNORE);
    int peer = rank ^ 1;
    int error = rank % 2 == 0 ? MPI_Ssend(in, COUNT, MPI_DOUBLE, peer, 3, comm)
                              : MPI_Recv(out, COUNT, MPI_DOUBLE, peer, 3, comm, MPI_STATUS_IGNORE);
    if (ranks % 2 == 1 && rank == 0)
        error = first(error, MPI_Send(in, 0, MPI_DOUBLE, ranks - 1, 9, comm));
    return error;
}
static int call_any(MPI_Comm comm)
{
    int error = MPI_Send(in, 1, MPI_DOUBLE, right(), 4, comm);
    return first(error, MPI_Recv(out, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 4, comm, MPI_STATUS_IGNORE));
}
static int call_iany(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Irecv(out, 1, MPI_DOUBLE, MPI_ANY_SOURCE, 5, comm, &request);
    error = first(error, MPI_Send(in, 1, MPI_DOUBLE, right(), 5, comm));
    return first(error, complete(&request));
}
static int call_waitall(MPI_Comm comm)
{
    MPI_Request list[4] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Status status[4];
    int error = MPI_Irecv(out, COUNT, MPI_DOUBLE, left(), 6, comm, &list[0]);
    error = first(error, MPI_Irecv(out + COUNT, COUNT, MPI_DOUBLE, right(), 7, comm, &list[1]));
    error = first(error, MPI_Isend(in, COUNT, MPI_DOUBLE, right(), 6, comm, &list[2]));
    error = first(error, MPI_Isend(in, COUNT, MPI_DOUBLE, left(), 7, comm, &list[3]));
    int all = MPI_Waitall(4, list, status);
    if (all == MPI_ERR_IN_STATUS)
        for (int i = 0; i < 4; i++)
            error = first(error, status[i].MPI_ERROR);
    return first(error, all == MPI_ERR_IN_STATUS ? MPI_SUCCESS : all);
}
static int call_waitany(MPI_Comm comm)
{
    MPI_Request list[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    int error = MPI_Irecv(out, 1, MPI_DOUBLE, left(), 8, comm, &list[0]);
    error = first(error, MPI_Isend(in, 1, MPI_DOUBLE, right(), 8, comm, &list[1]));
    for (int i = 0, index; i < 2; i++)
        error = first(error, MPI_Waitany(2, list, &index, MPI_STATUS_IGNORE));
    return error;
}
static int call_test(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int error = MPI_Irecv(out, 1, MPI_DOUBLE, left(), 10, comm, &request);
    error = first(error, MPI_Send(in, 1, MPI_DOUBLE, right(), 10, comm));
    for (int done = 0; !done && error == MPI_SUCCESS;)
        error = MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    if (request != MPI_REQUEST_NULL) {
        MPI_Cancel(&request);
        MPI_Request_free(&request);
    }
    return error;
}
static int call_probe(MPI_Comm comm)
{
    int error = MPI_Send(in, 1, MPI_DOUBLE, right(), 11, comm);
    error = first(error, MPI_Probe(left(), 11, comm, MPI_STATUS_IGNORE));
    return error != MPI_SUCCESS ? error : MPI_Recv(out, 1, MPI_DOUBLE, left(), 11, comm, MPI_STATUS_IGNORE);
}
static int call_iprobe(MPI_Comm comm)
{
    int error = MPI_Send(in, 1, MPI_DOUBLE, right(), 12, comm);
    for (int there = 0; !there && error == MPI_SUCCESS;)
        error = MPI_Iprobe(MPI_ANY_SOURCE, 12, comm, &there, MPI_STATUS_IGNORE);
    return error != MPI_SUCCESS ? error : MPI_Recv(out, 1, MPI_DOUBLE, left(), 12, comm, MPI_STATUS_IGNORE);
}
static int call_persistent(MPI_Comm comm)
{
    MPI_Request list[2];
    int error = MPI_Recv_init(out, 1, MPI_DOUBLE, left(), 13, comm, &list[0]);
    error = first(error, MPI_Send_init(in, 1, MPI_DOUBLE, right(), 13, comm, &list[1]));
    if (error != MPI_SUCCESS)
        return error;
    error = MPI_Startall(2, list);
    for (int i = 1; i >= 0; i--) {
        error = first(error, MPI_Wait(&list[i], MPI_STATUS_IGNORE));
        MPI_Request_free(&list[i]);
    }
    return error;
}
static int call_dup(MPI_Comm comm)
{
    MPI_Comm made = MPI_COMM_NULL;
    int error = MPI_Comm_dup(comm, &made);
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made);
    return error;
}
static int call_split(MPI_Comm comm)
{
    MPI_Comm made = MPI_COMM_NULL;
    int error = MPI_Comm_split(comm, rank % 2, rank, &made);
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made);
    return error;
}
static int call_neighbours(MPI_Comm comm)
{
    MPI_Comm made = MPI_COMM_NULL;
    int dims[1] = {ranks}, periods[1] = {1};
    int error = MPI_Cart_create(comm, 1, dims, periods, 0, &made);
    if (made == MPI_COMM_NULL)
        return error;
    MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    error = MPI_Neighbor_allgather(in, COUNT, MPI_DOUBLE, out, COUNT, MPI_DOUBLE, made);
    if (error != MPI_SUCCESS)
        MPI_Comm_revoke(made);
    MPI_Comm_free(&made);
    return error;
}
static int call_agree(MPI_Comm comm)
{
    int flag = 6 | 1 << (4 + rank);
    int error = MPI_Comm_agree(comm, &flag);
    CHECK((flag & 6) == 6, "flag %d", flag);
    return error;
}
static int call_iagree(MPI_Comm comm)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int flag = -1;
    int error = MPI_Comm_iagree(comm, &flag, &request);
    error = first(error, complete(&request));
    CHECK(flag == -1, "flag %d", flag);
    return error;
}
static int shrunk(MPI_Comm comm, MPI_Comm made)
{
    int left, all;
    OK(MPI_Comm_size(made, &left));
    OK(MPI_Comm_size(comm, &all));
    MPI_Comm_free(&made);
    return left == all ? MPI_SUCCESS : MPI_ERR_PROC_FAILED;
}
static int call_shrink(MPI_Comm comm)
{
    MPI_Comm made = MPI_COMM_NULL;
    OK(MPI_Comm_shrink(comm, &made));
    return shrunk(comm, made);
}
static int call_ishrink(MPI_Comm comm)
{
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    OK(MPIX_Comm_ishrink(comm, &made, &request));
    OK(complete(&request));
    return shrunk(comm, made);
}
static int lost_in(MPI_Group group)
{
    int size;
    OK(MPI_Group_size(group, &size));
    MPI_Group_free(&group);
    return size == 0 ? MPI_SUCCESS : MPI_ERR_PROC_FAILED;
}
static int call_agree_failed(MPI_Comm comm)
{
    MPI_Group group = MPI_GROUP_NULL;
    OK(MPI_Comm_agree_failed(comm, &group));
    return lost_in(group);
}
static int call_iagree_failed(MPI_Comm comm)
{
    MPI_Group group = MPI_GROUP_NULL;
    MPI_Request request = MPI_REQUEST_NULL;
    OK(MPIX_Comm_iagree_failed(comm, &group, &request));
    OK(complete(&request));
    return lost_in(group);
}
static int call_fence(MPI_Comm comm)
{
    (void)comm;
    int error = MPI_Win_fence(0, window);
    error = first(error, MPI_Put(in, 1, MPI_DOUBLE, right(), 0, 1, MPI_DOUBLE, window));
    return first(error, MPI_Win_fence(0, window));
}
static int call_lock(MPI_Comm comm)
{
    (void)comm;
    int error = MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right(), 0, window);
    if (error != MPI_SUCCESS)
        return error;
    error = MPI_Accumulate(in, 1, MPI_DOUBLE, right(), 0, 1, MPI_DOUBLE, MPI_SUM, window);
    return first(error, MPI_Win_unlock(right(), window));
}
static int call_pscw(MPI_Comm comm)
{
    MPI_Group all, to, from;
    int r = right(), l = left();
    MPI_Comm_group(comm, &all);
    MPI_Group_incl(all, 1, &r, &to);
    MPI_Group_incl(all, 1, &l, &from);
    int error = MPI_Win_post(from, 0, window);
    error = first(error, MPI_Win_start(to, 0, window));
    if (error == MPI_SUCCESS) {
        error = MPI_Put(in, 1, MPI_DOUBLE, r, 0, 1, MPI_DOUBLE, window);
        error = first(error, MPI_Win_complete(window));
        error = first(error, MPI_Win_wait(window));
    }
    MPI_Group_free(&all);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    return error;
}
static int call_file(MPI_Comm comm)
{
    (void)comm;
    return MPI_File_write_at_all(file, rank * 64, in, 8, MPI_DOUBLE, MPI_STATUS_IGNORE);
}
static int call_file_shared(MPI_Comm comm)
{
    (void)comm;
    return MPI_File_write_ordered(file, in, 1, MPI_DOUBLE, MPI_STATUS_IGNORE);
}

static const struct call {
    const char *name;
    int (*call)(MPI_Comm);
    int window, file;
} calls[] = {
    {"barrier", call_barrier, 0, 0},
    {"bcast", call_bcast, 0, 0},
    {"reduce", call_reduce, 0, 0},
    {"allreduce", call_allreduce, 0, 0},
    {"allreduce_large", call_allreduce_large, 0, 0},
    {"gather", call_gather, 0, 0},
    {"scatter", call_scatter, 0, 0},
    {"allgather", call_allgather, 0, 0},
    {"alltoall", call_alltoall, 0, 0},
    {"scan", call_scan, 0, 0},
    {"reduce_scatter", call_reduce_scatter, 0, 0},
    {"ibarrier", call_ibarrier, 0, 0},
    {"iallreduce", call_iallreduce, 0, 0},
    {"ibcast", call_ibcast, 0, 0},
    {"sendrecv", call_sendrecv, 0, 0},
    {"large", call_large, 0, 0},
    {"ssend", call_ssend, 0, 0},
    {"any", call_any, 0, 0},
    {"iany", call_iany, 0, 0},
    {"waitall", call_waitall, 0, 0},
    {"waitany", call_waitany, 0, 0},
    {"test", call_test, 0, 0},
    {"probe", call_probe, 0, 0},
    {"iprobe", call_iprobe, 0, 0},
    {"persistent", call_persistent, 0, 0},
    {"dup", call_dup, 0, 0},
    {"split", call_split, 0, 0},
    {"neighbours", call_neighbours, 0, 0},
    {"agree", call_agree, 0, 0},
    {"iagree", call_iagree, 0, 0},
    {"shrink", call_shrink, 0, 0},
    {"ishrink", call_ishrink, 0, 0},
    {"agree_failed", call_agree_failed, 0, 0},
    {"iagree_failed", call_iagree_failed, 0, 0},
    {"fence", call_fence, 1, 0},
    {"lock", call_lock, 1, 0},
    {"pscw", call_pscw, 1, 0},
    {"file", call_file, 0, 1},
    {"file_shared", call_file_shared, 0, 1},
};

static void expect_failure(const char *name, int error)
{
    int class = class_of(error);
    CHECK(class == MPI_ERR_PROC_FAILED || class == MPIX_ERR_PROC_FAILED_PENDING || class == MPIX_ERR_REVOKED,
          "%s gives class %d", name, class);
}

/* The communicator is of no use any more: all that live make another one, which is. */
static void repair(const struct call *call, MPI_Comm comm)
{
    int flag, left, sum, one = 1;
    MPI_Comm made;
    MPI_Group failed;

    OK(MPI_Comm_revoke(comm));
    if (call->window)
        OK(MPI_Win_revoke(window));
    if (call->file)
        OK(MPI_File_revoke(file));
    OK(MPI_Comm_is_revoked(comm, &flag));
    CHECK(flag, "it is not revoked");
    OK(MPI_Comm_shrink(comm, &made));
    OK(MPI_Comm_size(made, &left));
    CHECK(left == ranks - 1, "%d are left of %d", left, ranks);
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, made));
    CHECK(sum == left, "%d of %d take part", sum, left);
    OK(MPI_Comm_get_failed(comm, &failed));
    OK(MPI_Group_size(failed, &flag));
    CHECK(flag == 1, "%d are lost", flag);
    MPI_Group_free(&failed);
    /* Once more, with what was acknowledged by all. */
    OK(MPI_Comm_failure_ack(comm));
    flag = ~(1 << rank);
    OK(MPI_Comm_agree(comm, &flag));
    for (int r = 0; r < ranks; r++)
        CHECK(r == victim || !(flag >> r & 1), "flag %x", flag);
    if (call->window)
        MPI_Win_free(&window);
    if (call->file)
        MPI_File_close(&file);
    int own;
    OK(MPI_Comm_rank(made, &own));
    OK(MPI_Barrier(made));
    if (own == 0) {
        unlink(path);
        printf("ok %s\n", call->name);
        fflush(stdout);
    }
    OK(MPI_Comm_free(&made));
}

static void run(const struct call *call, const char *when)
{
    MPI_Comm comm;
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    if (call->window) {
        static double memory[16];
        OK(MPI_Win_create(memory, sizeof memory, sizeof *memory, MPI_INFO_NULL, comm, &window));
        OK(MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN));
    }
    if (call->file)
        OK(MPI_File_open(comm, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file));
    /* As with a barrier, but all return alike, though who has got through may die before others have. */
    int error = MPI_SUCCESS, flag = 1;
    OK(MPI_Comm_agree(comm, &flag));
    if (!strcmp(when, "before")) {
        if (rank == victim)
            die();
        /* One call need not meet the loss: who only sends does not wait. */
        for (int i = 0; i < 2000000 && error == MPI_SUCCESS; i++)
            error = call->call(comm);
    } else if (!strcmp(when, "in")) {
        if (rank == victim) {
            /* By its default an alarm kills. */
            srand((unsigned)getpid());
            struct itimerval after = {{0, 0}, {0, 200 + rand() % 4000}};
            setitimer(ITIMER_REAL, &after, NULL);
        }
        for (int i = 0; i < 2000000 && error == MPI_SUCCESS; i++)
            error = call->call(comm);
    } else {
        /* Where one is through, another may hear of the loss before. */
        error = call->call(comm);
        if (rank == victim)
            die();
        if (error == MPI_SUCCESS)
            error = MPI_Recv(out, 1, MPI_DOUBLE, victim, 99, comm, MPI_STATUS_IGNORE);
    }
    CHECK(rank != victim, "it lives");
    expect_failure(call->name, error);
    repair(call, comm);
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv)
{
    const size_t count = sizeof calls / sizeof *calls;
    if (argc > 1 && !strcmp(argv[1], "all")) {
        for (size_t i = 0; i < count; i++)
            puts(calls[i].name);
        return 0;
    }
    if (argc != 4) {
        fputs("usage: ulfm CALL before|in|after VICTIM\n", stderr);
        return 2;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    victim = atoi(argv[3]) % ranks;
    path = getenv("ULFM_FILE") ? getenv("ULFM_FILE") : "ulfm.data";
    large = calloc(2, LARGE);
    larger = calloc(2, LARGE);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(argv[1], calls[i].name))
            run(&calls[i], argv[2]);
    MPI_Finalize();
    return 0;
}
