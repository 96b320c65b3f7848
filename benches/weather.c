// A program with much going on, for benches/freeze-storm: weather THREADS SEED FILE [quiet]
//
// Each thread computes and sleeps in turn; now and then one starts a thread that ends at once, a
// child that executes another program, or a process that ends by itself; one gets signals by a
// timer. How far each thread is stands in FILE, which is mapped: a word each. When the file
// FILE.stop is there all end, and each holds its sum against one computed anew from its number of
// rounds: 0 is the exit code if all are right. quiet: without children.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

static volatile uint64_t *rounds;
static volatile int over, wrong;
static volatile sig_atomic_t rung;
static uint64_t seed;
static int quiet;

static void ring(int signal) {
    (void)signal;
    rung++;
}

static uint64_t next(uint64_t sum, uint64_t round) {
    return (sum ^ round) * 1099511628211ull + (sum >> 29);
}

static void *leaf(void *arg) {
    return (void *)next((uintptr_t)arg, 1);
}

static void thread_that_ends(uint64_t sum) {
    pthread_t other;
    void *answer;
    if (pthread_create(&other, NULL, leaf, (void *)sum)) return;
    if (pthread_join(other, &answer) || (uint64_t)(uintptr_t)answer != next(sum, 1)) wrong = 2;
}

static void child_that_ends(int executes) {
    pid_t child = fork();
    int status = 0;
    if (child == 0) {
        if (executes) execl("/bin/true", "true", (char *)NULL);
        _exit(0);
    }
    if (child < 0) return;
    if (waitpid(child, &status, 0) != child || status != 0) wrong = 3;
}

static void *work(void *arg) {
    uint64_t me = (uintptr_t)arg, sum = seed + me, round = 0;
    while (!over) {
        uint64_t chance = sum % 512;
        struct timespec rest = {0, 2000000 + (long)(sum % 8000000)};
        while (nanosleep(&rest, &rest)) continue;
        sum = next(sum, round++);
        rounds[me] = round;
        if (chance < 8) thread_that_ends(sum);
        // One thread of many: children are stopped with their parent, and take their time.
        if (!quiet && me < 4 && chance < 40) child_that_ends(chance % 2);
    }
    uint64_t again = seed + me;
    for (uint64_t i = 0; i < round; i++) again = next(again, i);
    if (again != sum) wrong = 4;
    return NULL;
}

static int is_to_end(const char *path) {
    char name[4096];
    snprintf(name, sizeof name, "%s.stop", path);
    int stop = access(name, F_OK) == 0;
#ifdef WITH_MPI
    int all = 0;
    if (MPI_Allreduce(&stop, &all, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD)) exit(8);
    stop = all;
#endif
    return stop;
}

int main(int argc, char **argv) {
    if (argc < 4) return 9;
    long threads = atol(argv[1]);
    seed = strtoull(argv[2], NULL, 10);
    quiet = argc > 4;
    char path[4096];
    snprintf(path, sizeof path, "%s", argv[3]);
#ifdef WITH_MPI
    int rank, given;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &given)) return 8;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    snprintf(path, sizeof path, "%s.%d", argv[3], rank);
#endif
    size_t bytes = (size_t)threads * sizeof *rounds;
    int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, (off_t)bytes)) return perror(path), 1;
    rounds = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (rounds == MAP_FAILED) return perror("mmap"), 1;
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = ring;
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGCHLD, &action, NULL);
    struct itimerval often = {{0, 9000}, {0, 9000}};
    setitimer(ITIMER_REAL, &often, NULL);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_t *all = calloc((size_t)threads, sizeof *all);
    for (uintptr_t i = 1; (long)i < threads; i++) {
        if (pthread_create(&all[i], &small, work, (void *)i)) return perror("thread"), 2;
    }
    while (!is_to_end(argv[3])) {
        struct timespec rest = {0, 10000000};
        nanosleep(&rest, NULL);
        rounds[0]++;
        if (rounds[0] % 32 == 0) thread_that_ends(rounds[0]);
    }
    over = 1;
    for (long i = 1; i < threads; i++) {
        if (pthread_join(all[i], NULL)) return 5;
    }
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    if (wrong) fprintf(stderr, "weather: wrong (%d)\n", wrong);
    return wrong;
}
