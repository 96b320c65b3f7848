/*
 * Ranks that use the same files. Argument 1: how many rounds; argument 2: a file that is waited for
 * half-way. In the working folder: `shared`, of which each rank writes parts of its own, by pwrite and
 * by lseek and write, and reads them again; `log`, to which all append; `lock.R`, which rank R has
 * locked by flock; of `shared` each rank has the part that is its own locked by fcntl; `count`, which all
 * increment under a lock. Prints what the parts held at the end, and what came from the left.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <inttypes.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PARTS = 64, PART = 36 };

#define NEED(what)                                                                                 \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #what);                                     \
            MPI_Abort(MPI_COMM_WORLD, 9);                                                          \
        }                                                                                          \
    } while (0)

static int rank, size;

static off_t part(int number) { return ((off_t)number * size + rank) * PART; }

static void lock(int fd, short kind, off_t start, off_t length)
{
    struct flock wish = {.l_type = kind, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    NEED(fcntl(fd, F_SETLKW, &wish) == 0);
}

static void count(int fd)
{
    uint64_t value = 0;
    lock(fd, F_WRLCK, 0, 8);
    NEED(pread(fd, &value, 8, 0) >= 0);
    value++;
    NEED(pwrite(fd, &value, 8, 0) == 8);
    lock(fd, F_UNLCK, 0, 8);
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rounds = argc > 1 ? atoi(argv[1]) : 100;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    char name[32], text[64], held[PART + 1] = "";
    int shared = open("shared", O_RDWR | O_CREAT, 0600), counts = open("count", O_RDWR | O_CREAT, 0600);
    int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
    snprintf(name, sizeof name, "lock.%d", rank);
    int locked = open(name, O_RDWR | O_CREAT, 0600);
    NEED(shared >= 0 && counts >= 0 && log >= 0 && locked >= 0 && flock(locked, LOCK_EX | LOCK_NB) == 0);
    lock(shared, F_WRLCK, 1000000 + rank, 1);
    int came = rank;
    for (int i = 0; i < rounds; i++) {
        while (argc > 2 && rank == 0 && i == rounds / 2 && access(argv[2], F_OK) != 0)
            usleep(1000);
        snprintf(text, sizeof text, "rank %5d round %5d came %7d\n", rank, i, came);
        if (i % 2) {
            NEED(pwrite(shared, text, PART, part(i % PARTS)) == PART);
        } else {
            NEED(lseek(shared, part(i % PARTS), SEEK_SET) >= 0 && write(shared, text, PART) == PART);
        }
        NEED(pread(shared, held, PART, part(i % PARTS)) == PART && !memcmp(held, text, PART));
        NEED(write(log, text, PART) == PART);
        count(counts);
        int sent = came * 3 % 999983 + i;
        MPI_Sendrecv(&sent, 1, MPI_INT, (rank + 1) % size, 0, &came, 1, MPI_INT,
                     (rank + size - 1) % size, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    uint64_t sum = (uint64_t)came, all = 0;
    for (int i = 0; i < PARTS; i++) {
        NEED(pread(shared, held, PART, part(i)) == PART);
        for (int k = 0; k < PART; k++) sum = sum * 31 + (uint64_t)(unsigned char)held[k];
    }
    MPI_Reduce(&sum, &all, 1, MPI_UINT64_T, MPI_BXOR, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%d rounds, checksum %016" PRIx64 "\n", rounds, all);
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
