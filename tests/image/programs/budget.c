// A limit of processor time (`ulimit -t`) counts what was used before a restart, too: what is left
// of it never grows, while the time that was used begins at 0 again.
#include "check.h"
#include <sys/resource.h>

enum { SOFT = 100, HARD = 250, USED = 1 };

static double used(void) {
    struct rusage own;
    NEED(getrusage(RUSAGE_SELF, &own) == 0);
    return (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
           (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 3000);
    struct rlimit limit = {SOFT, HARD};
    NEED(setrlimit(RLIMIT_CPU, &limit) == 0);
    while (used() < USED + 0.1) work(10);
    ready();
    for (long i = 0; i < n; i++) {
        NEED(getrlimit(RLIMIT_CPU, &limit) == 0);
        CHECK(limit.rlim_max - limit.rlim_cur == HARD - SOFT);
        CHECK((double)limit.rlim_cur - used() <= SOFT - USED);
        CHECK((double)limit.rlim_cur - used() > SOFT - 60);
        work(5);
    }
    add((uint64_t)n);
    return finish("budget");
}
