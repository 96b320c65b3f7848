// An epoll set with level- and edge-triggered and one-shot members, the data of each, a nested set,
// and a thread blocked in it.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int set, inner, ends[2], answers[2];
static long n;

static void join(int to, int fd, uint32_t events, uint64_t data) {
    struct epoll_event event = {.events = events, .data.u64 = data};
    NEED(epoll_ctl(to, EPOLL_CTL_ADD, fd, &event) == 0);
}

static void *serve(void *arg) {
    for (long i = 0; i < n;) {
        struct epoll_event event;
        if (epoll_wait(set, &event, 1, -1) != 1) {
            CHECK(errno == EINTR);
            continue;
        }
        CHECK(event.data.u64 == 0xfeed0001 && event.events == EPOLLIN);
        uint64_t word;
        CHECK(read(ends[0], &word, 8) == 8);
        CHECK(write(answers[1], &word, 8) == 8);
        i++;
    }
    return arg;
}

int main(int argc, char **argv) {
    n = rounds(argc, argv, 5000);
    int quiet = eventfd(0, EFD_NONBLOCK), edge = eventfd(0, EFD_NONBLOCK);
    int once = eventfd(3, EFD_NONBLOCK), deep = eventfd(0, EFD_NONBLOCK);
    NEED(!pipe(ends) && !pipe(answers) && quiet >= 0 && edge >= 0 && once >= 0 && deep >= 0);
    int other = epoll_create1(EPOLL_CLOEXEC);
    NEED((set = epoll_create1(0)) >= 0 && (inner = epoll_create1(0)) >= 0 && other >= 0);
    join(set, ends[0], EPOLLIN, 0xfeed0001);
    join(set, quiet, EPOLLIN, 0xfeed0002);
    join(other, edge, EPOLLIN | EPOLLET, 0xfeed0003);
    join(other, once, EPOLLIN | EPOLLONESHOT, 0xfeed0004);
    join(inner, deep, EPOLLIN, 0xfeed0005);
    join(other, inner, EPOLLIN, 0xfeed0006);
    struct epoll_event events[8];
    // The one-shot member fires now and never again.
    NEED(epoll_wait(other, events, 8, 0) == 1 && events[0].data.u64 == 0xfeed0004);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, serve, NULL) == 0);
    for (long i = 0; i < n; i++) {
        uint64_t word = value_at((uint64_t)i), one = 1, found = 0;
        CHECK(write(ends[1], &word, 8) == 8);
        CHECK(read(answers[0], &found, 8) == 8 && found == word);
        add(found);
        work(1);
        if (i % 100 == 0) {
            CHECK(write(deep, &one, 8) == 8);
            int seen = epoll_wait(other, events, 8, 0), nested = 0;
            for (int k = 0; k < seen; k++) {
                nested += events[k].data.u64 == 0xfeed0006;
                CHECK(events[k].data.u64 != 0xfeed0004);
            }
            CHECK(nested == 1 && read(deep, &one, 8) == 8);
        }
    }
    CHECK(pthread_join(thread, NULL) == 0);
    return finish("epolls");
}
