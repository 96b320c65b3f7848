// A signal descriptor, with signals pending behind it that carry values.
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <sys/signalfd.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 8000);
    sigset_t mask, second;
    sigemptyset(&mask);
    sigemptyset(&second);
    sigaddset(&mask, SIGRTMIN + 4);
    sigaddset(&second, SIGUSR1);
    NEED(sigprocmask(SIG_BLOCK, &mask, NULL) == 0 && sigprocmask(SIG_BLOCK, &second, NULL) == 0);
    int values = signalfd(-1, &mask, SFD_CLOEXEC), plain = signalfd(-1, &second, SFD_NONBLOCK);
    NEED(values >= 0 && plain >= 0);
    struct signalfd_siginfo info;
    for (long i = 0; i < n; i++) {
        union sigval value = {.sival_int = (int)i};
        CHECK(sigqueue(getpid(), SIGRTMIN + 4, value) == 0);
        CHECK(kill(getpid(), SIGUSR1) == 0);
        if (i >= 5) {
            CHECK(read(values, &info, sizeof info) == sizeof info);
            CHECK(info.ssi_int == (int)i - 5 && info.ssi_signo == (unsigned)SIGRTMIN + 4);
            add((uint64_t)info.ssi_int);
        }
        work(1);
        if (i % 2) {
            CHECK(read(plain, &info, sizeof info) == sizeof info && info.ssi_signo == SIGUSR1);
            CHECK(read(plain, &info, sizeof info) == -1 && errno == EAGAIN);
        }
    }
    return finish("signalfds");
}
