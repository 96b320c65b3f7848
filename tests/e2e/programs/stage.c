/* One of several programs that a rank runs one after the other. Every message bears the program's
 * name; who receives one of another program ends with 9.
 *
 *   stage NAME ROUNDS BYTES [WORD...]
 *
 * All ranks send to all in each round, received as they come. Then by the words, in their order:
 *   leave       a message to the next rank that nobody receives
 *   silent      nothing is there for anybody
 *   ready F     makes the file F.RANK
 *   await F     until there is the file F
 *   call CMD    has the shell run CMD, and what all ranks add up is what it would be without
 *   fork        a child calls MPI
 *   loaded F    makes the file F before MPI_Init
 *   at F        calls MPI_Init when there is the file F
 *   before CMD  has the shell run CMD before MPI_Init
 *   exit C, _exit C, exec PROGRAM ARGUMENT...   ends so, without MPI_Finalize
 *   then PROGRAM ARGUMENT...                    executes that after MPI_Finalize */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int rank, size;
static long name_of_this;

static void check(long found, const char *what) {
    if (found == name_of_this) return;
    fprintf(stderr, "rank %d: %s is of another program\n", rank, what);
    _exit(9);
}

static double rounds(long count, long bytes) {
    long words = bytes / (long)sizeof(long) + 2;
    long *out = calloc(words, sizeof *out), *in = calloc(words, sizeof *in);
    double sum = 0;
    for (long round = 0; round < count; round++) {
        long used = 2 + (words - 2) * (round % 3) / 2;
        MPI_Request requests[64];
        out[0] = name_of_this;
        out[1] = round * 1000 + rank;
        for (int to = 0; to < size; to++)
            MPI_Isend(out, used, MPI_LONG, to, (int)(round % 1000), MPI_COMM_WORLD, &requests[to]);
        for (int from = 0; from < size; from++) {
            MPI_Status status;
            MPI_Recv(in, words, MPI_LONG, MPI_ANY_SOURCE, (int)(round % 1000), MPI_COMM_WORLD, &status);
            check(in[0], "a message");
            if (in[1] != round * 1000 + status.MPI_SOURCE) _exit(8);
            sum += (double)in[1];
        }
        MPI_Waitall(size, requests, MPI_STATUSES_IGNORE);
    }
    free(out);
    free(in);
    return sum;
}

static void silent(void) {
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < 200; i++) {
            int found;
            MPI_Status status;
            MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &status);
            if (found) {
                fprintf(stderr, "rank %d: a message of rank %d is there\n", rank, status.MPI_SOURCE);
                _exit(7);
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
    }
}

static void call(const char *command) {
    long own = rank + 1, all, parts;
    fflush(stdout);
    MPI_Allreduce(&own, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    int code = system(command);
    MPI_Allreduce(&own, &parts, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (code != 0 || all != parts || all != (long)size * (size + 1) / 2) {
        fprintf(stderr, "rank %d: %s: code %x, %ld %ld\n", rank, command, code, all, parts);
        _exit(6);
    }
}

static void forks(void) {
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int given = 1;
        MPI_Send(&given, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    printf("rank %d: its child ended with %d\n", rank, WEXITSTATUS(status));
}

/* What is done before MPI_Init; nothing of it afterwards. */
static int is_before(const char *word, const char *what, int now) {
    if (!strcmp(word, "loaded")) {
        if (now) fclose(fopen(what, "w"));
    } else if (!strcmp(word, "at")) {
        while (now && access(what, F_OK) != 0)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    } else if (!strcmp(word, "before")) {
        if (now && system(what) != 0) exit(5);
    } else {
        return 0;
    }
    return 1;
}

int main(int argc, char **argv) {
    for (int i = 4; i + 1 < argc; i++) i += is_before(argv[i], argv[i + 1], 1);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (const char *c = argv[1]; *c; c++) name_of_this = name_of_this * 31 + *c;
    double sum = rounds(atol(argv[2]), atol(argv[3])), all;
    MPI_Allreduce(&sum, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 4; i < argc; i++) {
        if (i + 1 < argc && is_before(argv[i], argv[i + 1], 0)) {
            i++;
        } else if (!strcmp(argv[i], "leave")) {
            long words = atol(argv[3]) / (long)sizeof(long) + 1, *left = calloc(words, sizeof *left);
            MPI_Send(left, words, MPI_LONG, (rank + 1) % size, 99, MPI_COMM_WORLD);
            free(left);
        } else if (!strcmp(argv[i], "silent")) {
            silent();
        } else if (!strcmp(argv[i], "ready")) {
            char name[4096];
            snprintf(name, sizeof name, "%s.%d", argv[++i], rank);
            fclose(fopen(name, "w"));
        } else if (!strcmp(argv[i], "await")) {
            i++;
            while (access(argv[i], F_OK) != 0)
                nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
            MPI_Barrier(MPI_COMM_WORLD);
        } else if (!strcmp(argv[i], "call")) {
            call(argv[++i]);
        } else if (!strcmp(argv[i], "fork")) {
            forks();
        } else {
            break;
        }
    }
    if (rank == 0) printf("%s: %d ranks, checksum %.0f\n", argv[1], size, all);
    fflush(stdout);
    for (int i = 4; i + 1 < argc; i++) {
        if (!strcmp(argv[i], "exit")) exit(atoi(argv[i + 1]));
        if (!strcmp(argv[i], "_exit")) _exit(atoi(argv[i + 1]));
        if (!strcmp(argv[i], "exec")) execv(argv[i + 1], argv + i + 1);
        if (!strcmp(argv[i], "then")) {
            MPI_Finalize();
            execv(argv[i + 1], argv + i + 1);
        }
    }
    MPI_Finalize();
    return 0;
}
