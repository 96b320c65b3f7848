// TCP connections of a process to itself: with data in flight both ways, more than the reader has
// room for, shut on one side; sockets that listen, and UDP.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

enum { AHEAD = 300 };
static struct sockaddr_in home = {.sin_family = AF_INET};

static int connected(int listener, int *far) {
    struct sockaddr_in at;
    socklen_t bytes = sizeof at;
    CHECK(!getsockname(listener, (struct sockaddr *)&at, &bytes));
    int near = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(near, (struct sockaddr *)&home, sizeof home));
    CHECK(!connect(near, (struct sockaddr *)&at, sizeof at));
    *far = accept(listener, NULL, NULL);
    CHECK(*far >= 0);
    return near;
}

static int number(int fd, int level, int name) {
    int value = -1;
    socklen_t bytes = sizeof value;
    CHECK(!getsockopt(fd, level, name, &value, &bytes));
    return value;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    int full = argc > 2 && !strcmp(argv[2], "full");
    signal(SIGPIPE, SIG_IGN);
    // An address of its own: a port that it must get again is nobody else's meanwhile.
    home.sin_addr.s_addr = htonl(127u << 24 | (getpid() & 0xffffff));
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), gone = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(!bind(listener, (struct sockaddr *)&home, sizeof home) && !listen(listener, 7));
    CHECK(!bind(gone, (struct sockaddr *)&home, sizeof home) && !listen(gone, 1));
    int b, d, f, yes = 1;
    int a = connected(listener, &b), c = connected(gone, &d), e = connected(gone, &f);
    close(gone);
    CHECK(!setsockopt(a, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes));
    CHECK(write(c, "last words", 10) == 10 && !shutdown(c, SHUT_WR));
    struct sockaddr_in name, peer, now;
    socklen_t bytes = sizeof name;
    CHECK(!getsockname(a, (struct sockaddr *)&name, &bytes));
    CHECK(!getpeername(a, (struct sockaddr *)&peer, &bytes));
    for (int i = 0; i < AHEAD; i++) CHECK(write(a, &i, 4) == 4 && write(b, &i, 4) == 4);
    // As much as goes in without anybody reading.
    static char big[1 << 16];
    long held = 0;
    if (full) {
        int small = 20000;
        CHECK(!setsockopt(f, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
        CHECK(!fcntl(e, F_SETFL, O_NONBLOCK));
        for (ssize_t n; (n = write(e, big, sizeof big)) > 0 && held < 4000000;) {
            held += n;
            // All of it: the next write may take more than this one.
            for (size_t i = 0; i < sizeof big; i++) big[i] = (char)((held + (long)i) % 251);
        }
    }
    int udp = socket(AF_INET, SOCK_DGRAM, 0);
    CHECK(!bind(udp, (struct sockaddr *)&home, sizeof home));
    for (long r = 0; r < rounds; r++) {
        int next = (int)r + AHEAD, value = -1;
        CHECK(write(a, &next, 4) == 4 && write(b, &next, 4) == 4);
        CHECK(recv(a, &value, 4, MSG_WAITALL) == 4 && value == r);
        CHECK(recv(b, &value, 4, MSG_WAITALL) == 4 && value == r);
        CHECK(!getsockname(a, (struct sockaddr *)&now, &bytes));
        CHECK(now.sin_port == name.sin_port && now.sin_addr.s_addr == name.sin_addr.s_addr);
        CHECK(!getpeername(b, (struct sockaddr *)&now, &bytes) && now.sin_port == name.sin_port);
        CHECK(!getpeername(a, (struct sockaddr *)&now, &bytes) && now.sin_port == peer.sin_port);
        CHECK(number(a, IPPROTO_TCP, TCP_NODELAY) && !number(b, IPPROTO_TCP, TCP_NODELAY));
        CHECK(number(listener, SOL_SOCKET, SO_ACCEPTCONN) == 1);
        CHECK(accept(listener, NULL, NULL) == -1 && errno == EAGAIN);
        CHECK(write(c, "x", 1) == -1 && errno == EPIPE);
        CHECK(write(d, "y", 1) == 1 && recv(c, big + 60000, 1, MSG_WAITALL) == 1);
        CHECK(!getsockname(udp, (struct sockaddr *)&now, &bytes) && now.sin_port);
    }
    CHECK(recv(d, big, 100, MSG_WAITALL) == 10 && !memcmp(big, "last words", 10));
    int other, again = connected(listener, &other);
    CHECK(write(again, "new", 3) == 3 && recv(other, big, 3, MSG_WAITALL) == 3);
    long seen = 0;
    if (full) {
        CHECK(!shutdown(e, SHUT_WR));
        for (ssize_t n; (n = read(f, big, sizeof big)) > 0; seen += n) {
            for (ssize_t i = 0; i < n && seen + i >= (long)sizeof big; i++) {
                CHECK(seen + i >= held || big[i] == (char)((seen + i) % 251) || big[i] == 0);
            }
        }
    }
    CHECK(seen == held);
    return finish(rounds);
}
