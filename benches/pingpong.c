/*
 * Ping-pong between two ranks: one-way times for sizes from 8 B to 4 MiB, in batches. Also a raw
 * mode without MPI: a cache line passed between two processes, and memcpy.
 *
 *   pingpong SIZE:ROUNDS:BATCHES...    prints `SIZE MIN_NS MEDIAN_NS` for each (rank 0)
 *   pingpong --raw                     prints `line NS` and `memcpy BYTES NS`
 *
 * With PINGPONG_GATE=1 it warms up, and before each size says `warm` on standard output and waits
 * for a line on standard input: the driver takes checkpoints there, so that the log is empty and
 * its pages are recycled ones when the measurement begins.
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "timing.h"

enum { MOST_BYTES = 4 << 20, MOST_BATCHES = 1000 };

static void rounds(int rank, char *out, char *in, int bytes, int count)
{
    for (int i = 0; i < count; i++) {
        if (rank == 0) {
            MPI_Send(out, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD);
            MPI_Recv(in, bytes, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Recv(in, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(out, bytes, MPI_BYTE, 0, 1, MPI_COMM_WORLD);
        }
    }
}

static void measure(int rank, char *out, char *in, int bytes, int count, int batches)
{
    static double times[MOST_BATCHES];
    rounds(rank, out, in, bytes, count);
    for (int b = 0; b < batches; b++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = now_ns();
        rounds(rank, out, in, bytes, count);
        times[b] = (now_ns() - began) / (2.0 * count);
    }
    qsort(times, (size_t)batches, sizeof *times, ascending);
    if (rank == 0) {
        printf("%d %.1f %.1f\n", bytes, times[0], times[batches / 2]);
        fflush(stdout);
    }
    for (int i = 0; i < bytes; i++)
        if (in[i] != (char)(i * 7 + 1)) {
            fprintf(stderr, "pingpong: byte %d of %d is wrong\n", i, bytes);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
}

/* One cache line passed to and fro between two processes, each on a core of its own. */
static void raw_line(void)
{
    enum { COUNT = 200000 };
    _Atomic int *word = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (word == MAP_FAILED)
        exit(2);
    double best = 1e18;
    for (int batch = 0; batch < 5; batch++) {
        atomic_store(word, 0);
        pid_t child = fork();
        if (child < 0)
            exit(2);
        if (child == 0) {
            for (int i = 0; i < COUNT; i++) {
                while (atomic_load_explicit(word, memory_order_acquire) != 2 * i + 1)
                    continue;
                atomic_store_explicit(word, 2 * i + 2, memory_order_release);
            }
            _exit(0);
        }
        double began = 0;
        for (int i = 0; i < COUNT; i++) {
            if (i == COUNT / 10)
                began = now_ns();
            atomic_store_explicit(word, 2 * i + 1, memory_order_release);
            while (atomic_load_explicit(word, memory_order_acquire) != 2 * i + 2)
                continue;
        }
        double one_way = (now_ns() - began) / (2.0 * (COUNT - COUNT / 10));
        best = one_way < best ? one_way : best;
        waitpid(child, NULL, 0);
    }
    printf("line %.1f\n", best);
}

static void raw_memcpy(int bytes)
{
    char *from = malloc(MOST_BYTES), *to = malloc(MOST_BYTES);
    if (!from || !to)
        exit(2);
    memset(from, 1, MOST_BYTES);
    memset(to, 2, MOST_BYTES);
    double best = 1e18;
    for (int batch = 0; batch < 30; batch++) {
        double began = now_ns();
        for (int i = 0; i < 10; i++) {
            from[i] = (char)batch;
            memcpy(to, from, (size_t)bytes);
            __asm__ volatile("" : : "r"(to), "r"(from) : "memory");
        }
        double each = (now_ns() - began) / 10;
        best = each < best ? each : best;
    }
    printf("memcpy %d %.1f\n", bytes, best);
    free(from);
    free(to);
}

/* Lets the driver do something while both ranks stand still. */
static void gate(int rank)
{
    char line[64];
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("warm");
        fflush(stdout);
        if (!fgets(line, sizeof line, stdin))
            MPI_Abort(MPI_COMM_WORLD, 3);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--raw") == 0) {
        raw_line();
        raw_memcpy(65536);
        raw_memcpy(1 << 20);
        raw_memcpy(MOST_BYTES);
        return 0;
    }
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char *out = malloc(MOST_BYTES), *in = malloc(MOST_BYTES);
    if (ranks != 2 || !out || !in)
        MPI_Abort(MPI_COMM_WORLD, 2);
    for (int i = 0; i < MOST_BYTES; i++) {
        out[i] = (char)(i * 7 + 1);
        in[i] = 0;
    }
    int gated = getenv("PINGPONG_GATE") != NULL;
    if (gated) /* more than any size sends, so that all pages that will be used have been faulted in
                */
        rounds(rank, out, in, MOST_BYTES, 70);
    for (int i = 1; i < argc; i++) {
        int bytes, count, batches;
        if (sscanf(argv[i], "%d:%d:%d", &bytes, &count, &batches) != 3 || bytes < 0 ||
            bytes > MOST_BYTES || count < 1 || batches < 1 || batches > MOST_BATCHES) {
            fprintf(stderr, "pingpong: '%s' is not SIZE:ROUNDS:BATCHES\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        if (gated)
            gate(rank);
        measure(rank, out, in, bytes, count, batches);
    }
    free(out);
    free(in);
    MPI_Finalize();
    return 0;
}
