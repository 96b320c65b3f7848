// How the kernel treats the process and its threads: looked at again and again.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { THREADS = 3 };
static atomic_int done, wrong;
static int privileged;

struct attr { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t times[3]; };

static void look(char *to, size_t bytes) {
    struct attr attr = {0};
    cpu_set_t set;
    char name[16] = "";
    CPU_ZERO(&set);
    syscall(SYS_sched_getattr, 0, &attr, sizeof attr, 0);
    sched_getaffinity(0, sizeof set, &set);
    prctl(PR_GET_NAME, name);
    snprintf(to, bytes, "%u %lu %d %u io %lx slack %d cpus %d %d %d name %s", attr.policy,
             (unsigned long)attr.flags, attr.nice, attr.priority, syscall(SYS_ioprio_get, 1, 0),
             prctl(PR_GET_TIMERSLACK), CPU_COUNT(&set), CPU_ISSET(0, &set), CPU_ISSET(1, &set), name);
}

static void look_at_all(char *to, size_t bytes) {
    char score[32] = "";
    struct rlimit limit;
    mode_t mask = umask(0);
    umask(mask);
    FILE *f = fopen("/proc/self/oom_score_adj", "r");
    if (!f || !fgets(score, sizeof score, f)) wrong++;
    if (f) fclose(f);
    look(to, bytes);
    size_t n = strlen(to);
    snprintf(to + n, bytes - n, " oom %s umask %o secure %d privs %d", score, mask,
             prctl(PR_GET_SECUREBITS), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    for (int i = 0; i < 16; i++) {
        getrlimit(i, &limit);
        n = strlen(to);
        snprintf(to + n, bytes - n, " %lx", (unsigned long)limit.rlim_cur);
    }
}

static void compare(const char *before, const char *now) {
    if (!strcmp(before, now)) return;
    fprintf(stderr, "was %s\nis  %s\n", before, now);
    wrong++;
}

static void set(int i) {
    struct sched_param none = {0};
    cpu_set_t cpus;
    setpriority(PRIO_PROCESS, 0, 3 + i);
    if (i == 1) sched_setscheduler(0, SCHED_BATCH, &none);
    if (i == 2) sched_setscheduler(0, SCHED_IDLE | SCHED_RESET_ON_FORK, &none);
    if (i == 3 && privileged) sched_setscheduler(0, SCHED_RR, &(struct sched_param){7});
    syscall(SYS_ioprio_set, 1, 0, 2 << 13 | (i + 1));
    prctl(PR_SET_TIMERSLACK, 1000 * (i + 1));
    sched_getaffinity(0, sizeof cpus, &cpus);
    if (CPU_COUNT(&cpus) > 1 && i) {
        CPU_ZERO(&cpus);
        CPU_SET(i % 2, &cpus);
        sched_setaffinity(0, sizeof cpus, &cpus);
    }
}

static void *worker(void *arg) {
    char before[1024], now[1024];
    set((int)(intptr_t)arg);
    look(before, sizeof before);
    while (!done) {
        look(now, sizeof now);
        compare(before, now);
        usleep(500);
    }
    return arg;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    char before[2048], now[2048];
    pthread_t threads[THREADS];
    privileged = geteuid() == 0;
    umask(027);
    FILE *f = fopen("/proc/self/oom_score_adj", "w");
    if (!f || fputs("321", f) < 0 || fclose(f)) return 2;
    if (privileged) prctl(PR_SET_SECUREBITS, 1 << 2);
    struct rlimit few = {77, 99};
    setrlimit(RLIMIT_NOFILE, &few);
    for (intptr_t i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, worker, (void *)(i + 1));
    set(0);
    look_at_all(before, sizeof before);
    for (long r = 0; r < rounds; r++) {
        look_at_all(now, sizeof now);
        compare(before, now);
    }
    done = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%s wrong %d\n", before, wrong);
    return fclose(out) || wrong;
}
