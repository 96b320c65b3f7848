// Timer descriptors: periodic, once far ahead, of two clocks, one that has fired and was not read.
#define _GNU_SOURCE
#include "check.h"
#include <sys/timerfd.h>
#include <time.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 120);
    int tick = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    int far = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    int fired = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    int off = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK);
    NEED(tick >= 0 && far >= 0 && fired >= 0 && off >= 0);
    struct itimerspec every = {{0, 2000000}, {0, 2000000}}, hour = {{7, 0}, {3600, 0}}, now;
    struct itimerspec once = {{0, 0}, {0, 1}};
    NEED(!timerfd_settime(tick, 0, &every, NULL) && !timerfd_settime(far, 0, &hour, NULL));
    NEED(!timerfd_settime(fired, 0, &once, NULL));
    uint64_t count;
    for (long i = 0; i < n; i++) {
        CHECK(read(tick, &count, 8) == 8 && count >= 1);
        CHECK(timerfd_gettime(tick, &now) == 0 && now.it_interval.tv_nsec == 2000000);
        CHECK(timerfd_gettime(far, &now) == 0 && now.it_interval.tv_sec == 7);
        CHECK(now.it_value.tv_sec > 3000 && now.it_value.tv_sec <= 3600);
        CHECK(read(far, &count, 8) == -1 && errno == EAGAIN);
        CHECK(timerfd_gettime(off, &now) == 0 && !now.it_value.tv_sec && !now.it_value.tv_nsec);
        work(10);
        add((uint64_t)i);
    }
    CHECK(read(fired, &count, 8) == 8 && count == 1);
    CHECK(read(fired, &count, 8) == -1 && errno == EAGAIN);
    return finish("timerfds");
}
