// Unix sockets with names: one that listens in a folder, one under an abstract name, connections
// through them, datagrams that wait.
#define _GNU_SOURCE
#include "check.h"
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

static socklen_t name_of(struct sockaddr_un *at, const char *name) {
    *at = (struct sockaddr_un){.sun_family = AF_UNIX};
    strcpy(at->sun_path + (*name == '@'), name + (*name == '@'));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name) + (*name != '@'));
}

static int listen_on(const char *name, int type) {
    struct sockaddr_un at;
    socklen_t bytes = name_of(&at, name);
    int fd = socket(AF_UNIX, type, 0);
    CHECK(!bind(fd, (struct sockaddr *)&at, bytes));
    if (type != SOCK_DGRAM) CHECK(!listen(fd, 5));
    return fd;
}

static int reach(const char *name, int type) {
    struct sockaddr_un at;
    socklen_t bytes = name_of(&at, name);
    int fd = socket(AF_UNIX, type, 0);
    CHECK(!connect(fd, (struct sockaddr *)&at, bytes));
    return fd;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    char hidden[64];
    snprintf(hidden, sizeof hidden, "@eyrie-test-%d", getpid());
    unlink("door");
    unlink("box");
    int door = listen_on("door", SOCK_STREAM), secret = listen_on(hidden, SOCK_SEQPACKET);
    int box = listen_on("box", SOCK_DGRAM);
    int a = reach("door", SOCK_STREAM), b = accept(door, NULL, NULL);
    int c = reach(hidden, SOCK_SEQPACKET), d = accept(secret, NULL, NULL);
    CHECK(b >= 0 && d >= 0);
    char text[64];
    struct sockaddr_un at;
    socklen_t bytes = name_of(&at, "box");
    int sender = socket(AF_UNIX, SOCK_DGRAM, 0);
    for (int i = 0; i < 5; i++) {
        CHECK(sendto(sender, text, (size_t)i + 1, 0, (struct sockaddr *)&at, bytes) == i + 1);
        CHECK(write(a, &i, 4) == 4 && write(d, text, (size_t)i + 1) == i + 1);
    }
    for (long r = 0; r < rounds; r++) {
        int next = (int)r + 5, value = -1;
        CHECK(write(a, &next, 4) == 4 && read(b, &value, 4) == 4 && value == r);
        CHECK(read(c, text, sizeof text) == 1 + r % 5 && write(d, text, 1 + r % 5) == 1 + r % 5);
        CHECK(read(box, text, sizeof text) == 1 + r % 5);
        CHECK(sendto(sender, text, (size_t)(1 + r % 5), 0, (struct sockaddr *)&at, bytes) > 0);
        struct sockaddr_un seen;
        socklen_t length = sizeof seen;
        CHECK(!getsockname(d, (struct sockaddr *)&seen, &length));
        CHECK(!memcmp(seen.sun_path + 1, hidden + 1, strlen(hidden) - 1) && !seen.sun_path[0]);
        length = sizeof seen;
        CHECK(!getpeername(a, (struct sockaddr *)&seen, &length) && strstr(seen.sun_path, "door"));
        CHECK(!access("door", F_OK) && !access("box", F_OK));
    }
    int again = reach("door", SOCK_STREAM), other = accept(door, NULL, NULL);
    CHECK(write(again, "new", 3) == 3 && read(other, text, 3) == 3);
    return finish(rounds);
}
