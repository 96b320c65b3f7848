// Waits until times of the clocks that begin with the machine's start: threads in the kernel and in
// the C library, a timer whose signal may be pending, and a child process. Each wait must end when its time has come, and no clock may
// go back. A byte in the file `rounds` for each round; it ends when there is a file `stop`.
#include "check.h"
#include <pthread.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <sys/syscall.h>
#include <time.h>

enum { STEP_NS = 50 * 1000 * 1000, LATE_S = 30 };

static double now(clockid_t clock) {
    static __thread double before[16];
    struct timespec by_vdso, by_call;
    clock_gettime(clock, &by_vdso);
    syscall(SYS_clock_gettime, clock, &by_call);
    double first = by_vdso.tv_sec + by_vdso.tv_nsec * 1e-9;
    double second = by_call.tv_sec + by_call.tv_nsec * 1e-9;
    CHECK(first >= before[clock] && first < before[clock] + LATE_S + 1e9 * (before[clock] == 0));
    CHECK(second >= first && second < first + LATE_S);
    return before[clock] = second;
}

static struct timespec soon(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    time.tv_nsec += STEP_NS;
    time.tv_sec += time.tv_nsec / 1000000000;
    time.tv_nsec %= 1000000000;
    return time;
}

static void on_time(clockid_t clock, struct timespec until) {
    double late = now(clock) - until.tv_sec - until.tv_nsec * 1e-9;
    CHECK(late > -1e-6 && late < LATE_S);
}

static void sleeps(clockid_t clock) {
    struct timespec until = soon(clock);
    CHECK(clock_nanosleep(clock, TIMER_ABSTIME, &until, NULL) == 0);
    on_time(clock, until);
}

static void waits_for_a_timer(clockid_t clock) {
    struct itimerspec at = {.it_value = soon(clock)};
    int fd = timerfd_create(clock, 0);
    uint64_t count = 0;
    CHECK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &at, NULL) == 0);
    CHECK(read(fd, &count, 8) == 8 && count == 1);
    on_time(clock, at.it_value);
    close(fd);
}

// Of a timer that goes on and on, as soon as it has gone: often its signal is pending before.
static void waits_for_a_signal(const sigset_t *set) {
    struct timespec limit = {.tv_sec = LATE_S};
    int got;
    do {
        got = sigtimedwait(set, NULL, &limit);
    } while (got < 0 && errno == EINTR);
    CHECK(got == SIGRTMIN);
}

static void *waits_for_nothing(void *unused) {
    (void)unused;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t never;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&never, &attributes);
    pthread_mutex_lock(&mutex);
    while (access("stop", F_OK) != 0) {
        struct timespec until = soon(CLOCK_MONOTONIC);
        CHECK(pthread_cond_timedwait(&never, &mutex, &until) == ETIMEDOUT);
        on_time(CLOCK_MONOTONIC, until);
    }
    return NULL;
}

int main(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t child = fork();
    if (child == 0) {
        while (access("stop", F_OK) != 0) sleeps(CLOCK_BOOTTIME);
        return wrong != 0;
    }
    pthread_t thread;
    pthread_create(&thread, NULL, waits_for_nothing, NULL);
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGRTMIN};
    struct itimerspec often = {.it_value.tv_nsec = STEP_NS, .it_interval.tv_nsec = STEP_NS};
    timer_t timer;
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    long rounds = 0;
    for (; access("stop", F_OK) != 0; rounds++) {
        sleeps(CLOCK_MONOTONIC);
        waits_for_a_timer(CLOCK_BOOTTIME);
        sleeps(CLOCK_BOOTTIME);
        waits_for_a_timer(CLOCK_MONOTONIC);
        waits_for_a_signal(&set);
        int fd = open("rounds", O_WRONLY | O_CREAT | O_APPEND, 0600);
        CHECK(write(fd, "x", 1) == 1);
        close(fd);
    }
    pthread_join(thread, NULL);
    int status = 1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return finish(rounds) || wrong != 0;
}
