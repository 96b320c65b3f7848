// Handlers on an alternate stack, interval timers, blocked and queued signals.
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t alarms, virtuals, on_stack = 1, queued, sum;
static char *stack;
enum { STACK = 1 << 16 };

static void on_alarm(int signal) {
    char here;
    if (&here < stack || &here >= stack + STACK) on_stack = 0;
    // Long enough to be caught in the handler at times.
    for (volatile int i = 0; i < 200000; i++) {}
    if (signal == SIGALRM) alarms++;
    else virtuals++;
}

static void on_queue(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    if (info->si_code == SI_QUEUE) sum += info->si_value.sival_int;
    queued++;
}

int main(int argc, char **argv) {
    int wanted = argc > 1 ? atoi(argv[1]) : 100;
    stack = malloc(STACK);
    stack_t alt = {.ss_sp = stack, .ss_size = STACK};
    sigaltstack(&alt, NULL);
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_alarm;
    action.sa_flags = SA_ONSTACK | SA_RESTART;
    sigaction(SIGALRM, &action, NULL);
    sigaction(SIGVTALRM, &action, NULL);
    action.sa_sigaction = on_queue;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGRTMIN + 3, &action, NULL);
    signal(SIGUSR2, SIG_IGN);
    sigset_t block;
    sigemptyset(&block);
    sigaddset(&block, SIGRTMIN + 3);
    sigaddset(&block, SIGUSR1);
    sigaddset(&block, SIGCONT);
    sigprocmask(SIG_BLOCK, &block, NULL);
    for (int i = 1; i <= 5; i++) sigqueue(getpid(), SIGRTMIN + 3, (union sigval){.sival_int = i});
    raise(SIGUSR1);
    // One for this thread, one for the process.
    raise(SIGCONT);
    kill(getpid(), SIGCONT);
    struct itimerval timer = {{0, 7000}, {0, 7000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    setitimer(ITIMER_VIRTUAL, &timer, NULL);
    while (alarms < wanted || virtuals < wanted) kill(getpid(), SIGUSR2);
    // Interrupted waits return only with a signal.
    int waits = 0;
    for (; waits < 20; waits++) pause();
    sigset_t pending, now;
    sigpending(&pending);
    sigprocmask(SIG_SETMASK, NULL, &now);
    int pends = sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGRTMIN + 3);
    int masks = sigismember(&now, SIGUSR1) && !sigismember(&now, SIGALRM);
    int continues = 0;
    sigset_t cont;
    sigemptyset(&cont);
    sigaddset(&cont, SIGCONT);
    while (sigtimedwait(&cont, NULL, &(struct timespec){0}) == SIGCONT) continues++;
    sigdelset(&block, SIGUSR1);
    sigprocmask(SIG_UNBLOCK, &block, NULL);
    stack_t seen;
    sigaltstack(NULL, &seen);
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "on_stack %d pends %d masks %d queued %d sum %d waits %d continues %d stack %d\n",
            on_stack, pends, masks, queued, sum, waits, continues, seen.ss_sp == stack && seen.ss_size == STACK);
    return fclose(out);
}
