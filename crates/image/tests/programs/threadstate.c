// What the kernel and libc keep for each thread: thread-local data, errno, signal mask, pending
// signals, alternate stack, name, rounding mode; and threads that are blocked in the kernel.
#define _GNU_SOURCE
#include <errno.h>
#include <fenv.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS 6

static __thread int local;
static __thread volatile sig_atomic_t caught;
static __thread char *caught_at;
static atomic_int done, failures;
static int same_number;
static pthread_barrier_t barrier;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static sem_t never;
static pthread_t threads[THREADS];

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "line %d: %s\n", __LINE__, #what); failures++; } } while (0)

static void handler(int signal) {
    char here;
    caught = signal;
    caught_at = &here;
}

// Where a restore may not choose numbers, one that libc has just asked for may be another now.
static int tell_self(int signal) {
    int error = pthread_kill(pthread_self(), signal);
    return error == ESRCH && !same_number ? pthread_kill(pthread_self(), signal) : error;
}

static void *worker(void *arg) {
    int i = (int)(intptr_t)arg;
    static const int modes[] = {FE_TONEAREST, FE_DOWNWARD, FE_UPWARD, FE_TOWARDZERO};
    char name[16], found[16];
    pid_t number = (pid_t)syscall(SYS_gettid);
    sigset_t mask, now;
    stack_t stack = {.ss_sp = malloc(65536), .ss_size = 65536}, seen;
    snprintf(name, sizeof name, "worker %d", i);
    pthread_setname_np(pthread_self(), name);
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN + i);
    sigaddset(&mask, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &mask, NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    sigaltstack(&stack, NULL);
    fesetround(modes[i % 4]);
    local = 1000 + i;
    // Pending for this thread alone, until the end.
    CHECK(tell_self(SIGUSR2) == 0);
    pthread_barrier_wait(&barrier);
    for (int turn = 0; !atomic_load(&done); turn++) {
        errno = 70 + i;
        for (volatile int k = 0; k < 2000; k++) continue;
        CHECK(errno == 70 + i);
        CHECK(local == 1000 + i);
        CHECK(fegetround() == modes[i % 4]);
        memset(&now, 0, sizeof now);
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        for (int s = 1; s < 64; s++) CHECK(sigismember(&now, s) == sigismember(&mask, s));
        sigaltstack(NULL, &seen);
        CHECK(seen.ss_sp == stack.ss_sp && seen.ss_size == stack.ss_size && seen.ss_flags == 0);
        pthread_getname_np(pthread_self(), found, sizeof found);
        CHECK(!strcmp(name, found));
        if (same_number) CHECK(syscall(SYS_gettid) == number);
        // libc must know the thread by the number that the kernel has for it.
        caught = 0;
        CHECK(tell_self(SIGUSR1) == 0);
        CHECK(caught == SIGUSR1);
        CHECK(caught_at > (char *)stack.ss_sp && caught_at < (char *)stack.ss_sp + 65536);
        sigpending(&now);
        CHECK(sigismember(&now, SIGUSR2));
        if (turn % 8 == i) {
            struct timespec t = {0, 1000000};
            CHECK(nanosleep(&t, NULL) == 0);
        }
    }
    caught = 0;
    sigemptyset(&now);
    sigaddset(&now, SIGUSR2);
    pthread_sigmask(SIG_UNBLOCK, &now, NULL);
    CHECK(caught == SIGUSR2);
    return (void *)(intptr_t)(i * i);
}

static void *waits_for_semaphore(void *arg) {
    while (sem_wait(&never)) CHECK(errno == EINTR && 0);
    return arg;
}

static void *waits_for_mutex(void *arg) {
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return arg;
}

static void *sleeps(void *arg) {
    struct timespec t = {0, 400000000};
    CHECK(nanosleep(&t, NULL) == 0);
    return arg;
}

static void *joins(void *arg) {
    void *result;
    pthread_join(*(pthread_t *)arg, &result);
    return result;
}

int main(int argc, char **argv) {
    long ms = argc > 1 ? atol(argv[1]) : 1000;
    same_number = argc > 2 && !strcmp(argv[2], "same");
    pthread_t semaphore, mutex, sleeper, joiner;
    void *result;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    sem_init(&never, 0, 0);
    pthread_barrier_init(&barrier, NULL, THREADS + 1);
    pthread_mutex_lock(&held);
    pthread_create(&semaphore, NULL, waits_for_semaphore, &never);
    pthread_create(&mutex, NULL, waits_for_mutex, &held);
    pthread_create(&sleeper, NULL, sleeps, &done);
    pthread_create(&joiner, NULL, joins, &sleeper);
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, (void *)i);
    pthread_barrier_wait(&barrier);
    struct timespec t = {ms / 1000, ms % 1000 * 1000000};
    CHECK(nanosleep(&t, NULL) == 0);
    atomic_store(&done, 1);
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], &result) == 0);
        fprintf(out, "%d: %d\n", i, (int)(intptr_t)result);
    }
    pthread_mutex_unlock(&held);
    sem_post(&never);
    CHECK(pthread_join(semaphore, &result) == 0 && result == &never);
    CHECK(pthread_join(mutex, &result) == 0 && result == &held);
    CHECK(pthread_join(joiner, &result) == 0 && result == &done);
    fprintf(out, "failures: %d\n", atomic_load(&failures));
    return fclose(out);
}
