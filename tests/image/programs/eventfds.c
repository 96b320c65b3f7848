// Event counters, plain and as semaphores, with a count in them and a thread blocked in one.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sys/eventfd.h>

static int ping, pong;
static long n;

static void *answer(void *arg) {
    for (long i = 0; i < n; i++) {
        uint64_t count = 0;
        CHECK(read(ping, &count, 8) == 8 && count == (uint64_t)i + 1);
        CHECK(write(pong, &count, 8) == 8);
    }
    return arg;
}

int main(int argc, char **argv) {
    n = rounds(argc, argv, 6000);
    int kept = eventfd(41, 0), tokens = eventfd(9, EFD_SEMAPHORE | EFD_NONBLOCK | EFD_CLOEXEC);
    ping = eventfd(0, 0);
    pong = eventfd(0, 0);
    NEED(kept >= 0 && tokens >= 0 && ping >= 0 && pong >= 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, answer, NULL) == 0);
    uint64_t one = 1, count;
    for (long i = 0; i < n; i++) {
        uint64_t say = (uint64_t)i + 1;
        CHECK(write(ping, &say, 8) == 8);
        CHECK(read(pong, &count, 8) == 8 && count == say);
        CHECK(read(tokens, &count, 8) == 8 && count == 1);
        work(1);
        CHECK(write(tokens, &one, 8) == 8);
        CHECK(write(kept, &one, 8) == 8);
        add(count + say);
    }
    CHECK(read(kept, &count, 8) == 8 && count == 41 + (uint64_t)n);
    int left = 0;
    while (read(tokens, &count, 8) == 8) left++;
    CHECK(left == 9 && errno == EAGAIN);
    CHECK(pthread_join(thread, NULL) == 0);
    return finish("eventfds");
}
