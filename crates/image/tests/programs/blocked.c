// Blocked in system calls of every way to be restarted; none may come back early or with an error.
#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 10;
    long ms = 8;
    long early = 0, errors = 0;
    int word = 0;
    sem_t sem;
    sem_init(&sem, 0, 0);
    for (int i = 0; i < rounds; i++) {
        struct timespec wait = {0, ms * 1000000};
        struct timeval wait_tv = {0, ms * 1000};
        double begun = now();
        switch (i % 6) {
        case 0:
            if (nanosleep(&wait, NULL)) errors++;
            break;
        case 1:
            if (syscall(SYS_futex, &word, FUTEX_WAIT, 0, &wait, NULL, 0) != -1 || errno != ETIMEDOUT) errors++;
            break;
        case 2:
            if (poll(NULL, 0, (int)ms)) errors++;
            break;
        case 3:
            if (select(0, NULL, NULL, NULL, &wait_tv)) errors++;
            break;
        case 4: {
            struct timespec until;
            clock_gettime(CLOCK_REALTIME, &until);
            until.tv_nsec += ms * 1000000;
            if (until.tv_nsec >= 1000000000) {
                until.tv_nsec -= 1000000000;
                until.tv_sec++;
            }
            if (sem_timedwait(&sem, &until) != -1 || errno != ETIMEDOUT) errors++;
            break;
        }
        case 5: {
            struct timespec until;
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec += 0;
            until.tv_nsec += ms * 1000000;
            if (until.tv_nsec >= 1000000000) {
                until.tv_nsec -= 1000000000;
                until.tv_sec++;
            }
            if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL)) errors++;
            break;
        }
        }
        // Half a millisecond for the granularity of clocks.
        if (now() - begun < ms * 1e-3 - 0.0005) early++;
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%d rounds, %ld early, %ld errors\n", rounds, early, errors);
    return fclose(out);
}
