/*
 * Has a second thread for as long as argument 1 says, in rounds of a barrier (default 2000): the
 * job must run, and a checkpoint of it must be refused. Prints the sum that the thread made.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static atomic_int stop;
static atomic_long turns;

static void *spin(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop))
        atomic_fetch_add(&turns, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    int rank, provided;
    long rounds = argc > 1 ? atol(argv[1]) : 2000, sum = 0, all = 0;
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (provided < MPI_THREAD_FUNNELED || pthread_create(&thread, NULL, spin, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 4);
    for (long i = 0; i < rounds; i++) {
        MPI_Allreduce(&i, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        sum += all;
    }
    atomic_store(&stop, 1);
    pthread_join(thread, NULL);
    if (rank == 0)
        printf("threads: sum %ld\n", sum);
    MPI_Finalize();
    return 0;
}
