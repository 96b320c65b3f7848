// Descriptors of the process itself, which may have another number by now, and of a child that was
// collected; watched by an epoll instance.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int set;

static void watch(int fd, uint64_t data) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    CHECK(!epoll_ctl(set, EPOLL_CTL_ADD, fd, &event));
}

static int send_to(int pidfd, int signal) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

// The number that /proc shows for it.
static long number_of(int pidfd) {
    char path[64], line[128];
    long number = 0;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", pidfd);
    FILE *info = fopen(path, "r");
    CHECK(info != NULL);
    while (info && fgets(line, sizeof line, info)) sscanf(line, "Pid: %ld", &number);
    if (info) fclose(info);
    return number;
}

static int end_of(int pidfd) {
    siginfo_t info;
    return waitid((idtype_t)3, (id_t)pidfd, &info, WEXITED) ? errno : 0;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    set = epoll_create1(EPOLL_CLOEXEC);
    pid_t child = fork();
    if (child == 0) _exit(5);
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    int gone = (int)syscall(SYS_pidfd_open, child, O_NONBLOCK);
    int again = dup(gone);
    CHECK(self >= 0 && gone >= 0 && again >= 0 && waitpid(child, NULL, 0) == child);
    watch(self, 1);
    watch(gone, 2);
    for (long r = 0; r < rounds; r++) {
        struct epoll_event events[4];
        CHECK(epoll_wait(set, events, 4, -1) == 1 && events[0].data.u64 == 2);
        // A freeze in between may change both.
        long before = getpid(), number = number_of(self);
        CHECK((number == before || before != getpid()) && send_to(self, 0) == 0 && end_of(self) == ECHILD);
        CHECK(number_of(gone) == -1 && send_to(again, 0) == -1 && errno == ESRCH);
        CHECK(fcntl(again, F_GETFL) & O_NONBLOCK && end_of(gone) == ECHILD);
    }
    return finish(rounds);
}
