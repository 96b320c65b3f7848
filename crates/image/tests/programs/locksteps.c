// Threads that sleep and compute in turn, each with a sum of its own: locksteps THREADS ROUNDS.
// The sums depend on nothing but the numbers given. Some get signals by timers, some start others.
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long rounds, threads;
static volatile sig_atomic_t rung;

static void ring(int signal) {
    (void)signal;
    rung = 1;
}

static void *leaf(void *arg) {
    return (void *)((uintptr_t)arg * 31 + 7);
}

static void *work(void *arg) {
    uint64_t sum = (uintptr_t)arg;
    for (long r = 0; r < rounds; r++) {
        struct timespec rest = {0, 1000000 + (long)(sum % 4000000) + 50000 * threads};
        while (nanosleep(&rest, &rest)) continue;
        sum = (sum ^ (uint64_t)r) * 1099511628211ull;
        if (sum % 16 == 0) {
            pthread_t other;
            void *answer;
            if (pthread_create(&other, NULL, leaf, (void *)(uintptr_t)sum)) continue;
            if (pthread_join(other, &answer)) abort();
            if ((uintptr_t)answer != (uintptr_t)sum * 31 + 7) abort();
        }
    }
    return (void *)(uintptr_t)sum;
}

int main(int argc, char **argv) {
    threads = argc > 1 ? atol(argv[1]) : 100;
    rounds = argc > 2 ? atol(argv[2]) : 100;
    struct sigaction action = {.sa_handler = ring, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    timer_t timer;
    struct itimerspec often = {{0, 7000000}, {0, 7000000}};
    if (timer_create(CLOCK_MONOTONIC, NULL, &timer) || timer_settime(timer, 0, &often, NULL)) return 1;
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 65536);
    pthread_t *all = calloc((size_t)threads, sizeof *all);
    for (uintptr_t i = 1; (long)i < threads; i++) {
        if (pthread_create(&all[i], &small, work, (void *)i)) return 2;
    }
    FILE *ready = fopen("ready", "w");
    if (!ready || fputs("ready\n", ready) < 0 || fclose(ready)) return 3;
    uint64_t sum = (uintptr_t)work((void *)0);
    for (long i = 1; i < threads; i++) {
        void *answer;
        if (pthread_join(all[i], &answer)) return 4;
        sum = sum * 31 + (uint64_t)(uintptr_t)answer;
    }
    FILE *out = fopen("out", "w");
    if (!out) return 5;
    fprintf(out, "%016llx\n", (unsigned long long)sum);
    return fclose(out);
}
