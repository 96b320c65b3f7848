/* Ranks make, move and remove the same names in one folder, in turns, and count what came of it: which rank is
 * first changes with the step. Rank 0 then makes anew what others have moved and removed. Each result is what it
 * is without a death, or the program ends with 3.
 *
 *   entries STEPS GATES      in the last quarter of the steps a rank waits for the file GATES/RANK */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int rank, ranks, step;
static uint64_t seen;

static void must(int good, const char *what)
{
    if (!good) {
        fprintf(stderr, "rank %d step %d: %s: %s\n", rank, step, what, strerror(errno));
        exit(3);
    }
}

static const char *name(const char *kind)
{
    static char names[4][64];
    static unsigned next;
    char *to = names[next++ % 4];
    snprintf(to, sizeof names[0], "%s.%d", kind, step);
    return to;
}

/* What came of a call: 0, or why it failed. */
static int came(int result)
{
    int why = result < 0 ? errno : 0;
    seen = (seen ^ (unsigned)why) * 0x100000001b3;
    return why;
}

static void text(const char *path, const char *what)
{
    FILE *file = fopen(path, "w");
    must(file && fprintf(file, "%s %d\n", what, step) > 0 && !fclose(file), path);
}

static int made(const char *path, int flags)
{
    int fd = open(path, flags | O_CREAT | O_EXCL | O_WRONLY, 0600), why = came(fd);
    if (fd >= 0)
        must(dprintf(fd, "made by %d\n", rank) > 0 && !close(fd), path);
    return why;
}

/* Nothing is there: then rank 0 makes it. */
static void clears(void)
{
    must(came(remove(name("result"))) == ENOENT, "a result was there");
    must(came(unlink(name("other"))) == ENOENT, "another was there");
    must(came(rmdir(name("place"))) == ENOENT, "a place was there");
    must(came(rename(name("before"), name("after"))) == ENOENT, "a name was there");
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) {
        text(name("result"), "result");
        text(name("other"), "other");
        text(name("before"), "before");
        must(!mkdir(name("place"), 0700), "mkdir");
    }
}

/* The first has it, the others are told. */
static void races(int is_first)
{
    int told = is_first ? 0 : EEXIST;
    must(made(name("lock"), 0) == told, "lock");
    must(came(mkdir(name("folder"), 0700)) == told, "folder");
    must(came(symlink("lock", name("link"))) == told, "link");
    must(came(link(name("result"), name("second"))) == told, "second");
    must(came(mkfifo(name("pipe"), 0600)) == told, "pipe");
    FILE *file = fopen(name("new"), "wx");
    must(came(file ? 0 : -1) == told, "new");
    if (file)
        must(fprintf(file, "new %d\n", rank) > 0 && !fclose(file), "new");
}

/* What the first had made is gone or has another name, and rank 0 makes something else of the old one. */
static void replaces(int is_first)
{
    if (is_first) {
        must(!came(unlink(name("lock"))), "unlink");
        must(!came(rename(name("folder"), name("kept"))), "rename");
        must(!came(remove(name("pipe"))), "remove");
        must(!came(rename(name("new"), name("newer"))), "rename");
        text(name("next"), "next");
        must(!came(rename(name("next"), name("current"))), "rename");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (!rank) {
        text(name("lock"), "another");
        text(name("new"), "another");
        text(name("pipe"), "another");
        text(name("next"), "another");
        text(name("current"), "another");
        must(!mkdir(name("folder"), 0700), "mkdir");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* The first begins a file, and all add to it in turn. */
static void parts(int first)
{
    const char *path = name("parts");
    if (rank == first) {
        FILE *file = fopen(path, "w");
        must(file && fprintf(file, "begun by %d\n", rank) > 0 && !fclose(file), path);
    }
    for (int turn = 0; turn < ranks; turn++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (turn != rank)
            continue;
        FILE *file = fopen(path, "a");
        must(file && fprintf(file, "part of %d\n", rank) > 0 && !fclose(file), path);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int steps = argc > 2 ? atoi(argv[1]) : 0;
    for (; step < steps; step++) {
        int first = step % ranks;
        clears();
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == first)
            races(1);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank != first)
            races(0);
        MPI_Barrier(MPI_COMM_WORLD);
        replaces(rank == first);
        parts(first);
        if (step == steps * 3 / 4) {
            char gate[512], at[64];
            snprintf(gate, sizeof gate, "%s/%d", argv[2], rank);
            snprintf(at, sizeof at, "%s/at.%d", argv[2], rank);
            text(at, "at");
            while (access(gate, F_OK))
                usleep(1000);
        }
    }
    uint64_t all = 0;
    MPI_Reduce(&seen, &all, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank)
        printf("all %016llx\n", (unsigned long long)all);
    MPI_Finalize();
    return 0;
}
