/* libeyrie_image: a program asks for its own image, or becomes another one (include/eyrie_image.h).
 *
 * `eyrie-image checkpoint` does the work, in a process that is no child of this one, so that it is no part
 * of the image. This process waits for the file in which that one says how it ended; it holds no descriptor
 * to it. That it was restarted it tells by when it was started, which the kernel keeps.
 *
 * Kept true: nothing here starts a thread, changes a signal's disposition or is told of by SIGCHLD; between
 * fork and exec there are only async-signal-safe calls; what a call made is gone when it returns. */
#define _GNU_SOURCE
#include "eyrie_image.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

/* Between two looks whether the image is there. */
#define PAUSE_NS 2000000
/* The longest text that is told. */
#define TEXT_BYTES 1024
/* What stands behind the name of the image while it is written. */
#define SAID_SUFFIX ".said-%d"

static __thread char told[TEXT_BYTES];

static int fail(const char *what, const char *why)
{
    snprintf(told, sizeof told, "%s: %s", what, why);
    return -1;
}

static int fail_errno(const char *what)
{
    return fail(what, strerror(errno));
}

const char *eyrie_image_error(void)
{
    return told;
}

/* Where `eyrie-image` is: in the prefix that this library is in, or in PATH. */
static const char *command(char path[PATH_MAX])
{
    Dl_info info;
    char own[PATH_MAX];
    if (dladdr((void *)eyrie_image_error, &info) && info.dli_fname && realpath(info.dli_fname, own)) {
        for (int up = 0; up < 2; up++) {
            char *slash = strrchr(own, '/');
            if (slash)
                *slash = 0;
        }
        snprintf(path, PATH_MAX, "%.*s/bin/eyrie-image", PATH_MAX - 32, own);
        if (access(path, X_OK) == 0)
            return path;
    }
    return "eyrie-image";
}

/* When this process was started, and since which start of the machine: a restarted one differs. */
static int life(char text[2 * TEXT_BYTES])
{
    static const char *const files[] = {"/proc/self/stat", "/proc/sys/kernel/random/boot_id"};
    size_t used = 0;
    for (int i = 0; i < 2; i++) {
        char line[TEXT_BYTES];
        int file = open(files[i], O_RDONLY | O_CLOEXEC);
        ssize_t got = file < 0 ? -1 : read(file, line, sizeof line - 1);
        if (file >= 0)
            close(file);
        if (got <= 0)
            return -1;
        line[got] = 0;
        char *at = line;
        if (i == 0) {
            /* Behind the name, which may have blanks: the state, and 18 numbers before the time. */
            at = strrchr(line, ')');
            for (int field = 0; at && field < 20; field++)
                at = strchr(at + 1, ' ');
            if (!at)
                return -1;
            at[1 + strcspn(at + 1, " ")] = 0;
        }
        used += (size_t)snprintf(text + used, 2 * TEXT_BYTES - used, "%s", at);
    }
    return 0;
}

/* A copy of this process whose end nobody is told of. */
static pid_t quiet_fork(void)
{
    return (pid_t)syscall(SYS_clone, 0, NULL, NULL, NULL, NULL);
}

/* The process that takes the image, once it is permitted to. Only async-signal-safe calls. */
static void helper(int start, char *const arguments[])
{
    char byte;
    sigset_t none;
    setsid();
    if (read(start, &byte, 1) != 1)
        _exit(1);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    int null = open("/dev/null", O_RDWR);
    for (int stream = 0; stream < 3 && null >= 0; stream++)
        dup2(null, stream);
    syscall(SYS_close_range, 3, ~0U, 0);
    execvp(arguments[0], arguments);
    _exit(127);
}

/* Starts it as nobody's child. Returns its number, and where it waits for a byte. */
static pid_t start_helper(char *const arguments[], int *start)
{
    int order[2], number[2];
    pid_t found = -1;
    if (pipe2(order, O_CLOEXEC) < 0)
        return -1;
    if (pipe2(number, O_CLOEXEC) < 0) {
        close(order[0]), close(order[1]);
        return -1;
    }
    pid_t between = quiet_fork();
    if (between == 0) {
        pid_t own = quiet_fork();
        if (own == 0) {
            close(order[1]);
            helper(order[0], arguments);
        }
        _exit(own < 0 || write(number[1], &own, sizeof own) != sizeof own);
    }
    close(order[0]), close(number[1]);
    if (between > 0) {
        if (read(number[0], &found, sizeof found) != sizeof found)
            found = -1;
        while (waitpid(between, NULL, __WCLONE) < 0 && errno == EINTR)
            ;
    }
    close(number[0]);
    if (found < 0)
        close(order[1]);
    *start = order[1];
    return found;
}

/* What the helper said, if it has: 0 taken, -1 not. 1: nothing yet. */
static int heard(const char *said)
{
    char line[TEXT_BYTES / 2];
    int file = open(said, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (file < 0)
        return 1;
    ssize_t got = read(file, line, sizeof line - 1);
    close(file);
    unlink(said);
    if (got <= 0)
        return fail("no checkpoint", "the file in which its end is told is empty");
    line[got] = 0;
    line[strcspn(line, "\n")] = 0;
    if (strcmp(line, "ok") == 0)
        return EYRIE_IMAGE_TAKEN;
    /* It says what it is about. */
    snprintf(told, sizeof told, "%s", line);
    return -1;
}

/* Waits for the end of it, or to be restarted. */
static int await(const char *said, pid_t helper, const char *before)
{
    const struct timespec pause = {0, PAUSE_NS};
    for (;;) {
        char now[2 * TEXT_BYTES];
        nanosleep(&pause, NULL);
        if (life(now) == 0 && strcmp(now, before) != 0)
            return EYRIE_IMAGE_RESTARTED;
        int gone = kill(helper, 0) < 0 && errno == ESRCH;
        int end = heard(said);
        if (end != 1)
            return end;
        if (gone)
            return fail("no checkpoint", "eyrie-image could not be started, or was killed");
    }
}

int eyrie_image_checkpoint(const char *file)
{
    char path[PATH_MAX], own[16], whole[PATH_MAX], said[PATH_MAX + 32], before[2 * TEXT_BYTES];
    int start;
    if (!file || !*file)
        return fail("no checkpoint", "no file is named");
    if (file[0] == '/')
        snprintf(whole, sizeof whole, "%s", file);
    else if (!getcwd(path, sizeof path)
             || snprintf(whole, sizeof whole, "%s/%s", path, file) >= (int)sizeof whole)
        return fail_errno("the current folder");
    snprintf(own, sizeof own, "%d", (int)getpid());
    snprintf(said, sizeof said, "%s" SAID_SUFFIX, whole, (int)getpid());
    if (life(before) < 0)
        return fail_errno("/proc");
    unlink(said);
    char *arguments[] = {(char *)command(path), "checkpoint", own, "--quiet", "--output", whole,
                         "--said", said, NULL};
    pid_t number = start_helper(arguments, &start);
    if (number < 0)
        return fail_errno("no process for it");
    /* Where the kernel lets only ancestors trace. */
    prctl(PR_SET_PTRACER, (unsigned long)number, 0, 0, 0);
    ssize_t told_to = write(start, "", 1);
    close(start);
    int end = told_to == 1 ? await(said, number, before) : fail_errno("no checkpoint");
    prctl(PR_SET_PTRACER, 0, 0, 0, 0);
    return end;
}

int eyrie_image_restart(const char *image)
{
    char path[PATH_MAX];
    if (!image || !*image)
        return fail("no restart", "no image is named");
    execlp(command(path), "eyrie-image", "restart", image, (char *)NULL);
    return fail_errno("eyrie-image");
}
