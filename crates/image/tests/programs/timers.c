// POSIX timers: of several clocks, for the process, a thread, a function or nobody, by their numbers,
// with signals pending and intervals missed.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>

static _Atomic long calls, told;
static volatile sig_atomic_t ticks, value;

static void on_function(union sigval v) {
    if (v.sival_int == 77) calls++;
}

static void on_tick(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    if (info->si_code == SI_TIMER) value = info->si_value.sival_int;
    ticks++;
}

static void *listen_for(void *arg) {
    *(pid_t *)arg = (pid_t)syscall(SYS_gettid);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 7);
    siginfo_t info;
    for (;;) if (sigwaitinfo(&set, &info) > 0 && info.si_value.sival_int == 55) told++;
    return NULL;
}

static timer_t make(clockid_t clock, int how, int signal, int word) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = how, .sigev_signo = signal};
    event.sigev_value.sival_int = word;
    CHECK(!timer_create(clock, how < 0 ? NULL : &event, &timer));
    return timer;
}

static void set(timer_t timer, long first_ns, long every_ns) {
    struct itimerspec times = {{every_ns / 1000000000, every_ns % 1000000000},
                               {first_ns / 1000000000, first_ns % 1000000000}};
    CHECK(!timer_settime(timer, 0, &times, NULL));
}

static long left(timer_t timer) {
    struct itimerspec times;
    CHECK(!timer_gettime(timer, &times));
    return times.it_value.tv_sec;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 200;
    struct sigaction action = {.sa_sigaction = on_tick, .sa_flags = SA_SIGINFO};
    sigaction(SIGRTMIN + 6, &action, NULL);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN + 7);
    sigaddset(&blocked, SIGRTMIN + 8);
    sigaddset(&blocked, SIGRTMIN + 9);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    // Numbers with gaps.
    timer_t gone[40];
    for (int i = 0; i < 40; i++) gone[i] = make(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0);
    timer_t tick = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 6, 99);
    for (int i = 0; i < 40; i++) if (i != 5) timer_delete(gone[i]);
    timer_t quiet = make(CLOCK_REALTIME, SIGEV_NONE, 0, 0), late = make(CLOCK_BOOTTIME, -1, 0, 0);
    timer_t spent = make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_NONE, 0, 0);
    timer_t waiting = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 8, 31);
    timer_t once = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 9, 32);
    timer_t function;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_function};
    event.sigev_value.sival_int = 77;
    CHECK(!timer_create(CLOCK_REALTIME, &event, &function));
    volatile pid_t tid = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, listen_for, (void *)&tid);
    while (!tid) {}
    timer_t other;
    struct sigevent to = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGRTMIN + 7};
    to.sigev_value.sival_int = 55;
    *((pid_t *)((char *)&to + 16)) = tid;
    CHECK(!timer_create(CLOCK_MONOTONIC, &to, &other));
    set(tick, 2000000, 2000000);
    set(function, 5000000, 5000000);
    set(other, 3000000, 3000000);
    set(quiet, 5000000000000, 1000000);
    set(late, 6000000000000, 0);
    set(spent, 7000000000000, 0);
    set(gone[5], 8000000000000, 0);
    set(waiting, 1000000, 1000000);
    set(once, 1, 0);
    // From here on nothing depends on the number of the thread, which is another one where a restore
    // may not choose it.
    close(open("begun", O_WRONLY | O_CREAT, 0600));
    for (long r = 0; r < rounds; r++) {
        long before = ticks;
        while (ticks == before) {}
        CHECK(value == 99);
        CHECK(left(quiet) > 4000 && left(quiet) <= 5000 && left(late) > 5000 && left(late) <= 6000);
        CHECK(left(spent) > 6000 && left(spent) <= 7000 && left(gone[5]) > 7000);
        CHECK(timer_getoverrun(quiet) >= 0);
    }
    while (calls < rounds / 10 || told < rounds / 10) {}
    // Both were pending all the time; the one with an interval goes on when it is taken.
    siginfo_t info;
    CHECK(sigwaitinfo(&blocked, &info) > 0 && info.si_value.sival_int == 31);
    CHECK(info.si_overrun > 0);
    CHECK(sigwaitinfo(&blocked, &info) > 0);
    if (info.si_value.sival_int == 31) CHECK(sigwaitinfo(&blocked, &info) > 0 || errno == EINTR);
    struct itimerspec times;
    CHECK(!timer_gettime(waiting, &times) && times.it_interval.tv_nsec == 1000000);
    CHECK(!timer_gettime(once, &times) && !times.it_value.tv_sec && !times.it_value.tv_nsec);
    CHECK(!timer_delete(once) && !timer_delete(waiting) && !timer_delete(gone[5]));
    return finish(rounds);
}
