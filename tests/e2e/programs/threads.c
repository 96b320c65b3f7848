/*
 * Has a second thread, and runs until its standard input ends: the job must run, and a checkpoint
 * of it must be refused. Says `ready` when all ranks have their threads.
 */
#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static int wake[2];
static atomic_int turns;

static void *wait_for_the_end(void *unused)
{
    char byte;
    (void)unused;
    while (read(wake[0], &byte, 1) > 0)
        atomic_fetch_add(&turns, 1);
    return NULL;
}

int main(int argc, char **argv)
{
    int rank, provided, mine = 1, sum = 0;
    char line[64];
    pthread_t thread;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (provided < MPI_THREAD_FUNNELED || pipe(wake) != 0 ||
        pthread_create(&thread, NULL, wait_for_the_end, NULL) != 0)
        MPI_Abort(MPI_COMM_WORLD, 4);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        puts("ready");
        fflush(stdout);
        while (fgets(line, sizeof line, stdin))
            continue;
    }
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (write(wake[1], "x", 1) != 1)
        MPI_Abort(MPI_COMM_WORLD, 5);
    close(wake[1]);
    pthread_join(thread, NULL);
    if (rank == 0)
        printf("threads: sum %d, turns %d\n", sum, atomic_load(&turns));
    MPI_Finalize();
    return 0;
}
