// Pseudo-terminals held on both sides: settings, size, lines that were typed and not read, output
// that nobody has looked at, and one as the controlling terminal.
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>

static int open_master(void) {
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    CHECK(master >= 0 && !grantpt(master) && !unlockpt(master));
    return master;
}

// Where process numbers cannot be chosen, a restore between the questions changes the answers.
static int controls(int terminal) {
    pid_t before;
    int same;
    do {
        before = getpid();
        same = tcgetsid(terminal) == getsid(0) && tcgetpgrp(terminal) == getpgrp();
    } while (!same && getpid() != before);
    return same;
}

// The text and the end of a line may arrive one after the other.
static int take(int from, char *to, size_t bytes) {
    for (ssize_t n; bytes && (n = read(from, to, bytes)) > 0; to += n) bytes -= n;
    return !bytes;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    signal(SIGHUP, SIG_IGN);
    CHECK(setsid() >= 0);
    int lines = open_master(), raw = open_master(), alone = open_master(), left = open_master();
    // The first one becomes the controlling terminal.
    int in = open(ptsname(lines), O_RDWR), bytes = open(ptsname(raw), O_RDWR | O_NOCTTY);
    int last = open(ptsname(left), O_RDWR | O_NOCTTY);
    CHECK(in >= 0 && bytes >= 0 && write(last, "good bye\n", 9) == 9);
    close(last);
    struct winsize size = {.ws_row = 33, .ws_col = 77, .ws_xpixel = 5}, seen;
    CHECK(!ioctl(lines, TIOCSWINSZ, &size));
    struct termios set, now;
    CHECK(!tcgetattr(bytes, &set));
    cfmakeraw(&set);
    set.c_cc[VTIME] = 3;
    CHECK(!tcsetattr(bytes, TCSANOW, &set) && !tcgetattr(in, &set));
    set.c_lflag &= ~(tcflag_t)ECHO;
    set.c_cc[VERASE] = 'E';
    CHECK(!tcsetattr(in, TCSANOW, &set));
    int yes = 1;
    CHECK(!ioctl(alone, TIOCSPTLCK, &yes));
    char text[100];
    CHECK(write(lines, "first\nsecond\npart", 17) == 17);
    CHECK(write(in, "out\n", 4) == 4 && write(raw, "\x03\x04raw", 5) == 5);
    // Until it has arrived.
    struct pollfd there = {.fd = bytes, .events = POLLIN};
    CHECK(poll(&there, 1, 5000) == 1);
    int held = argc > 2 ? open("/dev/tty", O_RDWR) : in;
    for (long r = 0; r < rounds; r++) {
        CHECK(read(in, text, sizeof text) == (r % 2 ? 7 : 6));
        CHECK(!memcmp(text, r % 2 ? "second\n" : "first\n", 6));
        // What was typed half is completed, and becomes a line two lines later.
        CHECK(write(lines, "EEEE", 4) == 4);
        CHECK(write(lines, r % 2 ? "second\npart" : "first\npart", r % 2 ? 11 : 10) > 0);
        CHECK(take(lines, text, 5) && !memcmp(text, "out\r\n", 5));
        CHECK(write(in, "out\n", 4) == 4);
        CHECK(read(bytes, text, 5) == 5 && !memcmp(text, "\x03\x04raw", 5));
        CHECK(write(raw, "\x03\x04raw", 5) == 5 && poll(&there, 1, 5000) == 1);
        CHECK(!ioctl(in, TIOCGWINSZ, &seen) && seen.ws_row == 33 && seen.ws_col == 77);
        CHECK(!tcgetattr(in, &now) && now.c_lflag == set.c_lflag && now.c_cc[VERASE] == 'E');
        CHECK(!tcgetattr(bytes, &now) && now.c_cc[VTIME] == 3 && !(now.c_lflag & ICANON));
        int locked = 0;
        CHECK(!ioctl(alone, TIOCGPTLCK, &locked) && locked);
        CHECK(controls(in) && controls(held));
        int terminal = open("/dev/tty", O_RDWR);
        CHECK(terminal >= 0 && controls(terminal) && !close(terminal));
        struct pollfd end = {.fd = left, .events = POLLIN};
        CHECK(poll(&end, 1, 0) == 1 && end.revents & POLLHUP);
        CHECK(isatty(in) && ptsname(lines) && !access(ptsname(lines), F_OK));
    }
    CHECK(read(left, text, sizeof text) == 10 && !memcmp(text, "good bye\r\n", 10));
    CHECK(read(left, text, sizeof text) == -1 && errno == EIO);
    return finish(rounds);
}
