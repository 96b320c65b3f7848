/*
 * Threads of a rank that call MPI at the same time (MPI_THREAD_MULTIPLE): ping-pongs of their own,
 * wildcards that they compete for, waits of every kind while others go on, collectives and new
 * communicators of each, requests that another thread completes, threads that make threads.
 */
#include "check.h"

#include <pthread.h>

enum { THREADS = 3, ROUNDS = 120, BYTES = 3000, BIG = 200000 };

static MPI_Comm own[THREADS];
static int left, right;

/* Runs it in so many threads, each with its number. */
static void in_threads(int count, void *(*run)(void *))
{
    pthread_t threads[2 * THREADS];
    for (intptr_t t = 0; t < count; t++)
        CHECK(pthread_create(&threads[t], NULL, run, (void *)t) == 0, "thread %d", (int)t);
    for (int t = 0; t < count; t++)
        CHECK(pthread_join(threads[t], NULL) == 0, "thread %d", t);
}

/* A ring of messages for each thread, told apart by their tags. */
static void *ring(void *arg)
{
    int t = (int)(intptr_t)arg;
    unsigned char *out = malloc(BIG), *in = malloc(BIG);
    for (int round = 0; round < ROUNDS; round++) {
        int bytes = round % 40 == 39 ? BIG : round % 7 * (BYTES / 7) + t;
        MPI_Request request;
        MPI_Status status;
        fill(out, (size_t)bytes, (unsigned)(rank * 31 + t * 7 + round));
        if (round % 2) {
            OK(MPI_Irecv(in, BIG, MPI_BYTE, left, t, MPI_COMM_WORLD, &request));
            OK(MPI_Send(out, bytes, MPI_BYTE, right, t, MPI_COMM_WORLD));
        } else {
            OK(MPI_Isend(out, bytes, MPI_BYTE, right, t, MPI_COMM_WORLD, &request));
            OK(MPI_Recv(in, BIG, MPI_BYTE, left, t, MPI_COMM_WORLD, &status));
        }
        OK(MPI_Wait(&request, round % 2 ? &status : MPI_STATUS_IGNORE));
        int count;
        OK(MPI_Get_count(&status, MPI_BYTE, &count));
        CHECK(count == bytes, "thread %d round %d: %d of %d bytes", t, round, count, bytes);
        CHECK(is_filled(in, (size_t)bytes, (unsigned)(left * 31 + t * 7 + round)),
              "thread %d round %d", t, round);
    }
    free(out);
    free(in);
    return NULL;
}

/* Threads take messages with one tag from anybody, as they come; a sum shows that none is lost. */
enum { ANY_TAG_OF_ALL = 50, SHARE = 40 };
static long taken;

static void *compete(void *arg)
{
    int t = (int)(intptr_t)arg;
    for (int n = 0; n < SHARE; n++) {
        long value = rank * 1000 + t * 100 + n, got = -1;
        for (int to = 0; to < ranks; to++)
            OK(MPI_Send(&value, 1, MPI_LONG, to, ANY_TAG_OF_ALL, MPI_COMM_WORLD));
        for (int k = 0; k < ranks; k++) {
            MPI_Status status;
            MPI_Message message;
            switch ((n + k) % 3) {
            case 0:
                OK(MPI_Recv(&got, 1, MPI_LONG, MPI_ANY_SOURCE, ANY_TAG_OF_ALL, MPI_COMM_WORLD,
                            &status));
                break;
            case 1:
                OK(MPI_Mprobe(MPI_ANY_SOURCE, ANY_TAG_OF_ALL, MPI_COMM_WORLD, &message, &status));
                OK(MPI_Mrecv(&got, 1, MPI_LONG, &message, &status));
                break;
            default:
                for (int there = 0; !there;) {
                    /* so often as it happens: not counted as a check */
                    MPI_Improbe(MPI_ANY_SOURCE, ANY_TAG_OF_ALL, MPI_COMM_WORLD, &there, &message,
                                &status);
                    if (there)
                        OK(MPI_Mrecv(&got, 1, MPI_LONG, &message, &status));
                }
            }
            CHECK(got / 1000 == status.MPI_SOURCE, "%ld from %d", got, status.MPI_SOURCE);
            __atomic_fetch_add(&taken, got, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

static long all_that_was_sent(void)
{
    long sum = 0;
    for (int r = 0; r < ranks; r++)
        for (int t = 0; t < THREADS; t++)
            for (int n = 0; n < SHARE; n++)
                sum += r * 1000 + t * 100 + n;
    return sum;
}

/* Waits that end by what another thread of the same rank does later. */
static MPI_Request told;

static int query(void *extra, MPI_Status *status)
{
    (void)extra;
    OK(MPI_Status_set_elements(status, MPI_INT, 1));
    OK(MPI_Status_set_cancelled(status, 0));
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}

static int ignore(void *extra)
{
    (void)extra;
    return MPI_SUCCESS;
}

static int ignore_cancel(void *extra, int complete)
{
    (void)extra;
    (void)complete;
    return MPI_SUCCESS;
}

static void *wait_for_another(void *arg)
{
    int t = (int)(intptr_t)arg, value = -1, index;
    MPI_Request two[2];
    MPI_Status status;
    switch (t) {
    case 0: /* waits for a message of thread 1, in a wait for any of two */
        OK(MPI_Irecv(&value, 1, MPI_INT, rank, 60, MPI_COMM_WORLD, &two[0]));
        OK(MPI_Irecv(&value, 1, MPI_INT, rank, 61, MPI_COMM_WORLD, &two[1]));
        OK(MPI_Waitany(2, two, &index, &status));
        CHECK(index == 1 && value == 17, "%d %d", index, value);
        OK(MPI_Cancel(&two[0]));
        OK(MPI_Wait(&two[0], &status));
        /* and gives one to thread 2, which waits in a probe */
        OK(MPI_Send(&value, 1, MPI_INT, rank, 62, MPI_COMM_WORLD));
        break;
    case 1: /* sees that the others wait: they have said so; sends, and completes */
        OK(MPI_Recv(&value, 1, MPI_INT, rank, 63, MPI_COMM_WORLD, &status));
        value = 17;
        OK(MPI_Send(&value, 1, MPI_INT, rank, 61, MPI_COMM_WORLD));
        OK(MPI_Recv(&value, 1, MPI_INT, rank, 64, MPI_COMM_WORLD, &status));
        OK(MPI_Grequest_complete(told));
        break;
    default:
        OK(MPI_Send(&value, 1, MPI_INT, rank, 63, MPI_COMM_WORLD));
        OK(MPI_Probe(MPI_ANY_SOURCE, 62, MPI_COMM_WORLD, &status));
        CHECK(status.MPI_SOURCE == rank, "from %d", status.MPI_SOURCE);
        OK(MPI_Recv(&value, 1, MPI_INT, rank, 62, MPI_COMM_WORLD, &status));
        CHECK(value == 17, "%d", value);
        OK(MPI_Send(&value, 1, MPI_INT, rank, 64, MPI_COMM_WORLD));
        OK(MPI_Wait(&told, &status));
    }
    return NULL;
}

/* Collectives of each thread, on a communicator of its own, and new communicators from it. */
static void *collect(void *arg)
{
    int t = (int)(intptr_t)arg;
    for (int round = 0; round < ROUNDS / 4; round++) {
        int value = rank * 10 + t + round, sum = 0, want = 0;
        for (int r = 0; r < ranks; r++)
            want += r * 10 + t + round;
        OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, own[t]));
        CHECK(sum == want, "thread %d round %d: %d, not %d", t, round, sum, want);
        int root = round % ranks, said = rank == root ? round * THREADS + t : -1;
        OK(MPI_Bcast(&said, 1, MPI_INT, root, own[t]));
        CHECK(said == round * THREADS + t, "thread %d round %d: %d", t, round, said);
        if (round % 5 == 0) {
            MPI_Comm again, half;
            int in_half, want_half = 0;
            OK(MPI_Comm_dup(own[t], &again));
            OK(MPI_Comm_split(again, rank % 2, rank, &half));
            OK(MPI_Allreduce(&value, &in_half, 1, MPI_INT, MPI_SUM, half));
            for (int r = rank % 2; r < ranks; r += 2)
                want_half += r * 10 + t + round;
            CHECK(in_half == want_half, "thread %d round %d: %d", t, round, in_half);
            OK(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, again));
            CHECK(sum == want, "thread %d round %d: %d on the duplicate", t, round, sum);
            OK(MPI_Comm_free(&half));
            OK(MPI_Comm_free(&again));
        }
    }
    OK(MPI_Barrier(own[t]));
    return NULL;
}

/* A thread that makes threads, each of which sends to its like. */
static void *one_of_a_family(void *arg)
{
    int t = (int)(intptr_t)arg, got = -1;
    int main_thread = -1;
    OK(MPI_Is_thread_main(&main_thread));
    CHECK(main_thread == 0, "thread %d", t);
    OK(MPI_Sendrecv(&t, 1, MPI_INT, right, 70 + t, &got, 1, MPI_INT, left, 70 + t, MPI_COMM_WORLD,
                    MPI_STATUS_IGNORE));
    CHECK(got == t, "thread %d got %d", t, got);
    return NULL;
}

static void *parent(void *arg)
{
    pthread_t child[2];
    int t = (int)(intptr_t)arg;
    for (intptr_t c = 0; c < 2; c++)
        CHECK(!pthread_create(&child[c], NULL, one_of_a_family, (void *)(2 * t + c)), "thread");
    for (int c = 0; c < 2; c++)
        CHECK(!pthread_join(child[c], NULL), "thread");
    return NULL;
}

int main(int argc, char **argv)
{
    int provided = -1, level = -1, main_thread = -1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    CHECK(provided == MPI_THREAD_MULTIPLE, "level %d", provided);
    OK(MPI_Query_thread(&level));
    OK(MPI_Is_thread_main(&main_thread));
    CHECK(level == provided && main_thread == 1, "level %d", level);
    left = (rank + ranks - 1) % ranks;
    right = (rank + 1) % ranks;
    for (int t = 0; t < THREADS; t++)
        OK(MPI_Comm_dup(MPI_COMM_WORLD, &own[t]));

    in_threads(THREADS, ring);
    in_threads(THREADS, compete);
    CHECK(taken == all_that_was_sent(), "%ld, not %ld", taken, all_that_was_sent());
    OK(MPI_Grequest_start(query, ignore, ignore_cancel, NULL, &told));
    in_threads(THREADS, wait_for_another);
    in_threads(THREADS, collect);
    in_threads(2, parent);
    in_threads(THREADS, ring);

    for (int t = 0; t < THREADS; t++)
        OK(MPI_Comm_free(&own[t]));
    return finish("multiple");
}
