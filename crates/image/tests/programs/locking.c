// Locks on files: of the process, of an open file description, by flock; a child looks at them.
#define _GNU_SOURCE
#include "check.h"
#include <sys/file.h>
#include <sys/wait.h>

// Whether another open file description finds these bytes locked, and for what.
static int locked(int fd, off_t start, off_t length) {
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
    CHECK(!fcntl(fd, F_OFD_GETLK, &lock));
    return lock.l_type;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    int data = open("data", O_RDWR | O_CREAT, 0600), shared = open("data", O_RDWR);
    int other = open("data", O_RDWR), twice = dup(data);
    CHECK(data >= 0 && shared >= 0 && other >= 0 && twice >= 0);
    struct flock posix = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    struct flock read_lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 100, .l_len = 0};
    struct flock ofd = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 40, .l_len = 2};
    CHECK(!fcntl(data, F_SETLK, &posix) && !fcntl(data, F_SETLK, &read_lock));
    CHECK(!fcntl(shared, F_OFD_SETLK, &ofd));
    CHECK(!flock(data, LOCK_SH) && !flock(shared, LOCK_SH));
    for (long r = 0; r < rounds; r++) {
        CHECK(locked(other, 0, 10) == F_UNLCK && locked(other, 10, 5) == F_WRLCK);
        CHECK(locked(other, 15, 5) == F_UNLCK && locked(other, 41, 1) == F_WRLCK);
        CHECK(locked(shared, 40, 2) == F_UNLCK && locked(other, 5000, 1) == F_RDLCK);
        CHECK(flock(other, LOCK_EX | LOCK_NB) == -1 && errno == EWOULDBLOCK);
        CHECK(!flock(other, LOCK_SH | LOCK_NB) && !flock(other, LOCK_UN));
    }
    // Closing any descriptor of the file ends the locks of the process, not the others.
    close(twice);
    CHECK(locked(other, 10, 5) == F_UNLCK && locked(other, 40, 2) == F_WRLCK);
    close(shared);
    CHECK(locked(other, 40, 2) == F_UNLCK);
    return finish(rounds);
}
