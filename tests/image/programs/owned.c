// Mutexes that remember their owner's number - recursive, error-checking, robust, inheriting
// priority - held across the freeze. Needs the same thread numbers after a restore.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>

enum { KINDS = 4, THREADS = 3 };
static pthread_mutex_t mutexes[THREADS][KINDS];
static long n;

static void make(pthread_mutex_t *mutex, int kind) {
    pthread_mutexattr_t a;
    pthread_mutexattr_init(&a);
    if (kind == 0) pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE);
    if (kind == 1) pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
    if (kind == 2) pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
    if (kind == 3) pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
    NEED(pthread_mutex_init(mutex, &a) == 0);
}

static void *worker(void *arg) {
    pthread_mutex_t *own = mutexes[(long)arg];
    for (long i = 0; i < n; i++) {
        for (int k = 0; k < KINDS; k++) CHECK(pthread_mutex_lock(&own[k]) == 0);
        CHECK(pthread_mutex_lock(&own[0]) == 0);
        CHECK(pthread_mutex_lock(&own[1]) == EDEADLK);
        work(2);
        CHECK(pthread_mutex_unlock(&own[0]) == 0);
        for (int k = KINDS - 1; k >= 0; k--) CHECK(pthread_mutex_unlock(&own[k]) == 0);
    }
    // Left locked: whoever comes next learns that the owner has died.
    CHECK(pthread_mutex_lock(&own[2]) == 0);
    return arg;
}

int main(int argc, char **argv) {
    n = rounds(argc, argv, 2000);
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++)
        for (int k = 0; k < KINDS; k++) make(&mutexes[t][k], k);
    for (long t = 0; t < THREADS; t++) NEED(!pthread_create(&threads[t], NULL, worker, (void *)t));
    for (int t = 0; t < THREADS; t++) {
        CHECK(pthread_join(threads[t], NULL) == 0);
        CHECK(pthread_mutex_lock(&mutexes[t][2]) == EOWNERDEAD);
        CHECK(pthread_mutex_consistent(&mutexes[t][2]) == 0);
        CHECK(pthread_mutex_unlock(&mutexes[t][2]) == 0);
        add((uint64_t)t);
    }
    return finish("owned");
}
