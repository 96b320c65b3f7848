// A family of processes: workers that are waited for, a grandchild, a session and groups of their
// own, children that have ended and are not waited for yet, signals between them by number.
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORKERS 3

static int failures;
static volatile sig_atomic_t answers;

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%d, line %d: %s (errno %d)\n", getpid(), __LINE__, #what, errno); failures++; } } while (0)

static void answer(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)context;
    kill(info->si_pid, SIGUSR2);
}

static void count(int signal) {
    (void)signal;
    answers++;
}

static void put(const char *name, uint64_t value) {
    FILE *out = fopen(name, "w");
    if (!out) _exit(99);
    fprintf(out, "%llu\n", (unsigned long long)value);
    if (fclose(out)) _exit(98);
}

static void work(int i, long rounds, pid_t parent) {
    pid_t own = getpid(), group = getpgrp(), session = getsid(0), grandchild = 0;
    char name[32];
    uint64_t x = 88172645463325252u + (unsigned)i;
    uint64_t *table = calloc(1 << 14, 8);
    if (i == 1 && (grandchild = fork()) == 0) {
        for (;;) pause();
    }
    for (long r = 0; r < rounds; r++) {
        for (int k = 0; k < 4000; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            table[x & 16383] += x;
        }
        CHECK(getpid() == own && getppid() == parent && getpgrp() == group && getsid(0) == session);
        if (grandchild) {
            CHECK(kill(grandchild, 0) == 0);
            CHECK(waitpid(grandchild, NULL, WNOHANG) == 0);
        }
    }
    for (int k = 0; k < 16384; k++) x += table[k] * (unsigned)k;
    if (grandchild) {
        int status = 0;
        CHECK(kill(grandchild, SIGTERM) == 0);
        CHECK(waitpid(grandchild, &status, 0) == grandchild);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
    }
    snprintf(name, sizeof name, "part%d", i);
    put(name, x);
    _exit(failures ? 50 : 20 + i);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    action.sa_sigaction = answer;
    action.sa_flags |= SA_SIGINFO;
    sigaction(SIGUSR1, &action, NULL);
    pid_t own = getpid(), workers[WORKERS], exited, killed;
    if ((exited = fork()) == 0) _exit(7);
    if ((killed = fork()) == 0) for (;;) pause();
    CHECK(kill(killed, SIGKILL) == 0);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)killed, &info, WEXITED | WNOWAIT) == 0);
    CHECK(waitid(P_PID, (id_t)exited, &info, WEXITED | WNOWAIT) == 0);
    for (int i = 0; i < WORKERS; i++) {
        if ((workers[i] = fork()) == 0) {
            if (i == 1) setsid();
            if (i == 2) setpgid(0, 0);
            work(i, rounds + i * rounds / 8, own);
        }
    }
    int left = WORKERS, asked = 0;
    while (left > 0) {
        for (int i = 0; i < WORKERS; i++) {
            if (workers[i] == 0) continue;
            int status = 0;
            pid_t ended = waitpid(workers[i], &status, WNOHANG);
            CHECK(ended == 0 || ended == workers[i]);
            if (ended == workers[i]) {
                CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 20 + i);
                workers[i] = 0;
                left--;
            } else if (asked - answers < 8) {
                // The last one may end before it answers.
                if (i == 0 && kill(workers[i], SIGUSR1) == 0) asked++;
            }
        }
        struct timespec t = {0, 200000};
        nanosleep(&t, NULL);
        CHECK(waitid(P_PID, (id_t)exited, &info, WEXITED | WNOWAIT | WNOHANG) == 0);
        CHECK(info.si_pid == exited && info.si_code == CLD_EXITED && info.si_status == 7);
    }
    int status = 0;
    CHECK(waitpid(exited, &status, 0) == exited && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    CHECK(waitpid(killed, &status, 0) == killed && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    CHECK(waitpid(-1, &status, __WALL) == -1 && errno == ECHILD);
    char parts[256] = "";
    for (int i = 0; i < WORKERS; i++) {
        char name[32];
        snprintf(name, sizeof name, "part%d", i);
        FILE *in = fopen(name, "r");
        if (in) strcat(parts, fgets(name, sizeof name, in) ? name : "?\n"), fclose(in);
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%sfailures: %d\n", parts, failures);
    return fclose(out);
}
