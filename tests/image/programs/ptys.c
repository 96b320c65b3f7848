// A pseudo-terminal of the program's own, both ends in it: settings, window size, text under way.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 4000);
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    NEED(master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0);
    char name[64];
    NEED(ptsname_r(master, name, sizeof name) == 0);
    int slave = open(name, O_RDWR | O_NOCTTY);
    NEED(slave >= 0);
    struct termios raw, now;
    struct winsize size = {.ws_row = 33, .ws_col = 77}, found;
    NEED(tcgetattr(slave, &raw) == 0);
    cfmakeraw(&raw);
    raw.c_cc[VMIN] = 3;
    NEED(tcsetattr(slave, TCSANOW, &raw) == 0 && ioctl(master, TIOCSWINSZ, &size) == 0);
    ready();
    char text[64];
    for (long i = 0; i < n; i++) {
        int length = snprintf(text, sizeof text, "%016" PRIx64, value_at((uint64_t)i));
        CHECK(write(master, text, (size_t)length) == length);
        CHECK(write(slave, text, (size_t)length) == length);
        if (i >= 4) {
            char seen[17], expected[17];
            snprintf(expected, sizeof expected, "%016" PRIx64, value_at((uint64_t)i - 4));
            CHECK(read(slave, seen, 16) == 16 && !memcmp(seen, expected, 16));
            CHECK(read(master, seen, 16) == 16 && !memcmp(seen, expected, 16));
            add_bytes(seen, 16);
        }
        CHECK(tcgetattr(slave, &now) == 0 && now.c_lflag == raw.c_lflag && now.c_cc[VMIN] == 3);
        CHECK(ioctl(slave, TIOCGWINSZ, &found) == 0 && found.ws_row == 33 && found.ws_col == 77);
        CHECK(isatty(slave));
        work(1);
    }
    return finish("ptys");
}
