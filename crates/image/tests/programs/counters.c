// eventfd, timerfd, signalfd, and signals that tell of a pipe's readiness.
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <time.h>

static volatile sig_atomic_t told;

static void on_ready(int signal) {
    (void)signal;
    told++;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    int count = eventfd(7, EFD_CLOEXEC), tokens = eventfd(5, EFD_SEMAPHORE | EFD_NONBLOCK);
    int large = eventfd(0, 0);
    uint64_t value = 0xfffffffffffffff0, five = 5;
    CHECK(write(large, &value, 8) == 8);
    sigset_t set, some;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGRTMIN + 4);
    some = set;
    sigaddset(&some, SIGUSR2);
    sigprocmask(SIG_BLOCK, &some, NULL);
    int signals = signalfd(-1, &set, SFD_NONBLOCK);
    sigqueue(getpid(), SIGRTMIN + 4, (union sigval){.sival_int = 41});
    sigqueue(getpid(), SIGRTMIN + 4, (union sigval){.sival_int = 42});
    kill(getpid(), SIGUSR2);
    int ticking = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int once = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC), idle = timerfd_create(CLOCK_REALTIME, 0);
    int daily = timerfd_create(CLOCK_REALTIME, 0), done = timerfd_create(CLOCK_MONOTONIC, 0);
    struct itimerspec often = {{0, 1000000}, {0, 1000000}}, late = {{0, 0}, {5000, 0}};
    struct itimerspec at = {{86400, 0}, {0, 0}}, soon = {{0, 0}, {0, 1}}, seen;
    clock_gettime(CLOCK_REALTIME, &at.it_value);
    at.it_value.tv_sec += 9000;
    CHECK(!timerfd_settime(ticking, 0, &often, NULL) && !timerfd_settime(once, 0, &late, NULL));
    CHECK(!timerfd_settime(daily, TFD_TIMER_ABSTIME, &at, NULL));
    CHECK(!timerfd_settime(done, 0, &soon, NULL));
    int ends[2];
    struct sigaction action = {.sa_handler = on_ready};
    sigaction(SIGRTMIN + 6, &action, NULL);
    CHECK(!pipe(ends));
    // Without privileges it may have another number between the two calls, also below.
    while (fcntl(ends[0], F_SETOWN, getpid())) {}
    CHECK(!fcntl(ends[0], F_SETSIG, SIGRTMIN + 6) && !fcntl(ends[0], F_SETFL, O_ASYNC));
    uint64_t ticks = 0;
    for (long r = 0; r < rounds; r++) {
        CHECK(write(count, &five, 8) == 8 && read(count, &value, 8) == 8);
        CHECK(value == (r ? 5 : 12));
        CHECK(read(tokens, &value, 8) == 8 && value == 1);
        value = 1;
        CHECK(write(tokens, &value, 8) == 8);
        struct pollfd full = {.fd = large, .events = POLLOUT | POLLIN};
        CHECK(poll(&full, 1, 0) == 1 && full.revents == (POLLIN | POLLOUT));
        struct signalfd_siginfo info;
        CHECK(read(signals, &info, sizeof info) == sizeof info);
        CHECK(info.ssi_signo == (uint32_t)SIGRTMIN + 4 && info.ssi_int == 41 + r % 2);
        while (sigqueue(getpid(), SIGRTMIN + 4, (union sigval){.sival_int = info.ssi_int})) {}
        if (read(ticking, &value, 8) == 8) ticks += value;
        CHECK(!timerfd_gettime(ticking, &seen) && seen.it_interval.tv_nsec == 1000000);
        // Zero in the moment between its time and its expiration.
        CHECK(seen.it_value.tv_sec == 0 && seen.it_value.tv_nsec <= 1000000);
        CHECK(!timerfd_gettime(once, &seen) && seen.it_value.tv_sec < 5000);
        CHECK(seen.it_value.tv_sec > 4000 && seen.it_interval.tv_sec == 0);
        CHECK(!timerfd_gettime(idle, &seen) && !seen.it_value.tv_sec && !seen.it_value.tv_nsec);
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        CHECK(!timerfd_gettime(daily, &seen) && seen.it_interval.tv_sec == 86400);
        CHECK(labs(now.tv_sec + seen.it_value.tv_sec - at.it_value.tv_sec) <= 1);
        struct pollfd over = {.fd = done, .events = POLLIN};
        CHECK(poll(&over, 1, 1000) == 1);
        if (r % 16 == 0) {
            int before = told;
            CHECK(write(ends[1], "x", 1) == 1 && read(ends[0], &value, 1) == 1);
            CHECK(told > before && fcntl(ends[0], F_GETFL) & O_ASYNC);
        }
        CHECK(fcntl(count, F_GETFD) == FD_CLOEXEC && fcntl(tokens, F_GETFL) & O_NONBLOCK);
    }
    CHECK(read(done, &value, 8) == 8 && value == 1);
    for (int i = 0; i < 4; i++) CHECK(read(tokens, &value, 8) == 8 && value == 1);
    CHECK(read(tokens, &value, 8) == 8 && read(tokens, &value, 8) == -1 && errno == EAGAIN);
    CHECK(read(large, &value, 8) == 8 && value == 0xfffffffffffffff0);
    while (ticks < 100) if (read(ticking, &value, 8) == 8) ticks += value;
    sigpending(&set);
    CHECK(sigismember(&set, SIGUSR2));
    return finish(rounds);
}
