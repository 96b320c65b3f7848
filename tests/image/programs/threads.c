// Threads with mutex, condition, barrier, read-write lock, thread-local data, names, masks; threads
// that come and go; mutexes of every kind held across the freeze.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>

enum { THREADS = 4 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, recursive;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t table_lock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static sem_t tokens;
static long turn, n, table[64];
static int prepared;
static _Thread_local uint64_t local;

static void prepare(void) { prepared++; }

static void *brief(void *arg) {
    pthread_once(&once, prepare);
    return (char *)arg + 1;
}

static void *worker(void *arg) {
    long me = (long)arg;
    char name[16], found[16];
    sigset_t mask, now;
    snprintf(name, sizeof name, "matrix %ld", me);
    CHECK(pthread_setname_np(pthread_self(), name) == 0);
    sigemptyset(&mask);
    sigaddset(&mask, SIGRTMIN + 1 + (int)me);
    pthread_sigmask(SIG_SETMASK, &mask, NULL);
    pthread_setspecific(key, (void *)(me + 100));
    local = value_at((uint64_t)me);
    for (long i = 0; i < n; i++) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != me) pthread_cond_wait(&turn_changed, &lock);
        add((uint64_t)turn++);
        pthread_cond_broadcast(&turn_changed);
        pthread_mutex_unlock(&lock);
        if (i % 16 == 0) {
            pthread_rwlock_wrlock(&table_lock);
            table[i / 16 % 64] += i;
            pthread_rwlock_unlock(&table_lock);
        }
        local = local * 31 + (uint64_t)i;
        CHECK(pthread_getspecific(key) == (void *)(me + 100));
        pthread_sigmask(SIG_SETMASK, NULL, &now);
        CHECK(sigismember(&now, SIGRTMIN + 1 + (int)me) && !sigismember(&now, SIGUSR1));
        if (i % 64 == 0) {
            pthread_t child;
            void *result;
            CHECK(pthread_create(&child, NULL, brief, (void *)i) == 0);
            CHECK(pthread_join(child, &result) == 0 && result == (char *)i + 1);
            sem_wait(&tokens);
            work(1);
            sem_post(&tokens);
            pthread_barrier_wait(&barrier);
        }
    }
    pthread_getname_np(pthread_self(), found, sizeof found);
    CHECK(!strcmp(name, found));
    return (void *)(uintptr_t)(local | 1);
}

int main(int argc, char **argv) {
    n = rounds(argc, argv, 3000);
    pthread_t threads[THREADS];
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(&recursive, &attributes);
    pthread_barrier_init(&barrier, NULL, THREADS);
    pthread_key_create(&key, NULL);
    sem_init(&tokens, 0, 2);
    for (long i = 0; i < THREADS; i++) NEED(!pthread_create(&threads[i], NULL, worker, (void *)i));
    void *results[THREADS];
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], &results[i]) == 0);
    for (int i = 0; i < THREADS; i++) add((uint64_t)(uintptr_t)results[i]);
    add_bytes(table, sizeof table);
    add((uint64_t)prepared);
    return finish("threads");
}
