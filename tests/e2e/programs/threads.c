/*
 * Every rank has three threads that compute for the main thread; a fourth sleeps all the time. The
 * main thread hands out work, adds up, and speaks MPI. The result is exact.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define WORKERS 3

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long step, finished;
static int over;
static uint64_t seed, part[WORKERS];
static _Thread_local uint64_t own;

static void *work(void *arg)
{
    int me = (int)(intptr_t)arg;
    long done = 0;
    own = (uint64_t)me;
    for (;;) {
        pthread_mutex_lock(&mutex);
        while (step == done && !over)
            pthread_cond_wait(&changed, &mutex);
        if (step == done) {
            pthread_mutex_unlock(&mutex);
            return (void *)(uintptr_t)own;
        }
        done = step;
        pthread_mutex_unlock(&mutex);
        for (int i = 0; i < 3000; i++)
            own = (own ^ (seed + (uint64_t)i)) * 1099511628211ull;
        pthread_mutex_lock(&mutex);
        part[me] = own;
        if (++finished == WORKERS * done)
            pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }
}

static void *sleep_on(void *unused)
{
    pthread_mutex_lock(&mutex);
    while (!over)
        pthread_cond_wait(&changed, &mutex);
    pthread_mutex_unlock(&mutex);
    return unused;
}

int main(int argc, char **argv)
{
    int rank, provided;
    long steps = argc > 1 ? atol(argv[1]) : 1000;
    int gates = argc > 2;
    uint64_t sum = 1;
    pthread_t threads[WORKERS + 1];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (provided < MPI_THREAD_FUNNELED)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (intptr_t i = 0; i < WORKERS; i++)
        if (pthread_create(&threads[i], NULL, work, (void *)i) != 0)
            MPI_Abort(MPI_COMM_WORLD, 5);
    if (pthread_create(&threads[WORKERS], NULL, sleep_on, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 5);
    for (long s = 1; s <= steps; s++) {
        uint64_t mine = 0;
        pthread_mutex_lock(&mutex);
        seed = sum + (uint64_t)rank;
        step = s;
        pthread_cond_broadcast(&changed);
        while (finished != WORKERS * s)
            pthread_cond_wait(&changed, &mutex);
        for (int i = 0; i < WORKERS; i++)
            mine += part[i];
        pthread_mutex_unlock(&mutex);
        /* Asked to, it waits twice on its way for a line of input. */
        if (gates && rank == 0 && s % (steps / 3) == 0 && s < steps - 2 && getchar() == EOF)
            MPI_Abort(MPI_COMM_WORLD, 7);
        MPI_Allreduce(&mine, &sum, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    }
    pthread_mutex_lock(&mutex);
    over = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&mutex);
    for (int i = 0; i < WORKERS; i++) {
        void *last;
        pthread_join(threads[i], &last);
        if ((uint64_t)(uintptr_t)last != part[i])
            MPI_Abort(MPI_COMM_WORLD, 6);
    }
    pthread_join(threads[WORKERS], NULL);
    if (rank == 0)
        printf("threads: sum %016llx\n", (unsigned long long)sum);
    MPI_Finalize();
    return 0;
}
