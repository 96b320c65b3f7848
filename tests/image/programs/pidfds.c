// Processes as files: children that are signalled, polled and waited for through pidfds, one that
// has ended and one that was collected, the process itself, an epoll set and a thread that wait for
// the end of children that come and go, and a pidfd that a child has inherited.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { BY_PIDFD = 3, NONBLOCK = O_NONBLOCK, OF_THREAD = O_EXCL, EVERY = 40 };
enum { ENDED = 1, GONE, SELF, TARGET, PASSING };

static volatile sig_atomic_t told;

static void tell(int signal) {
    (void)signal;
    told++;
}

static int open_pidfd(pid_t pid, unsigned flags) {
    return (int)syscall(SYS_pidfd_open, pid, flags);
}

static int send_to(int pidfd, int signal) {
    return (int)syscall(SYS_pidfd_send_signal, pidfd, signal, NULL, 0);
}

static int readable(int fd) {
    struct pollfd one = {.fd = fd, .events = POLLIN};
    return poll(&one, 1, 0) == 1 && one.revents & POLLIN;
}

// How the process behind a pidfd ended, when it did: it is collected if `keep` is not set.
static int end_of(int pidfd, int keep) {
    siginfo_t info = {0};
    int options = WEXITED | (keep ? WNOWAIT : 0);
    if (waitid((idtype_t)BY_PIDFD, (id_t)pidfd, &info, options) != 0) return -errno;
    return info.si_code == CLD_EXITED ? info.si_status : 1000 + info.si_status;
}

// Answers how often it was signalled, once that is so often, and whether it may wait on its copy of
// a sibling's pidfd.
static void serve(int in, int out, int sibling) {
    uint64_t word;
    sigset_t mine, open;
    sigemptyset(&mine);
    sigaddset(&mine, SIGUSR1);
    sigprocmask(SIG_BLOCK, &mine, &open);
    while (read(in, &word, 8) == 8) {
        while ((uint64_t)told < word) sigsuspend(&open);
        uint64_t flags = (uint64_t)(fcntl(sibling, F_GETFL) & O_NONBLOCK) != 0;
        word = (uint64_t)told * 4 + flags * 2 + (uint64_t)readable(sibling);
        if (write(out, &word, 8) != 8) _exit(8);
    }
    _exit(11);
}

static int set;

static void watch(int fd, uint64_t data) {
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = data};
    NEED(epoll_ctl(set, EPOLL_CTL_ADD, fd, &event) == 0);
}

// Which of those watched have ended, as a mask.
static int found(int wait) {
    struct epoll_event events[8];
    int n, mask = 0;
    while ((n = epoll_wait(set, events, 8, wait)) < 0) NEED(errno == EINTR);
    for (int k = 0; k < n; k++) mask |= 1 << events[k].data.u64;
    return mask;
}

static pid_t child_that_waits(int *end) {
    int ends[2];
    char byte;
    NEED(!pipe(ends));
    pid_t pid = fork();
    NEED(pid >= 0);
    if (!pid) {
        close(ends[1]);
        _exit(read(ends[0], &byte, 1) == 0 ? 21 : 9);
    }
    close(ends[0]);
    *end = ends[1];
    return pid;
}

static void *await(void *pidfd) { return (void *)(intptr_t)end_of((int)(intptr_t)pidfd, 1); }

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 3000);
    int to[2], from[2], hold, quiet, status;
    NEED((set = epoll_create1(EPOLL_CLOEXEC)) >= 0 && signal(SIGUSR1, tell) != SIG_ERR);
    pid_t ended = fork();
    if (!ended) _exit(33);
    pid_t gone = fork();
    if (!gone) _exit(44);
    int of_ended = open_pidfd(ended, 0), of_gone = open_pidfd(gone, NONBLOCK);
    NEED(ended > 0 && gone > 0 && of_ended >= 0 && of_gone >= 0);
    AWAIT(readable(of_gone));
    NEED(end_of(of_gone, 0) == 44 && end_of(of_ended, 1) == 33);
    int self = open_pidfd(getpid(), 0), first = open_pidfd(getpid(), OF_THREAD);
    // Older kernels have none of single threads.
    NEED(self >= 0 && (first >= 0 || errno == EINVAL));
    pid_t target = child_that_waits(&hold);
    int of_target = open_pidfd(target, 0), waited_for = open_pidfd(target, 0);
    NEED(of_target >= 0 && waited_for >= 0 && !pipe(to) && !pipe(from));
    pid_t server = fork();
    if (!server) {
        close(to[1]);
        close(from[0]);
        close(hold);
        serve(to[0], from[1], of_target);
    }
    int of_server = open_pidfd(server, NONBLOCK);
    NEED(server > 0 && of_server >= 0 && !close(to[0]) && !close(from[1]));
    watch(of_ended, ENDED);
    watch(of_gone, GONE);
    watch(self, SELF);
    watch(of_target, TARGET);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, await, (void *)(intptr_t)waited_for) == 0);
    for (long i = 0; i < n; i++) {
        CHECK(send_to(of_server, SIGUSR1) == 0);
        // What is set on one of a file is set on all that are the same.
        int now = i & 1 ? O_NONBLOCK : 0;
        CHECK(fcntl(of_target, F_SETFL, now) == 0);
        uint64_t word = (uint64_t)i + 1, answer = 0;
        CHECK(write(to[1], &word, 8) == 8);
        CHECK(read(from[0], &answer, 8) == 8 && answer == word * 4 + (now ? 2 : 0));
        add(answer);
        CHECK(found(0) == (1 << ENDED | 1 << GONE));
        CHECK(!readable(self) && !readable(of_target) && readable(of_ended) && readable(of_gone));
        CHECK(end_of(of_server, 0) == -EAGAIN && send_to(of_target, 0) == 0);
        CHECK(send_to(of_gone, 0) == -1 && errno == ESRCH && end_of(of_gone, 0) == -ECHILD);
        CHECK(end_of(of_ended, 1) == 33 && send_to(self, 0) == 0);
        CHECK(first < 0 || (fcntl(first, F_GETFL) & OF_THREAD && send_to(first, 0) == 0));
        if (i % EVERY == 0) {
            int of_passing = open_pidfd(child_that_waits(&quiet), 0);
            NEED(of_passing >= 0);
            watch(of_passing, PASSING);
            CHECK(!(found(0) & 1 << PASSING));
            work(5);
            int kills = i % (2 * EVERY) == 0;
            if (kills) CHECK(send_to(of_passing, SIGTERM) == 0);
            else CHECK(close(quiet) == 0);
            while (!(found(-1) & 1 << PASSING)) {}
            int how = end_of(of_passing, 0);
            CHECK(how == (kills ? 1000 + SIGTERM : 21));
            add((uint64_t)how);
            CHECK(close(of_passing) == 0 && (!kills || close(quiet) == 0));
        }
    }
    void *how;
    CHECK(close(hold) == 0 && pthread_join(thread, &how) == 0 && (intptr_t)how == 21);
    CHECK(found(-1) & 1 << TARGET && fcntl(of_target, F_SETFL, 0) == 0);
    CHECK(end_of(of_target, 0) == 21 && end_of(of_ended, 0) == 33 && close(to[1]) == 0);
    CHECK(fcntl(of_server, F_SETFL, O_RDWR) == 0 && end_of(of_server, 0) == 11);
    CHECK(wait(&status) == -1 && errno == ECHILD);
    return finish("pidfds");
}
