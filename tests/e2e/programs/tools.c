/*
 * Reads Eyrie's performance variables.
 *
 * tools traffic: known messages between neighbours, small and large, which must be counted exactly.
 * tools waits: each rank waits for its left neighbour until it has seen that it waited.
 * tools course STEPS|FOLDER: goes round, so many times or until FOLDER/stop is there, and sends all
 * that is read each time. At the end rank 0 prints a line for each rank.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef unsigned long long number;

static int rank, ranks, right, left;
static MPI_T_pvar_session session;

static void demand(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static MPI_T_pvar_handle handle(const char *name, int class)
{
    int index, count;
    MPI_T_pvar_handle new;
    demand(MPI_T_pvar_get_index(name, class, &index) == 0, name);
    demand(MPI_T_pvar_handle_alloc(session, index, NULL, &new, &count) == 0, name);
    return new;
}

static number value(MPI_T_pvar_handle of)
{
    number now = 0;
    demand(MPI_T_pvar_read(session, of, &now) == 0, "a variable cannot be read");
    return now;
}

static void round_trip(char *mine, char *theirs, int bytes)
{
    MPI_Sendrecv(mine, bytes, MPI_BYTE, right, 1, theirs, bytes, MPI_BYTE, left, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static int traffic(void)
{
    enum { LARGE = 3 << 20 };
    static const int sizes[] = { 1, 1000, 20000, LARGE };
    number expected[4] = { 0, 0, 0, 0 };
    MPI_T_pvar_handle all[4];
    char *mine = malloc(LARGE), *theirs = malloc(LARGE);
    all[0] = handle("eyrie_messages_sent", MPI_T_PVAR_CLASS_COUNTER);
    all[1] = handle("eyrie_bytes_sent", MPI_T_PVAR_CLASS_AGGREGATE);
    all[2] = handle("eyrie_messages_received", MPI_T_PVAR_CLASS_COUNTER);
    all[3] = handle("eyrie_bytes_received", MPI_T_PVAR_CLASS_AGGREGATE);
    memset(mine, rank, LARGE);
    for (int pass = 0; pass < 3; pass++) {
        /* Nothing counts while they are stopped. */
        round_trip(mine, theirs, 77);
        MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES);
        for (int i = 0; i < 40; i++) {
            int bytes = sizes[i % 4];
            round_trip(mine, theirs, bytes);
            demand(theirs[bytes - 1] == (char)left, "other bytes came");
            expected[0]++, expected[2]++;
            expected[1] += bytes, expected[3] += bytes;
        }
        MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES);
        for (int i = 0; i < 4; i++) {
            number now = value(all[i]);
            if (now != expected[i])
                fprintf(stderr, "rank %d: number %d is %llu, not %llu\n", rank, i, now, expected[i]);
            demand(now == expected[i], "messages were counted wrongly");
        }
        if (pass == 1) {
            MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES);
            memset(expected, 0, sizeof expected);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0)
        printf("counted\n");
    return 0;
}

static int waits(void)
{
    int seen = 0, all = 0;
    double waited = -1;
    number times = 0;
    char mine = 0, theirs;
    MPI_T_pvar_handle timer = handle("eyrie_wait_time", MPI_T_PVAR_CLASS_TIMER);
    MPI_T_pvar_handle count = handle("eyrie_waits", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES);
    /* In each turn one rank is late. It may be that the next is later still: then once more. */
    for (int turn = 0; !all; turn++) {
        struct timespec pause = { 0, 20000000 };
        if (turn % ranks == rank)
            nanosleep(&pause, NULL);
        round_trip(&mine, &theirs, 1);
        MPI_T_pvar_read(session, timer, &waited);
        times = value(count);
        seen = waited > 0.001 && times > 0;
        MPI_Allreduce(&seen, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    }
    if (rank == 0)
        printf("waited\n");
    return 0;
}

/* What events have told. */
static number told[2], calls[2];

static void happened(MPI_T_event_instance instance, MPI_T_event_registration registration,
                     MPI_T_cb_safety safety, void *data)
{
    int which = *(int *)data, source = -1, flag;
    number now = 0;
    MPI_Count when = -1;
    (void)registration;
    demand(safety == MPI_T_CB_REQUIRE_NONE, "another safety");
    demand(MPI_T_event_read(instance, 0, &now) == 0 && now > told[which], "no news");
    demand(MPI_T_event_get_source(instance, &source) == 0 && source == 0, "no source");
    demand(MPI_T_event_get_timestamp(instance, &when) == 0 && when > 0, "no time");
    /* A callback may call MPI. */
    MPI_Iprobe(MPI_ANY_SOURCE, 12345, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
    told[which] = now;
    calls[which]++;
}

static void watch(void)
{
    static int which[2] = { 0, 1 };
    static const char *names[2] = { "eyrie_restored", "eyrie_checkpointed" };
    for (int i = 0; i < 2; i++) {
        int index;
        MPI_T_event_registration registration;
        demand(MPI_T_event_get_index(names[i], &index) == 0, names[i]);
        demand(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &registration) == 0, names[i]);
        demand(MPI_T_event_register_callback(registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL,
                                             &which[i], happened) == 0,
               names[i]);
    }
}

static int is_over(const char *until, long step)
{
    char path[4096];
    int over = atol(until) > 0 ? step >= atol(until) : 0;
    if (rank == 0 && atol(until) == 0) {
        snprintf(path, sizeof path, "%s/stop", until);
        over = access(path, F_OK) == 0;
    }
    MPI_Bcast(&over, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return over;
}

static int course(const char *until)
{
    enum { NUMBERS = 10 };
    number mine[NUMBERS], theirs[NUMBERS], back[NUMBERS], line[6], *lines;
    long step;
    double seconds;
    MPI_T_pvar_handle sent = handle("eyrie_messages_sent", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle came_back = handle("eyrie_recoveries", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle saved = handle("eyrie_checkpoints", MPI_T_PVAR_CLASS_COUNTER);
    MPI_T_pvar_handle recorded = handle("eyrie_determinant_bytes", MPI_T_PVAR_CLASS_AGGREGATE);
    MPI_T_pvar_handle waited = handle("eyrie_wait_time", MPI_T_PVAR_CLASS_TIMER);
    MPI_T_pvar_handle log = handle("eyrie_log_bytes", MPI_T_PVAR_CLASS_LEVEL);
    MPI_T_pvar_start(session, came_back);
    MPI_T_pvar_start(session, saved);
    MPI_T_pvar_start(session, recorded);
    MPI_T_pvar_start(session, waited);
    watch();
    for (step = 0; !is_over(until, step); step++) {
        struct timespec pause = { 0, 500000 };
        memset(mine, 0, sizeof mine);
        MPI_T_pvar_read(session, waited, &seconds);
        memcpy(&mine[0], &seconds, sizeof seconds);
        mine[1] = value(recorded), mine[2] = value(log);
        mine[3] = value(came_back), mine[4] = value(saved);
        memcpy(&mine[5], told, sizeof told);
        memcpy(&mine[7], calls, sizeof calls);
        mine[9] = step;
        MPI_T_pvar_start(session, sent);
        round_trip((char *)mine, (char *)theirs, sizeof mine);
        MPI_T_pvar_stop(session, sent);
        MPI_Sendrecv(theirs, NUMBERS, MPI_UNSIGNED_LONG_LONG, left, 2, back, NUMBERS,
                     MPI_UNSIGNED_LONG_LONG, right, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        demand(memcmp(mine, back, sizeof mine) == 0, "what was sent came back otherwise");
        nanosleep(&pause, NULL);
    }
    line[0] = value(sent) - step, line[1] = value(came_back), line[2] = value(saved);
    memcpy(&line[3], told, sizeof told);
    line[5] = step;
    lines = malloc(ranks * sizeof line);
    MPI_Gather(line, 6, MPI_UNSIGNED_LONG_LONG, lines, 6, MPI_UNSIGNED_LONG_LONG, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < ranks; r++) {
        number *l = lines + 6 * r;
        printf("rank %d miscounted %llu recoveries %llu checkpoint %llu told %llu %llu\n", r, l[0], l[1],
               l[2], l[3], l[4]);
    }
    return 0;
}

int main(int argc, char **argv)
{
    int provided, code = 2;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    if (argc == 2 && strcmp(argv[1], "traffic") == 0)
        code = traffic();
    else if (argc == 2 && strcmp(argv[1], "waits") == 0)
        code = waits();
    else if (argc == 3 && strcmp(argv[1], "course") == 0)
        code = course(argv[2]);
    MPI_T_finalize();
    MPI_Finalize();
    return code;
}
