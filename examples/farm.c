/*
 * Master and workers whose course depends on the order in which messages happen to arrive, written
 * so that an inexact replay contradicts itself.
 *
 * Rank 0 deals tasks; workers also send each other notes. Messages are received with
 * MPI_ANY_SOURCE, by polling with MPI_Iprobe, from posted wildcard receives with MPI_Waitany, and
 * their sends are finished with MPI_Testsome. Each rank folds all it sees (who came first, which
 * request was done, how many polls were in vain) into a history hash, and puts that hash and the
 * count of vain polls into every message it sends. Both ends keep a journal of every message. At
 * the end each pair of ranks compares journals, message by message; the first difference ends the
 * job with an error. What is printed is a sum over the tasks and does not depend on the order.
 */
#include "common.h"

static const char USAGE[] =
    "usage: farm [options]\n"
    "  --tasks N     number of tasks (default 20000; about a second on two cores)\n"
    "  --work W      arithmetic per task, in thousands of steps (default 4)\n"
    "  --progress    one line for each tenth of the tasks\n"
    "  --help        this text\n";

enum { TAG_TASK = 1, TAG_STOP, TAG_RESULT, TAG_LARGE_RESULT, TAG_NOTE, TAG_JOURNAL };
enum { PAYLOAD_WORDS = 8192, POSTED = 3, PENDING = 16, TASKS_AHEAD = 2 };

/* All messages but the journals have this head; `words` words derived from `history` follow. */
struct head {
    uint64_t sequence; /* number of this message from this sender to this receiver */
    uint64_t task;
    uint64_t value;   /* a result, or what the master knows so far */
    uint64_t history; /* the sender's history hash */
    uint64_t polls;   /* the sender's count of vain polls so far */
    uint64_t words;
};

struct message {
    struct head head;
    uint64_t payload[PAYLOAD_WORDS];
};

struct journal {
    uint64_t *hashes;
    size_t count, room;
};

struct farm {
    int rank, ranks;
    long tasks, work;
    int progress;
    uint64_t history, polls;
    struct journal *sent, *received; /* one per peer */
    MPI_Request requests[PENDING];   /* sends under way; NULL where free */
    struct message *outbox[PENDING];
    struct message *inbox; /* one message buffer per posted receive, and one for probed messages */
};

static void see(struct farm *f, uint64_t what)
{
    f->history = fold64(f->history, what);
}

static void poll_in_vain(struct farm *f)
{
    f->polls++;
}

static void note_in_journal(struct journal *j, uint64_t sequence, uint64_t hash)
{
    while (sequence >= j->room) {
        size_t room = j->room ? 2 * j->room : 256;
        uint64_t *grown = realloc(j->hashes, room * sizeof *grown);
        if (!grown)
            fail("no memory for a journal of %zu messages", room);
        memset(grown + j->room, 0, (room - j->room) * sizeof *grown);
        j->hashes = grown;
        j->room = room;
    }
    if (j->hashes[sequence])
        fail("message %" PRIu64 " came twice", sequence);
    j->hashes[sequence] = hash | 1;
    j->count++;
}

static size_t message_bytes(const struct message *m)
{
    return sizeof m->head + (size_t)m->head.words * sizeof *m->payload;
}

/* Finishes what sends it can; waits only when no slot is free. Returns a free slot. */
static int free_slot(struct farm *f)
{
    int indices[PENDING], done = 0;
    MPI_Testsome(PENDING, f->requests, &done, indices, MPI_STATUSES_IGNORE);
    if (done != MPI_UNDEFINED) {
        see(f, (uint64_t)done);
        for (int i = 0; i < done; i++)
            see(f, (uint64_t)indices[i]);
    }
    for (int i = 0; i < PENDING; i++)
        if (f->requests[i] == MPI_REQUEST_NULL)
            return i;
    int slot;
    MPI_Waitany(PENDING, f->requests, &slot, MPI_STATUS_IGNORE);
    see(f, (uint64_t)slot);
    return slot;
}

static void post(struct farm *f, int to, int tag, uint64_t task, uint64_t value, size_t words)
{
    int slot = free_slot(f);
    struct message *m = f->outbox[slot];
    m->head = (struct head){f->sent[to].count, task, value, f->history, f->polls, words};
    for (size_t i = 0; i < words; i++)
        m->payload[i] = mix64(f->history + i);
    size_t bytes = message_bytes(m);
    note_in_journal(&f->sent[to], m->head.sequence, hash_bytes((uint64_t)tag, m, bytes));
    /* Which kind of send is used depends on the history too. */
    if (f->history % 8 == 0)
        MPI_Issend(m, (int)bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &f->requests[slot]);
    else
        MPI_Isend(m, (int)bytes, MPI_BYTE, to, tag, MPI_COMM_WORLD, &f->requests[slot]);
}

/* Checks a received message's form, writes it into the journal and into the history. */
static void take(struct farm *f, const struct message *m, const MPI_Status *status)
{
    int bytes;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if ((size_t)bytes < sizeof m->head || (size_t)bytes != message_bytes(m))
        fail("rank %d: a message of %d bytes from rank %d is malformed", f->rank, bytes,
             status->MPI_SOURCE);
    for (size_t i = 0; i < m->head.words; i++)
        if (m->payload[i] != mix64(m->head.history + i))
            fail("rank %d: word %zu of message %" PRIu64 " from rank %d is wrong", f->rank, i,
                 m->head.sequence, status->MPI_SOURCE);
    uint64_t hash = hash_bytes((uint64_t)status->MPI_TAG, m, (size_t)bytes);
    note_in_journal(&f->received[status->MPI_SOURCE], m->head.sequence, hash);
    see(f, (uint64_t)status->MPI_SOURCE << 32 | (uint64_t)status->MPI_TAG);
    see(f, hash);
}

/* Receives the message that a probe has found. */
static void receive_probed(struct farm *f, struct message *m, MPI_Status *status)
{
    int bytes;
    MPI_Get_count(status, MPI_BYTE, &bytes);
    if (bytes < 0 || (size_t)bytes > sizeof *m)
        fail("rank %d: a message of %d bytes is too long", f->rank, bytes);
    MPI_Recv(m, bytes, MPI_BYTE, status->MPI_SOURCE, status->MPI_TAG, MPI_COMM_WORLD, status);
    take(f, m, status);
}

/* The work: its result is a function of the task alone. */
static uint64_t solve(uint64_t task, long work)
{
    uint64_t x = mix64(task + 1);
    for (long i = 0; i < work * 1000; i++)
        x = fold64(x, (uint64_t)i);
    return x;
}

static size_t payload_size(uint64_t seed)
{
    uint64_t pick = mix64(seed ^ 0x77);
    if (pick % 64 == 0)
        return PAYLOAD_WORDS - pick / 64 % 64;
    return pick % 4 == 0 ? pick / 4 % 1000 : pick / 4 % 24;
}

/* ---- master ---- */

struct master {
    struct farm *f;
    uint64_t dealt, done, sum;
    int *outstanding;
};

static void deal(struct master *m, int worker)
{
    struct farm *f = m->f;
    while (m->outstanding[worker] < TASKS_AHEAD && m->dealt < (uint64_t)f->tasks) {
        post(f, worker, TAG_TASK, m->dealt++, m->sum, payload_size(f->history));
        m->outstanding[worker]++;
    }
}

static void take_result(struct master *m, const struct message *in, const MPI_Status *status)
{
    struct farm *f = m->f;
    take(f, in, status);
    m->sum += place_hash(in->head.task, in->head.value);
    m->done++;
    m->outstanding[status->MPI_SOURCE]--;
    if (f->progress && m->done % (((uint64_t)f->tasks + 9) / 10) == 0) {
        printf("farm: %" PRIu64 " tasks done\n", m->done);
        fflush(stdout);
    }
    deal(m, status->MPI_SOURCE);
}

/* Polls until a message is there, then receives it with the source that the poll named. */
static void result_by_polling(struct master *m)
{
    struct farm *f = m->f;
    MPI_Status status;
    int flag = 0;
    for (;;) {
        MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, &status);
        if (flag)
            break;
        poll_in_vain(f);
    }
    int bytes;
    MPI_Get_count(&status, MPI_BYTE, &bytes);
    MPI_Recv(f->inbox, bytes, MPI_BYTE, status.MPI_SOURCE, status.MPI_TAG, MPI_COMM_WORLD, &status);
    take_result(m, f->inbox, &status);
}

static void result_by_wildcard(struct master *m)
{
    MPI_Status status;
    MPI_Recv(m->f->inbox, sizeof *m->f->inbox, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
             MPI_COMM_WORLD, &status);
    take_result(m, m->f->inbox, &status);
}

/* Several wildcard receives at once, finished in whatever order they are done. */
static void results_by_waitany(struct master *m, int count)
{
    struct farm *f = m->f;
    MPI_Request requests[POSTED];
    for (int i = 0; i < count; i++)
        MPI_Irecv(&f->inbox[i], sizeof *f->inbox, MPI_BYTE, MPI_ANY_SOURCE, MPI_ANY_TAG,
                  MPI_COMM_WORLD, &requests[i]);
    for (int k = 0; k < count; k++) {
        MPI_Status status;
        int index;
        MPI_Waitany(count, requests, &index, &status);
        see(f, (uint64_t)index);
        take_result(m, &f->inbox[index], &status);
    }
}

static uint64_t run_master(struct farm *f)
{
    struct master m = {f, 0, 0, 0, must_alloc((size_t)f->ranks, sizeof(int))};
    for (int w = 1; w < f->ranks; w++)
        deal(&m, w);
    if (f->ranks == 1)
        for (; m.done < (uint64_t)f->tasks; m.done++)
            m.sum += place_hash(m.done, solve(m.done, f->work));
    while (m.done < (uint64_t)f->tasks) {
        uint64_t left = m.dealt - m.done;
        switch (f->history % 3) {
        case 0:
            result_by_polling(&m);
            break;
        case 1:
            result_by_wildcard(&m);
            break;
        default:
            results_by_waitany(&m, left < POSTED ? (int)left : POSTED);
        }
    }
    for (int w = 1; w < f->ranks; w++)
        post(f, w, TAG_STOP, 0, m.sum, 0);
    free(m.outstanding);
    return m.sum;
}

/* ---- worker ---- */

/* Sends a note to some other worker now and then; to whom and how long is up to the history. */
static void gossip(struct farm *f)
{
    if (f->ranks < 3 || f->history % 3 != 0)
        return;
    int to = 1 + (int)(mix64(f->history) % (uint64_t)(f->ranks - 2));
    if (to >= f->rank)
        to++;
    post(f, to, TAG_NOTE, 0, 0, payload_size(f->history + 1));
}

/* Takes what notes have come, without waiting. */
static void read_notes(struct farm *f)
{
    MPI_Status status;
    int flag = 1;
    while (flag) {
        MPI_Iprobe(MPI_ANY_SOURCE, TAG_NOTE, MPI_COMM_WORLD, &flag, &status);
        if (flag)
            receive_probed(f, f->inbox, &status);
        else
            poll_in_vain(f);
    }
}

/* Waits for a word of the master's, reading notes meanwhile; returns its tag. */
static int next_order(struct farm *f, struct message *order)
{
    MPI_Status status;
    MPI_Request request;
    int flag = 0;
    MPI_Irecv(order, sizeof *order, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &request);
    while (!flag) {
        MPI_Test(&request, &flag, &status);
        if (!flag) {
            poll_in_vain(f);
            read_notes(f);
        }
    }
    take(f, order, &status);
    return status.MPI_TAG;
}

static void run_worker(struct farm *f)
{
    struct message *order = &f->inbox[1];
    while (next_order(f, order) == TAG_TASK) {
        uint64_t task = order->head.task, value = solve(task, f->work);
        gossip(f);
        size_t words = payload_size(f->history);
        post(f, 0, words > 512 ? TAG_LARGE_RESULT : TAG_RESULT, task, value, words);
        read_notes(f);
    }
}

/* ---- the end: all journals are compared ---- */

/* Takes the notes that are still under way: each rank learns how many were sent to it. */
static void drain_notes(struct farm *f)
{
    long *sent = must_alloc((size_t)f->ranks, sizeof *sent),
         *due = must_alloc((size_t)f->ranks, sizeof *due);
    for (int r = 0; r < f->ranks; r++)
        sent[r] = (long)f->sent[r].count;
    MPI_Alltoall(sent, 1, MPI_LONG, due, 1, MPI_LONG, MPI_COMM_WORLD);
    for (int r = 0; r < f->ranks; r++)
        while ((long)f->received[r].count < due[r]) {
            MPI_Status status;
            MPI_Probe(r, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            receive_probed(f, f->inbox, &status);
        }
    MPI_Waitall(PENDING, f->requests, MPI_STATUSES_IGNORE);
    free(sent);
    free(due);
}

static void compare_with(struct farm *f, int peer)
{
    const struct journal *own = &f->received[peer], *sent = &f->sent[peer];
    unsigned long mine = sent->count, theirs = 0;
    MPI_Sendrecv(&mine, 1, MPI_UNSIGNED_LONG, peer, TAG_JOURNAL, &theirs, 1, MPI_UNSIGNED_LONG,
                 peer, TAG_JOURNAL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (theirs != own->count)
        fail("rank %d received %zu messages of rank %d, which knows of %lu", f->rank, own->count,
             peer, theirs);
    uint64_t *journal = must_alloc(theirs, sizeof *journal);
    MPI_Sendrecv(sent->hashes, (int)mine, MPI_UINT64_T, peer, TAG_JOURNAL, journal, (int)theirs,
                 MPI_UINT64_T, peer, TAG_JOURNAL, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (size_t i = 0; i < theirs; i++)
        if (journal[i] != own->hashes[i])
            fail("message %zu from rank %d to rank %d: the sender remembers %016" PRIx64
                 ", the receiver %016" PRIx64,
                 i, peer, f->rank, journal[i], own->hashes[i]);
    free(journal);
}

static unsigned long compare_journals(struct farm *f)
{
    unsigned long mine = 0, all = 0;
    for (int peer = 0; peer < f->ranks; peer++) {
        mine += f->received[peer].count;
        if (peer != f->rank)
            compare_with(f, peer);
    }
    MPI_Reduce(&mine, &all, 1, MPI_UNSIGNED_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    return all;
}

static void parse(struct farm *f, int argc, char **argv)
{
    struct args a = {argc, argv, 1};
    for (; a.at < argc; a.at++) {
        if (arg_flag(&a, "--help"))
            usage_and_exit(f->rank, USAGE);
        else if (arg_flag(&a, "--progress"))
            f->progress = 1;
        else if (!arg_long(&a, "--tasks", 1, 1L << 40, &f->tasks) &&
                 !arg_long(&a, "--work", 0, 1L << 30, &f->work))
            fail("unknown option '%s' (--help lists them)", argv[a.at]);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    struct farm f;
    memset(&f, 0, sizeof f);
    f.tasks = 20000;
    f.work = 4;
    MPI_Comm_rank(MPI_COMM_WORLD, &f.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &f.ranks);
    parse(&f, argc, argv);
    f.history = mix64((uint64_t)f.rank + 1);
    f.sent = must_alloc((size_t)f.ranks, sizeof *f.sent);
    f.received = must_alloc((size_t)f.ranks, sizeof *f.received);
    f.inbox = must_alloc(POSTED, sizeof *f.inbox);
    for (int i = 0; i < PENDING; i++) {
        f.requests[i] = MPI_REQUEST_NULL;
        f.outbox[i] = must_alloc(1, sizeof *f.outbox[i]);
    }
    uint64_t sum = 0;
    if (f.rank == 0)
        sum = run_master(&f);
    else
        run_worker(&f);
    drain_notes(&f);
    unsigned long messages = compare_journals(&f);
    if (f.rank == 0) {
        /* The number of messages depends on the order of arrival: only that all agree is printed.
         */
        printf("farm: %ld tasks, %d ranks, journals %s\n", f.tasks, f.ranks,
               messages || f.ranks == 1 ? "agree" : "are empty");
        printf("farm: checksum %016" PRIx64 "\n", sum);
        if (getenv("FARM_COUNTS"))
            fprintf(stderr, "farm: %lu messages, %" PRIu64 " vain polls of the master\n", messages,
                    f.polls);
    }
    MPI_Finalize();
    return 0;
}
