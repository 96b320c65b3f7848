// epoll: level and edge triggered, one shot, nested, a signalfd, and a number that was closed since.
#define _GNU_SOURCE
#include "check.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

static int outer, inner;

static void watch(int instance, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    CHECK(!epoll_ctl(instance, EPOLL_CTL_ADD, fd, &event));
}

// Which words are reported now, as bits.
static uint64_t ready(int instance) {
    struct epoll_event events[16];
    int n = epoll_wait(instance, events, 16, 0);
    CHECK(n >= 0);
    uint64_t seen = 0;
    for (int i = 0; i < n; i++) seen |= events[i].data.u64;
    return seen;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    int level[2], edge[2], moved[2], shot = eventfd(0, EFD_NONBLOCK);
    CHECK(!pipe(level) && !socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, edge));
    CHECK(!pipe(moved));
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int signals = signalfd(-1, &set, SFD_NONBLOCK);
    outer = epoll_create1(EPOLL_CLOEXEC);
    inner = epoll_create1(0);
    watch(inner, level[0], EPOLLIN, 1);
    watch(inner, signals, EPOLLIN, 2);
    watch(outer, inner, EPOLLIN, 4);
    watch(outer, edge[0], EPOLLIN | EPOLLET, 8);
    watch(outer, shot, EPOLLIN | EPOLLONESHOT, 16);
    // Registered under a number that means another file afterwards.
    int number = moved[0], kept = dup(moved[0]);
    watch(outer, number, EPOLLIN, 32);
    CHECK(dup2(level[1], number) == number);
    watch(outer, kept, EPOLLIN, 64);
    for (long r = 0; r < rounds; r++) {
        char text[8];
        uint64_t one = 1;
        CHECK(ready(inner) == 0 && (ready(outer) & ~8ull) == 0);
        CHECK(write(level[1], "x", 1) == 1 && ready(outer) & 4 && ready(inner) == 1);
        CHECK(read(level[0], text, 8) == 1);
        // Without privileges it may have another number between the two calls.
        while (kill(getpid(), SIGUSR1)) {}
        CHECK(ready(inner) == 2);
        struct signalfd_siginfo info;
        CHECK(read(signals, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
        // An edge is reported at least once; level-triggered ones as long as they hold.
        CHECK(write(edge[1], "y", 1) == 1 && ready(outer) & 8);
        CHECK(read(edge[0], text, 8) == 1);
        CHECK(write(shot, &one, 8) == 8);
        CHECK(ready(outer) & 16);
        CHECK(!(ready(outer) & 16));
        struct epoll_event again = {.events = EPOLLIN | EPOLLONESHOT, .data.u64 = 16};
        CHECK(read(shot, &one, 8) == 8 && !epoll_ctl(outer, EPOLL_CTL_MOD, shot, &again));
        CHECK(write(moved[1], "z", 1) == 1);
        CHECK((ready(outer) & ~8ull) == 96 && read(kept, text, 8) == 1);
        CHECK(fcntl(outer, F_GETFD) == FD_CLOEXEC && fcntl(inner, F_GETFD) == 0);
    }
    struct epoll_event event = {0};
    CHECK(!epoll_ctl(outer, EPOLL_CTL_DEL, inner, &event));
    CHECK(epoll_ctl(outer, EPOLL_CTL_DEL, number, &event) == -1 && errno == ENOENT);
    return finish(rounds);
}
