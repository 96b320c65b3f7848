/*
 * Ranks that append lines to one log. Argument 1: the log; 2: how many lines a rank appends; 3: how
 * (write, writev, stream, wide, print, each, same); 4: a file that is waited for half-way. Each line
 * holds what came from other ranks before, of which one is whoever is there first. With `each` the log
 * is opened for each line, with `same` all lines are equal. Rank 0 prints what each rank has appended:
 * how many lines, and a hash of them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <locale.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <wchar.h>

#define NEED(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, strerror(errno));                \
            MPI_Abort(MPI_COMM_WORLD, 9);                                                          \
        }                                                                                          \
    } while (0)

static const char *path, *how;
static int file = -1;
static FILE *stream;

static int is(const char *name) { return strcmp(how, name) == 0; }

static void begin(void)
{
    if (is("stream") || is("wide")) {
        NEED((stream = fopen(path, "a")) != NULL);
        NEED(fileno(stream) > 2 && ftell(stream) >= 0);
    } else if (!is("each")) {
        NEED((file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0600)) >= 0);
    }
}

static void append(int i, const char *line)
{
    int length = (int)strlen(line);
    if (is("writev")) {
        struct iovec parts[] = {{(void *)line, 3}, {(void *)(line + 3), (size_t)length - 3}};
        NEED(writev(file, parts, 2) == length);
    } else if (is("stream")) {
        NEED(fprintf(stream, "%s", line) == length);
        if (i % 7 == 0) NEED(fflush(stream) == 0 && fsync(fileno(stream)) == 0);
    } else if (is("wide")) {
        NEED(fwprintf(stream, L"%s", line) == length && fflush(stream) == 0);
    } else if (is("print")) {
        NEED(dprintf(file, "%s", line) == length);
    } else if (is("each")) {
        FILE *own = fopen(path, "a");
        NEED(own != NULL && fputs(line, own) >= 0 && fclose(own) == 0);
    } else {
        NEED(write(file, line, (size_t)length) == length);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 99);
    int rank, size, count = atoi(argv[2]), came = 0;
    path = argv[1], how = argv[3];
    setlocale(LC_ALL, "C.UTF-8");
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    begin();
    uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < count; i++) {
        while (argc > 4 && i == count / 2 && access(argv[4], F_OK) != 0) usleep(1000);
        char line[160] = "the same\n";
        if (!is("same"))
            snprintf(line, sizeof line, "rank %d line %d came %d %.*s\n", rank, i, came, i % 50,
                     "..................................................");
        append(i, line);
        for (char *c = line; *c; c++) hash = (hash ^ (unsigned char)*c) * 1099511628211u;
        /* Around, and to rank 0 in any order, which tells who was first. */
        int sent = (came * 3 + rank + i) % 99991, first = 0;
        MPI_Sendrecv(&sent, 1, MPI_INT, (rank + 1) % size, 0, &came, 1, MPI_INT,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank > 0) MPI_Send(&rank, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        for (int n = 1; rank == 0 && n < size; n++) {
            int other;
            MPI_Recv(&other, 1, MPI_INT, MPI_ANY_SOURCE, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (n == 1) first = other;
        }
        MPI_Bcast(&first, 1, MPI_INT, 0, MPI_COMM_WORLD);
        came = (came + first) % 99991;
    }
    if (stream) NEED(fclose(stream) == 0);
    uint64_t all[64];
    MPI_Gather(&hash, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < size; r++) printf("%d %d %" PRIu64 "\n", r, count, all[r]);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
