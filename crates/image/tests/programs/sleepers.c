// Threads that wait in the kernel in every way there is, with and without a limit. None may come
// back early or with an error, and none that was told how much is left of its sleep may oversleep.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/ipc.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static atomic_int done;
static long ms;
static sem_t never;
static int failures[16];

#define CHECK(i, what) do { if (!(what)) { fprintf(stderr, "thread %d, line %d: %s (errno %d)\n", i, __LINE__, #what, errno); failures[i]++; } } while (0)

static double now(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static struct timespec in(clockid_t clock, long wait) {
    struct timespec t;
    clock_gettime(clock, &t);
    t.tv_nsec += wait * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    return t;
}

static void wait_once(int i) {
    struct timespec wait = {ms / 1000, ms % 1000 * 1000000}, left = {0, 0}, until;
    struct timeval tv = {ms / 1000, ms % 1000 * 1000};
    sigset_t set;
    int word = 0;
    switch (i) {
    case 0: CHECK(i, syscall(SYS_nanosleep, &wait, &left) == 0); break;
    case 1: CHECK(i, syscall(SYS_nanosleep, &wait, NULL) == 0); break;
    case 2: CHECK(i, syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &wait, &left) == 0); break;
    case 3:
        until = in(CLOCK_REALTIME, ms);
        CHECK(i, clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &until, NULL) == 0);
        break;
    case 4: CHECK(i, poll(NULL, 0, (int)ms) == 0); break;
    case 5: CHECK(i, ppoll(NULL, 0, &wait, NULL) == 0); break;
    case 6: CHECK(i, select(0, NULL, NULL, NULL, &tv) == 0); break;
    case 7:
        CHECK(i, syscall(SYS_futex, &word, FUTEX_WAIT, 0, &wait, NULL, 0) == -1 && errno == ETIMEDOUT);
        break;
    case 8:
        until = in(CLOCK_REALTIME, ms);
        CHECK(i, sem_timedwait(&never, &until) == -1 && errno == ETIMEDOUT);
        break;
    case 9:
        sigemptyset(&set);
        sigaddset(&set, SIGUSR2);
        // Ends with EINTR after any stop, as signal(7) says of it.
        CHECK(i, sigtimedwait(&set, NULL, &wait) == -1 && (errno == EAGAIN || errno == EINTR));
        break;
    }
}

static void *sleeper(void *arg) {
    int i = (int)(long)arg;
    while (!done) {
        clockid_t clock = i == 3 || i == 8 ? CLOCK_REALTIME : CLOCK_MONOTONIC;
        double begun = now(clock);
        errno = 0;
        wait_once(i);
        int cut = i == 9 && errno == EINTR;
        CHECK(i, cut || now(clock) - begun > ms * 1e-3 - 0.0005);
    }
    return NULL;
}

static void *polls(void *arg) {
    struct epoll_event event;
    int i = 10, n = epoll_wait(*(int *)arg, &event, 1, -1);
    CHECK(i, n == 1 && event.data.u32 == 77);
    return NULL;
}

static void *takes_signal(void *arg) {
    int i = 11;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    siginfo_t info;
    CHECK(i, sigwaitinfo(&set, &info) == SIGUSR1);
    return arg;
}

static void *takes_semaphore(void *arg) {
    int i = 12;
    struct sembuf take = {0, -1, 0};
    CHECK(i, semop(*(int *)arg, &take, 1) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10;
    ms = argc > 2 ? atol(argv[2]) : 30;
    int persistent = argc > 3;
    pthread_t threads[10], waiter, semaphores;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    sem_init(&never, 0, 0);
    pthread_create(&waiter, NULL, takes_signal, NULL);
    // A semaphore of System V and an epoll instance live in the kernel: only without a restore.
    int set_id = -1, poll_fd = -1, ends[2] = {-1, -1};
    pthread_t poller;
    if (persistent) {
        set_id = semget(IPC_PRIVATE, 1, 0600);
        poll_fd = epoll_create1(0);
        if (set_id < 0 || poll_fd < 0 || pipe(ends)) return 2;
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = 77};
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, ends[0], &event);
        pthread_create(&semaphores, NULL, takes_semaphore, &set_id);
        pthread_create(&poller, NULL, polls, &poll_fd);
    }
    for (long i = 0; i < 10; i++) pthread_create(&threads[i], NULL, sleeper, (void *)i);
    for (long i = 0; i < rounds; i++) {
        struct timespec t = {0, 10000000};
        nanosleep(&t, &t);
    }
    done = 1;
    for (int i = 0; i < 10; i++) pthread_join(threads[i], NULL);
    pthread_kill(waiter, SIGUSR1);
    pthread_join(waiter, NULL);
    if (persistent) {
        struct sembuf give = {0, 1, 0};
        if (semop(set_id, &give, 1) || write(ends[1], "x", 1) != 1) return 3;
        pthread_join(semaphores, NULL);
        pthread_join(poller, NULL);
        semctl(set_id, 0, IPC_RMID);
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    for (int i = 0; i < 13; i++) fprintf(out, "%d: %d\n", i, failures[i]);
    return fclose(out);
}
