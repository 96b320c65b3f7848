// Closes its end of a pipe, of a pseudo-terminal and of a locked file as soon as it is told to, and
// looks at once whether it was the last who had it.
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <sys/file.h>
#include <termios.h>

int main(void) {
    int ends[2], master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(pipe2(ends, O_NONBLOCK) == 0 && master >= 0 && !grantpt(master) && !unlockpt(master));
    int slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    int locked = open("locked", O_RDWR | O_CREAT, 0600), again = open("locked", O_RDWR);
    CHECK(slave >= 0 && again >= 0 && flock(locked, LOCK_EX) == 0);
    close(open("begun", O_CREAT | O_WRONLY, 0600));
    while (access("go", F_OK)) usleep(1000);
    char text;
    struct pollfd end = {.fd = master, .events = POLLIN};
    CHECK(close(ends[1]) == 0 && read(ends[0], &text, 1) == 0);
    CHECK(close(slave) == 0 && poll(&end, 1, 0) == 1 && end.revents & POLLHUP);
    CHECK(close(locked) == 0 && flock(again, LOCK_EX | LOCK_NB) == 0);
    return finish(1) || wrong;
}
