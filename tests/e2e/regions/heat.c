/*
 * Heat on a plate cut by rows, with checkpoints of regions: by eyrie_regions.h, with -DVELOC by
 * VeloC's calls, with -DALONE without MPI, with -DLARGE of more than a mebibyte for each process.
 * What it prints does not depend on how often it was killed.
 *
 * usage: heat OPTIONS STEPS EVERY [DIE_STEP DIE_RANK]     OPTIONS: of the checkpoints; VeloC: a file
 */
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef VELOC
#include <veloc.h>
#elif defined ALONE
#include <eyrie_regions.h>
#else
#include <eyrie_regions_mpi.h>
#endif

#ifdef LARGE
enum { COLS = 4000 };
#else
enum { COLS = 700 };
#endif
enum { ROWS = 40, NAME = 16 };

static int rank, ranks = 1;
static double now[ROWS + 2][COLS], next[ROWS + 2][COLS];
static int64_t step;

static void fail(const char *what, const char *why)
{
    fprintf(stderr, "heat: process %d: %s: %s\n", rank, what, why);
    exit(3);
}

static void exchange(void)
{
#ifndef ALONE
    int up = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int down = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(now[1], COLS, MPI_DOUBLE, up, 1, now[ROWS + 1], COLS, MPI_DOUBLE, down, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(now[ROWS], COLS, MPI_DOUBLE, down, 2, now[0], COLS, MPI_DOUBLE, up, 2,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
#endif
}

static void relax(void)
{
    for (int i = 1; i <= ROWS; i++)
        for (int j = 1; j + 1 < COLS; j++)
            next[i][j] = now[i][j] + 0.2 * (now[i - 1][j] + now[i + 1][j] + now[i][j - 1] +
                                            now[i][j + 1] - 4 * now[i][j]);
    memcpy(now[1], next[1], sizeof now[0] * ROWS);
}

static uint64_t checksum(void)
{
    uint64_t sum = 0;
    for (int i = 1; i <= ROWS; i++)
        for (int j = 0; j < COLS; j++) {
            uint64_t bits;
            memcpy(&bits, &now[i][j], sizeof bits);
            sum += (bits ^ (uint64_t)(rank * ROWS + i) * 0x9e3779b97f4a7c15u) * (2 * j + 1);
        }
    return sum;
}

#ifdef VELOC

static void begin(const char *options)
{
    if (VELOC_Init(MPI_COMM_WORLD, options) != VELOC_SUCCESS)
        fail("init", "VeloC failed");
    VELOC_Mem_protect(0, &step, 1, sizeof step);
    VELOC_Mem_protect(1, now, (ROWS + 2) * COLS, sizeof(double));
    int found = VELOC_Restart_test("heat", 0);
    if (found < 0)
        return;
    char path[VELOC_MAX_NAME], text[NAME] = "", wanted[NAME];
    if (VELOC_Restart_begin("heat", found) || VELOC_Restart_mem() ||
        VELOC_Route_file("own.txt", path))
        fail("restart", "VeloC failed");
    FILE *file = fopen(path, "r");
    snprintf(wanted, sizeof wanted, "%d %d\n", rank, found);
    int valid = file && fgets(text, sizeof text, file) && strcmp(text, wanted) == 0;
    if (file)
        fclose(file);
    if (!valid || VELOC_Recover_size(0) != sizeof step || VELOC_Restart_end(valid))
        fail("restart", "the file is not what was written");
    fprintf(stderr, "heat: process %d goes on from step %d\n", rank, found);
}

static void store(void)
{
    char path[VELOC_MAX_NAME];
    if (VELOC_Checkpoint_wait() || VELOC_Checkpoint_begin("heat", (int)step) ||
        VELOC_Checkpoint_mem() || VELOC_Route_file("own.txt", path))
        fail("checkpoint", "VeloC failed");
    FILE *file = fopen(path, "w");
    int valid = file && fprintf(file, "%d %d\n", rank, (int)step) > 0;
    if (!file || fclose(file) || VELOC_Checkpoint_end(valid))
        fail("checkpoint", "VeloC failed");
}

static void end(void)
{
    if (VELOC_Finalize(1))
        fail("end", "VeloC failed");
}

#else

static eyrie_regions *regions;

#ifndef ALONE

static int sends = -1;
static char mark[1000];

/* Probes are not counted: there are as many as ways are fast. The first byte tells what is said. */
enum { PROBE = 8 };

static int counted(void *context, int to, const void *bytes, int count)
{
    int counts = to >= 0 && count > 0 && *(const unsigned char *)bytes < PROBE;
    if (counts && sends > 0 && --sends == 0 && (!*mark || open(mark, O_CREAT | O_EXCL, 0600) >= 0))
        raise(SIGKILL);
    return eyrie_send_mpi(context, to, bytes, count);
}

/* With HEAT_DIES=RANK:SENDS[:MARK] this process ends when it sends something to others for so many
   times in checkpoints and restores; with a mark, a file that it makes, once. */
static int open_regions(const char *options)
{
    const char *dies = getenv("HEAT_DIES");
    int who;
    if (!dies)
        return eyrie_regions_open_mpi(options, MPI_COMM_WORLD, &regions);
    if (sscanf(dies, "%d:%d:%999s", &who, &sends, mark) < 2 || who != rank)
        sends = -1;
    return eyrie_regions_open_apart(options, rank, ranks, eyrie_most_mpi, eyrie_gather_mpi,
                                    counted, eyrie_receive_mpi,
                                    eyrie_context_mpi(MPI_COMM_WORLD), &regions);
}

#endif

static void begin(const char *options)
{
#ifdef ALONE
    if (eyrie_regions_open(options, 0, 1, NULL, NULL, &regions))
#else
    if (open_regions(options))
#endif
        fail("open", eyrie_regions_error(NULL));
    eyrie_protect(regions, 0, &step, EYRIE_INT, sizeof step, 1);
    if (eyrie_protect(regions, 1, now, EYRIE_FLOAT, sizeof(double), (ROWS + 2) * COLS))
        fail("protect", eyrie_regions_error(regions));
    int64_t found = eyrie_newest(regions, "heat", EYRIE_ANY_VERSION);
    if (found == EYRIE_NONE)
        return;
    if (found < 0 || eyrie_restore(regions, "heat", found) || step != found)
        fail("restore", eyrie_regions_error(regions));
    fprintf(stderr, "heat: process %d goes on from step %" PRId64 "\n", rank, found);
}

static void store(void)
{
    if (eyrie_checkpoint(regions, "heat", step))
        fail("checkpoint", eyrie_regions_error(regions));
}

static void end(void)
{
    if (eyrie_regions_close(regions))
        fail("close", eyrie_regions_error(NULL));
}

#endif

/* With HEAT_GATE=PREFIX: says that it is there, and waits for the file PREFIX.STEP, twice. */
static void gate(void)
{
    const char *prefix = getenv("HEAT_GATE");
    char path[1000];
    if (!prefix || rank != 0 || (step != 300 && step != 900))
        return;
    fprintf(stderr, "heat: at step %" PRId64 "\n", step);
    snprintf(path, sizeof path, "%s.%" PRId64, prefix, step);
    while (access(path, F_OK))
        usleep(10000);
}

int main(int argc, char **argv)
{
    if (argc != 4 && argc != 6)
        fail("usage", "heat OPTIONS STEPS EVERY [DIE_STEP DIE_RANK]");
    long steps = atol(argv[2]), every = atol(argv[3]), die = argc == 6 ? atol(argv[4]) : -1;
    uint64_t total;
#ifndef ALONE
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
#endif
    for (int i = 0; i < ROWS + 2; i++)
        for (int j = 0; j < COLS; j++)
            now[i][j] = next[i][j] = ((rank * ROWS + i) * 7919 + j * 104729) % 1009 / 1009.0;
    begin(argv[1]);
    while (step < steps) {
        exchange();
        relax();
        step++;
        if (step % every == 0)
            store();
        gate();
        if (step == die && rank == atol(argv[5]))
            raise(SIGKILL);
    }
    total = checksum();
    end();
#ifndef ALONE
    uint64_t own = total;
    MPI_Reduce(&own, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
#endif
    if (rank == 0)
        printf("heat: %d processes, %ld steps, checksum %016" PRIx64 "\n", ranks, steps, total);
#ifndef ALONE
    MPI_Finalize();
#endif
    return 0;
}
