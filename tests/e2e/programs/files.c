/*
 * Keeps state outside of its heap that a restore must bring back: an open file with a position that
 * is read through the run, a file that is written, a signal handler and mask, thread-local data,
 * floating-point rounding, a large mapping with mixed protections, the program break. Argument 1:
 * an input file made by the test; 2: a folder for output; 3: rounds. Ends with an error if anything
 * is not as it was.
 */
#define _GNU_SOURCE
#include <fenv.h>
#include <mpi.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static _Thread_local long counter;
static volatile sig_atomic_t signals;

static void on_signal(int number)
{
    (void)number;
    signals++;
}

static void expect(int good, const char *what, long round)
{
    if (!good) {
        fprintf(stderr, "files: %s is wrong in round %ld\n", what, round);
        MPI_Abort(MPI_COMM_WORLD, 5);
    }
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (argc < 4)
        MPI_Abort(MPI_COMM_WORLD, 99);
    long rounds = atol(argv[3]);
    char path[4096];
    snprintf(path, sizeof path, "%s/out.%d", argv[2], rank);
    FILE *in = fopen(argv[1], "r"), *out = fopen(path, "w");
    expect(in && out, "opening files", -1);

    sigset_t blocked, now;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    fesetround(FE_UPWARD);
    long page = sysconf(_SC_PAGESIZE);
    unsigned char *map =
        mmap(NULL, (size_t)(64 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(map != MAP_FAILED, "mmap", -1);
    memset(map, 7, (size_t)(64 * page));
    mprotect(map + 8 * page, (size_t)(8 * page), PROT_READ);
    void *edge = sbrk(0);
    uint64_t hash = 1;
    for (long round = 0; round < rounds; round++) {
        char line[128];
        if (!fgets(line, sizeof line, in)) {
            rewind(in);
            expect(fgets(line, sizeof line, in) != NULL, "reading", round);
        }
        for (char *c = line; *c; c++)
            hash = hash * 31 + (unsigned char)*c;
        uint64_t sum = 0;
        MPI_Allreduce(&hash, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
        hash += sum;
        fprintf(out, "%ld %016llx\n", round, (unsigned long long)hash);
        counter++;
        raise(SIGUSR1);
        sigprocmask(SIG_SETMASK, NULL, &now);
        expect(sigismember(&now, SIGUSR2) == 1, "signal mask", round);
        expect(signals == round + 1, "signal handler", round);
        expect(counter == round + 1, "thread-local data", round);
        expect(fegetround() == FE_UPWARD, "rounding mode", round);
        expect(map[8 * page] == 7 && map[20 * page] == (unsigned char)(7 + round), "mapping",
               round);
        map[20 * page] = (unsigned char)(8 + round);
        expect(sbrk(0) >= edge, "program break", round);
    }
    fclose(in);
    expect(fclose(out) == 0, "writing", rounds);
    if (rank == 0)
        printf("files: %016llx\n", (unsigned long long)hash);
    MPI_Finalize();
    return 0;
}
