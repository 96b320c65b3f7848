// Interval timers of all three kinds, and one far ahead that must neither fire nor be lost.
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <sys/time.h>

static volatile sig_atomic_t reals, virtuals, profiles;

static void handler(int signal) {
    if (signal == SIGALRM) reals++;
    if (signal == SIGVTALRM) virtuals++;
    if (signal == SIGPROF) profiles++;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 40);
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    NEED(!sigaction(SIGALRM, &action, NULL) && !sigaction(SIGVTALRM, &action, NULL));
    NEED(!sigaction(SIGPROF, &action, NULL));
    struct itimerval every = {{0, 5000}, {0, 5000}}, far = {{5, 0}, {7200, 0}}, now;
    NEED(!setitimer(ITIMER_REAL, &every, NULL) && !setitimer(ITIMER_VIRTUAL, &every, NULL));
    NEED(!setitimer(ITIMER_PROF, &far, NULL));
    // As long as it takes for both to have fired so often.
    for (long i = 0; reals < n || virtuals < n; i++) {
        NEED(i < 10000000);
        work(1);
        CHECK(getitimer(ITIMER_PROF, &now) == 0 && now.it_interval.tv_sec == 5);
        CHECK(now.it_value.tv_sec > 7000 && now.it_value.tv_sec <= 7200);
        CHECK(getitimer(ITIMER_REAL, &now) == 0 && now.it_interval.tv_usec == 5000);
    }
    CHECK(profiles == 0);
    add((uint64_t)n);
    return finish("itimers");
}
