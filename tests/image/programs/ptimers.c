// POSIX timers: periodic with a signal and a value, for one thread, silent, disarmed, absolute far
// ahead; deleted and made anew so that numbers have gaps.
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id _sigev_un._tid
#endif
static volatile sig_atomic_t ticks, own;

static void handler(int signal, siginfo_t *info, void *context) {
    (void)context;
    CHECK(info->si_code == SI_TIMER);
    if (signal == SIGRTMIN + 5 && info->si_value.sival_int == 55) ticks++;
    if (signal == SIGRTMIN + 6 && info->si_value.sival_int == 66) own++;
}

static timer_t make(clockid_t clock, int notify, int signal, int value) {
    timer_t timer;
    struct sigevent event = {.sigev_notify = notify, .sigev_signo = signal};
    event.sigev_value.sival_int = value;
    event.sigev_notify_thread_id = (pid_t)syscall(SYS_gettid);
    NEED(timer_create(clock, &event, &timer) == 0);
    return timer;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 30);
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
    NEED(!sigaction(SIGRTMIN + 5, &action, NULL) && !sigaction(SIGRTMIN + 6, &action, NULL));
    timer_t gap = make(CLOCK_MONOTONIC, SIGEV_NONE, 0, 0);
    timer_t tick = make(CLOCK_MONOTONIC, SIGEV_SIGNAL, SIGRTMIN + 5, 55);
    timer_t mine = make(CLOCK_PROCESS_CPUTIME_ID, SIGEV_THREAD_ID, SIGRTMIN + 6, 66);
    timer_t silent = make(CLOCK_REALTIME, SIGEV_NONE, 0, 0), off = make(CLOCK_MONOTONIC, 0, SIGUSR1, 1);
    NEED(timer_delete(gap) == 0);
    struct itimerspec every = {{0, 4000000}, {0, 4000000}}, hour = {{9, 0}, {3600, 0}}, now;
    NEED(!timer_settime(tick, 0, &every, NULL) && !timer_settime(mine, 0, &every, NULL));
    NEED(!timer_settime(silent, 0, &hour, NULL));
    for (long i = 0; ticks < n || own < n; i++) {
        NEED(i < 10000000);
        work(1);
        CHECK(timer_gettime(silent, &now) == 0 && now.it_interval.tv_sec == 9);
        CHECK(now.it_value.tv_sec > 3000 && now.it_value.tv_sec <= 3600);
        CHECK(timer_gettime(off, &now) == 0 && !now.it_value.tv_sec && !now.it_value.tv_nsec);
        CHECK(timer_gettime(tick, &now) == 0 && now.it_interval.tv_nsec == 4000000);
        CHECK(timer_getoverrun(tick) >= 0);
    }
    CHECK(!timer_delete(tick) && !timer_delete(mine) && !timer_delete(silent) && !timer_delete(off));
    add((uint64_t)n);
    return finish("ptimers");
}
