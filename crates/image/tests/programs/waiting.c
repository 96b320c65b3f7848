// Waits, with something open or mapped that an image may not be able to bring back.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <signal.h>
#include <time.h>

static void *idle(void *arg) {
    for (;;) pause();
    return arg;
}

// Sleeps in the kernel, not to be interrupted, until its child ends.
static void *stuck(void *arg) {
    pid_t child = vfork();
    if (child == 0) {
        char text[16];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int bytes = snprintf(text, sizeof text, "%d", getpid());
        int out = open("child.new", O_WRONLY | O_CREAT, 0600);
        if (write(out, text, (size_t)bytes) != bytes || rename("child.new", "child")) _exit(1);
        for (;;) pause();
    }
    waitpid(child, NULL, 0);
    return arg;
}

static int joined(void *arg) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
    return arg != NULL;
}

// Makes a child, which has open what we have.
static void begin(int signal) {
    if (signal == SIGUSR1 && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
}

// Two ends of a pipe or connection, the second of which can be written.
static int ends(const char *what, int fds[2]) {
    if (!strcmp(what, "pipe")) return !pipe(fds);
    if (!strcmp(what, "unix")) return !socketpair(AF_UNIX, SOCK_STREAM, 0, fds);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    fds[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (listen(listener, 1) || getsockname(listener, (struct sockaddr *)&at, &bytes)) return 0;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (connect(fds[1], (struct sockaddr *)&at, sizeof at)) return 0;
    fds[0] = accept(listener, NULL, NULL);
    close(listener);
    return fds[0] >= 0;
}

int main(int argc, char **argv) {
    int seconds = argc > 1 ? atoi(argv[1]) : 10;
    const char *what = argc > 2 ? argv[2] : "";
    int fds[2];
    if (!strcmp(what, "pipe") || !strcmp(what, "unix") || !strcmp(what, "tcp")) {
        if (!ends(what, fds)) return 1;
        // Read by one that is no child of ours, until we are gone.
        if (fork() == 0) {
            if (fork() != 0) _exit(0);
            prctl(PR_SET_NAME, "reader");
            close(fds[1]);
            char text;
            while (read(fds[0], &text, 1) > 0) {}
            _exit(0);
        }
        wait(NULL);
        close(fds[0]);
    }
    if (!strcmp(what, "rights")) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds)) return 1;
        char room[CMSG_SPACE(sizeof(int))] = {0};
        struct iovec part = {"x", 1};
        struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = room,
                              .msg_controllen = sizeof room};
        struct cmsghdr *control = CMSG_FIRSTHDR(&head);
        *control = (struct cmsghdr){CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS};
        memcpy(CMSG_DATA(control), &fds[0], sizeof(int));
        if (sendmsg(fds[1], &head, 0) != 1) return 1;
    }
    if (!strcmp(what, "events")) {
        int notify = inotify_init();
        if (inotify_add_watch(notify, ".", IN_CREATE) < 0) return 1;
        if (close(open("noticed", O_CREAT | O_WRONLY, 0600)) || unlink("noticed")) return 1;
    }
    if (!strcmp(what, "uring")) {
        long params[16] = {0};
        if (syscall(SYS_io_uring_setup, 4, params) < 0) return 1;
    }
    if (!strcmp(what, "shared")) {
        char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        *p = 1;
    }
    if (!strcmp(what, "timer")) {
        timer_t timer;
        struct sigevent event = {.sigev_notify = SIGEV_NONE};
        if (timer_create(CLOCK_MONOTONIC, &event, &timer)) return 1;
    }
    if (!strcmp(what, "threads")) {
        pthread_t t;
        for (int i = 0; i < 2; i++) pthread_create(&t, NULL, idle, NULL);
    }
    if (!strcmp(what, "many") || !strcmp(what, "crowd") || !strcmp(what, "first-ends")) {
        pthread_t t;
        pthread_attr_t small;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 65536);
        int count = !strcmp(what, "many") ? 1030 : !strcmp(what, "crowd") ? 64 : 1;
        for (int i = 0; i < count; i++) {
            if (pthread_create(&t, &small, idle, NULL)) return 2;
        }
    }
    if (!strcmp(what, "stuck")) {
        pthread_t t;
        pthread_create(&t, NULL, stuck, NULL);
        while (access("child", F_OK)) usleep(1000);
    }
    if (!strcmp(what, "child") && fork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "child");
        for (;;) pause();
    }
    if (!strcmp(what, "host-child") || !strcmp(what, "other-child")) {
        // The child closes its end when it is what it is to be.
        int changed[2];
        char none;
        if (pipe(changed)) return 2;
        if (fork() == 0) {
            if (!strcmp(what, "host-child") && unshare(CLONE_NEWUTS)) _exit(1);
            if (!strcmp(what, "other-child") && (setgid(65534) || setuid(65534))) _exit(1);
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(changed[0]);
            close(changed[1]);
            for (;;) pause();
        }
        close(changed[1]);
        if (read(changed[0], &none, 1)) return 2;
        close(changed[0]);
    }
    if (!strcmp(what, "joined-child")) {
        static char stack[65536];
        clone(joined, stack + sizeof stack, CLONE_VM | SIGCHLD, NULL);
    }
    if (!strcmp(what, "quiet-child") && syscall(SYS_clone, 0, 0, 0, 0, 0) == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) pause();
    }
    if (!strcmp(what, "parent-pidfd") && syscall(SYS_pidfd_open, getppid(), 0) < 0) return 1;
    if (!strcmp(what, "old-session")) {
        // The leader of the child's session is one that has ended and was waited for.
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        pid_t leader = fork();
        if (leader == 0) {
            setsid();
            if (fork() == 0) {
                prctl(PR_SET_PDEATHSIG, 0);
                for (;;) pause();
            }
            _exit(0);
        }
        waitpid(leader, NULL, 0);
        prctl(PR_SET_CHILD_SUBREAPER, 0);
    }
    if (!strcmp(what, "log")) {
        int log = open("log", O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (write(log, "hello\n", 6) != 6 || signal(SIGUSR1, begin) == SIG_ERR) return 1;
    }
    char *heap = malloc(300000);
    for (int i = 0; i < 300000; i++) heap[i] = (char)(i * 7 + i / 256);
    FILE *ready = fopen("ready", "w");
    fputs("ready\n", ready);
    fclose(ready);
    if (!strcmp(what, "first-ends")) pthread_exit(NULL);
    for (unsigned left = (unsigned)seconds; left;) left = sleep(left);
    return heap[17] == 0;
}
