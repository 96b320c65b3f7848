// Signals pending for the process and for one thread, queued with values, blocked, ignored, handled on
// an alternate stack, and one that arrives while its handler runs.
#define _GNU_SOURCE
#include "check.h"
#include <pthread.h>
#include <signal.h>

static volatile sig_atomic_t nested, values, plain;
static volatile long total;

static void on_value(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    CHECK(info->si_code == SI_QUEUE && info->si_pid == getpid());
    total += info->si_value.sival_int;
    values++;
}

static void on_plain(int signal) {
    (void)signal;
    plain++;
}

static void on_nested(int signal) {
    if (nested++ % 2 == 0) raise(signal);  // waits until this returns
    work(2);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 1000);
    struct sigaction action = {.sa_sigaction = on_value, .sa_flags = SA_SIGINFO};
    NEED(sigaction(SIGRTMIN + 3, &action, NULL) == 0);
    struct sigaction simple = {.sa_handler = on_plain}, inner = {.sa_handler = on_nested};
    NEED(!sigaction(SIGUSR1, &simple, NULL) && !sigaction(SIGUSR2, &inner, NULL));
    signal(SIGHUP, SIG_IGN);
    sigset_t blocked, pending, now;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGRTMIN + 3);
    sigaddset(&blocked, SIGUSR1);
    sigaddset(&blocked, SIGWINCH);
    NEED(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0);
    NEED(pthread_kill(pthread_self(), SIGUSR1) == 0);
    long expected = 0;
    for (long i = 0; i < n; i++) {
        // Up to nine values are pending, in order.
        if (i % 10 == 9) {
            sigset_t none;
            sigemptyset(&none);
            sigaddset(&none, SIGRTMIN + 3);
            sigprocmask(SIG_UNBLOCK, &none, NULL);
            sigprocmask(SIG_BLOCK, &none, NULL);
            CHECK(total == expected);
        } else {
            CHECK(sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = (int)i}) == 0);
            expected += i;
        }
        CHECK(kill(getpid(), SIGHUP) == 0 && raise(SIGUSR2) == 0);
        CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR1));
        CHECK(!sigismember(&pending, SIGWINCH) && plain == 0);
        sigprocmask(SIG_SETMASK, NULL, &now);
        CHECK(sigismember(&now, SIGWINCH) && sigismember(&now, SIGUSR1) && !sigismember(&now, SIGUSR2));
        work(1);
    }
    sigemptyset(&now);
    sigaddset(&now, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &now, NULL);
    CHECK(plain == 1 && nested == 2 * n);
    add((uint64_t)total);
    add((uint64_t)values);
    return finish("signals");
}
