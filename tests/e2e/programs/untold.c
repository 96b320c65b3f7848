/* What is asked for by children, other threads and handlers of signals is what the kernel says, and
 * the rank's own clocks are what they were. `untold` is printed by each rank. */
#define _GNU_SOURCE
#include <errno.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t handled;

static uint64_t ns(struct timespec at)
{
    return (uint64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* Whether a clock shows what the kernel says. */
static int is_true(clockid_t id)
{
    struct timespec before, shown, after;
    syscall(SYS_clock_gettime, id, &before);
    clock_gettime(id, &shown);
    syscall(SYS_clock_gettime, id, &after);
    return ns(before) <= ns(shown) && ns(shown) <= ns(after);
}

static int all_true(void)
{
    return is_true(CLOCK_MONOTONIC) && is_true(CLOCK_REALTIME) && is_true(CLOCK_PROCESS_CPUTIME_ID)
        && is_true(CLOCK_THREAD_CPUTIME_ID) && getpid() == syscall(SYS_getpid)
        && gettid() == syscall(SYS_gettid);
}

static void *thread(void *none)
{
    for (int i = 0; i < 1000; i++)
        if (!all_true())
            return "a thread";
    return none;
}

static void on_signal(int number)
{
    struct timespec now;
    (void)number;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (time(NULL) > 0 && getpid() > 0)
        handled++;
}

static void child(pid_t parent)
{
    _exit(all_true() && getppid() == parent && getpid() != parent ? 0 : 1);
}

static void expect(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "untold: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

int main(int argc, char **argv)
{
    struct timespec now, last = {0, 0};
    pid_t before = getpid(), parent;
    int status, provided;
    pthread_t other;
    void *wrong = NULL;
    expect(all_true(), "before MPI_Init");
    MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
    parent = getpid();
    expect(parent == before && kill(parent, 0) == 0, "getpid");
    /* Asked so often that they are no longer exact, all clocks stay near the truth. */
    for (int i = 0; i < 2000000; i++) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        expect(ns(now) >= ns(last), "a clock that went back");
        last = now;
    }
    struct timespec kernel;
    syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &kernel);
    expect(ns(now) <= ns(kernel), "a clock that is early");
    pthread_create(&other, NULL, thread, NULL);
    pthread_join(other, &wrong);
    expect(!wrong, "a thread");
    if (fork() == 0)
        child(parent);
    expect(wait(&status) > 0 && status == 0, "a child");
#if __GLIBC_PREREQ(2, 34)
    if (_Fork() == 0)
        child(parent);
    expect(wait(&status) > 0 && status == 0, "a child of _Fork");
#endif
    signal(SIGUSR1, on_signal);
    for (int i = 0; i < 100; i++)
        kill(getpid(), SIGUSR1);
    expect(handled == 100, "signals");
    errno = 0;
    expect(clock_gettime(12345, &now) == -1 && errno == EINVAL, "a clock that is none");
    clockid_t own;
    expect(clock_getcpuclockid(getpid(), &own) == 0 && clock_gettime(own, &now) == 0, "its CPU clock");
    MPI_Finalize();
    expect(all_true(), "after MPI_Finalize");
    puts("untold");
    return 0;
}
