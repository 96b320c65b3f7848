// Restartable sequences: libc's registration must be alive after a restore, or sched_getcpu would
// tell a stale number.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <sched.h>
#include <sys/syscall.h>

static long n;

static void *worker(void *arg) {
    cpu_set_t all;
    NEED(sched_getaffinity(0, sizeof all, &all) == 0);
    int cpus[CPU_SETSIZE], count = 0;
    for (int c = 0; c < CPU_SETSIZE; c++) if (CPU_ISSET(c, &all)) cpus[count++] = c;
    for (long i = 0; i < n; i++) {
        cpu_set_t one;
        int cpu = cpus[(i + (long)arg) % count];
        CPU_ZERO(&one);
        CPU_SET(cpu, &one);
        CHECK(sched_setaffinity(0, sizeof one, &one) == 0);
        unsigned kernel;
        CHECK(syscall(SYS_getcpu, &kernel, NULL, NULL) == 0 && (int)kernel == cpu);
        CHECK(sched_getcpu() == cpu);
        work(1);
    }
    return arg;
}

int main(int argc, char **argv) {
    n = rounds(argc, argv, 8000);
    pthread_t other;
    NEED(pthread_create(&other, NULL, worker, (void *)1) == 0);
    worker(NULL);
    CHECK(pthread_join(other, NULL) == 0);
    add((uint64_t)n);
    return finish("restartable");
}
