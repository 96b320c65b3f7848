// Threads that are blocked in the kernel in every way that an image must continue: asleep, until a
// time, in poll, in a read, on a lock, in a wait for a signal. None may notice.
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <time.h>

static int quiet[2], over;
static sem_t never;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static struct timespec later(long ns) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_nsec += ns;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void *sleeps(void *arg) {
    while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
        struct timespec brief = {0, 30000000}, until = later(20000000), now;
        CHECK(nanosleep(&brief, NULL) == 0);
        CHECK(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
        CHECK(now.tv_sec > until.tv_sec || now.tv_nsec >= until.tv_nsec || now.tv_sec > until.tv_sec);
    }
    return arg;
}

static void *polls(void *arg) {
    while (!__atomic_load_n(&over, __ATOMIC_SEQ_CST)) {
        struct pollfd one = {.fd = quiet[0], .events = POLLIN};
        struct timeval brief = {0, 20000};
        fd_set set;
        FD_ZERO(&set);
        FD_SET(quiet[0], &set);
        int ready = poll(&one, 1, 25);
#ifdef __GLIBC__
        CHECK(ready == 0);
#else
        // Stopped twice, nothing tells that it is a poll: musl loads its number elsewhere.
        CHECK(ready == 0 || (ready == -1 && errno == EINTR));
#endif
        // These two are not begun again by the kernel itself, whoever stops the thread.
        int found = select(quiet[0] + 1, &set, NULL, NULL, &brief);
        CHECK(found == 0 || (found == -1 && errno == EINTR));
    }
    return arg;
}

static void *reads(void *arg) {
    char byte;
    CHECK(read(quiet[0], &byte, 1) == 0);
    return arg;
}

static void *posts(void *arg) {
    CHECK(sem_wait(&never) == 0);
    pthread_mutex_lock(&held);
    pthread_mutex_unlock(&held);
    return arg;
}

static void *conditions(void *arg) {
    pthread_mutex_lock(&lock);
    while (!over) pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
    return arg;
}

static void *signals(void *arg) {
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    int got;
    while ((got = sigwaitinfo(&set, &info)) == -1 && errno == EINTR) continue;
    CHECK(got == SIGUSR1);
    return arg;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 25000);
    void *(*bodies[])(void *) = {sleeps, polls, reads, posts, conditions, signals};
    pthread_t threads[6];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    NEED(pipe(quiet) == 0 && sem_init(&never, 0, 0) == 0);
    pthread_mutex_lock(&held);
    for (int t = 0; t < 6; t++) NEED(pthread_create(&threads[t], NULL, bodies[t], NULL) == 0);
    add(work(n));
    pthread_mutex_lock(&lock);
    __atomic_store_n(&over, 1, __ATOMIC_SEQ_CST);
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    sem_post(&never);
    pthread_mutex_unlock(&held);
    CHECK(pthread_kill(threads[5], SIGUSR1) == 0);
    CHECK(pthread_join(threads[1], NULL) == 0 && close(quiet[1]) == 0);
    for (int t = 0; t < 6; t++) if (t != 1) CHECK(pthread_join(threads[t], NULL) == 0);
    return finish("blocked");
}
