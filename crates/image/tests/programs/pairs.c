// Socketpairs with messages in flight: streams, datagrams, sequenced packets; shut, with options,
// with one end closed.
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>

enum { AHEAD = 8 };

static int number(int fd, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    CHECK(!getsockopt(fd, SOL_SOCKET, name, &value, &bytes));
    return value;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    signal(SIGPIPE, SIG_IGN);
    int stream[2], grams[2], packets[2], half[2], ended[2];
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, stream));
    CHECK(!socketpair(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, grams));
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets));
    CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, half) && !socketpair(AF_UNIX, SOCK_STREAM, 0, ended));
    // Packets, one of them empty, behind which nothing comes: the other end is closed, or shut.
    int over[2][2];
    for (int i = 0; i < 2; i++) {
        CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, over[i]));
        CHECK(write(over[i][1], "one", 3) == 3 && !send(over[i][1], "", 0, 0));
        CHECK(write(over[i][1], "three", 5) == 5);
    }
    close(over[0][1]);
    CHECK(!shutdown(over[1][1], SHUT_WR));
    int unused = socket(AF_UNIX, SOCK_STREAM, 0);
    int again = dup2(stream[1], 120);
    CHECK(write(half[0], "last words", 10) == 10 && !shutdown(half[0], SHUT_WR));
    CHECK(write(ended[1], "the rest", 8) == 8);
    close(ended[1]);
    int bytes = 50000, yes = 1, low = 3;
    CHECK(!setsockopt(stream[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes));
    CHECK(!setsockopt(stream[0], SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low));
    CHECK(!setsockopt(packets[1], SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes));
    struct timeval patience = {3, 500000};
    CHECK(!setsockopt(grams[0], SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience));
    static char big[20000];
    for (int i = 0; i < AHEAD; i++) {
        CHECK(write(stream[0], &i, 4) == 4 && write(stream[1], &i, 4) == 4);
        memset(big, i, sizeof big);
        CHECK(write(grams[0], big, (size_t)(1000 + i)) == 1000 + i);
        CHECK(write(packets[0], big, (size_t)(2000 + i)) == 2000 + i);
    }
    for (long r = 0; r < rounds; r++) {
        int next = (int)r + AHEAD, value = -1;
        CHECK(write(stream[0], &next, 4) == 4 && write(r % 2 ? again : stream[1], &next, 4) == 4);
        CHECK(read(stream[0], &value, 4) == 4 && value == r);
        CHECK(read(again, &value, 4) == 4 && value == r);
        int waiting = -1;
        CHECK(!ioctl(stream[0], FIONREAD, &waiting) && waiting == 4 * AHEAD);
        long size = 1000 + r % AHEAD;
        CHECK(read(grams[1], big, sizeof big) == size && big[size - 1] == (char)(r % AHEAD));
        CHECK(write(grams[0], big, (size_t)size) == size);
        CHECK(read(packets[1], big, sizeof big) == size + 1000 && big[5] == (char)(r % AHEAD));
        CHECK(write(packets[0], big, (size_t)size + 1000) == size + 1000);
        CHECK(number(stream[0], SO_SNDBUF) == 100000 && number(stream[0], SO_RCVLOWAT) == 3);
        CHECK(number(packets[1], SO_PASSCRED) == 1 && number(packets[0], SO_PASSCRED) == 0);
        CHECK(number(unused, SO_TYPE) == SOCK_STREAM && number(stream[1], SO_RCVLOWAT) == 1);
        struct timeval seen;
        socklen_t length = sizeof seen;
        CHECK(!getsockopt(grams[0], SOL_SOCKET, SO_RCVTIMEO, &seen, &length));
        CHECK(seen.tv_sec == 3 && fcntl(grams[0], F_GETFL) & O_NONBLOCK);
        CHECK(write(half[0], "x", 1) == -1 && errno == EPIPE);
        CHECK(write(half[1], "y", 1) == 1 && read(half[0], big, 9) == 1);
        CHECK(write(ended[0], "x", 1) == -1 && errno == EPIPE);
        struct pollfd end = {.fd = ended[0], .events = POLLIN};
        CHECK(poll(&end, 1, 0) == 1 && end.revents & POLLHUP);
    }
    CHECK(read(half[1], big, 100) == 10 && read(half[1], big, 100) == 0);
    CHECK(read(ended[0], big, 100) == 8 && read(ended[0], big, 100) == 0);
    for (int i = 0; i < 2; i++) {
        CHECK(read(over[i][0], big, 100) == 3 && !read(over[i][0], big, 100));
        CHECK(read(over[i][0], big, 100) == 5 && !read(over[i][0], big, 100));
    }
    return finish(rounds);
}
