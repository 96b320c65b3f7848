// inotify: what is watched under which number, after watches were taken away.
#define _GNU_SOURCE
#include "check.h"
#include <sys/inotify.h>
#include <sys/stat.h>

static int notify;

// The next event, as its watch's number; -1 if there is none.
static int event(uint32_t *mask) {
    char buffer[4096] __attribute__((aligned(8)));
    ssize_t n = read(notify, buffer, sizeof(struct inotify_event) + 256);
    if (n < (ssize_t)sizeof(struct inotify_event)) return -1;
    struct inotify_event *e = (struct inotify_event *)buffer;
    *mask = e->mask;
    return e->wd;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    mkdir("watched", 0700);
    int file = open("watched/file", O_RDWR | O_CREAT, 0600);
    notify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    for (int i = 1; i <= 5; i++) {
        int wd = inotify_add_watch(notify, "watched", IN_ALL_EVENTS);
        CHECK(wd == i && !inotify_rm_watch(notify, wd));
    }
    uint32_t mask;
    while (event(&mask) >= 0) {}
    int folder = inotify_add_watch(notify, "watched", IN_ATTRIB | IN_DELETE | IN_ONLYDIR);
    int single = inotify_add_watch(notify, "watched/file", IN_ATTRIB);
    CHECK(folder == 6 && single == 7);
    for (long r = 0; r < rounds; r++) {
        CHECK(event(&mask) == -1 && errno == EAGAIN);
        CHECK(!fchmod(file, 0600) && event(&mask) == folder && mask == IN_ATTRIB);
        CHECK(event(&mask) == single && mask == IN_ATTRIB);
        CHECK(fcntl(notify, F_GETFD) == FD_CLOEXEC);
        // Time in which nothing waits to be read.
        for (volatile int i = 0; i < 20000; i++) {}
    }
    CHECK(inotify_add_watch(notify, "watched", IN_CREATE) == folder);
    CHECK(inotify_add_watch(notify, ".", IN_CREATE) == 8);
    return finish(rounds);
}
