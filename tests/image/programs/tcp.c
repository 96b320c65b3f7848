// TCP connections inside one job: between two threads over loopback, with bytes under way in both
// directions, options set, one half closed, and a listener with a connection not yet accepted; with
// `early` as the second argument that is accepted at once.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/socket.h>

static int talk[2];
static struct sockaddr_in home = {.sin_family = AF_INET};

// With an address of this program's own: a port that it must get again is nobody else's meanwhile.
static int at_home(void) {
    home.sin_addr.s_addr = htonl(127u << 24 | (getpid() & 0xffffff));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    NEED(fd >= 0 && bind(fd, (struct sockaddr *)&home, sizeof home) == 0);
    return fd;
}

static void *echo(void *arg) {
    uint64_t word;
    while (recv(talk[1], &word, 8, MSG_WAITALL) == 8) CHECK(send(talk[1], &word, 8, 0) == 8);
    return arg;
}

static void connect_pair(int listener, int ends[2]) {
    struct sockaddr_in at;
    socklen_t length = sizeof at;
    NEED(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
    ends[0] = at_home();
    NEED(connect(ends[0], (struct sockaddr *)&at, sizeof at) == 0);
    NEED((ends[1] = accept(listener, NULL, NULL)) >= 0);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 3000);
    int early = argc > 2 && !strcmp(argv[2], "early"), accepted = -1;
    struct sockaddr_in at;
    int listener = at_home(), flow[2], half[2], late, one = 1, on = 0;
    NEED(listen(listener, 8) == 0);
    connect_pair(listener, flow);
    connect_pair(listener, half);
    connect_pair(listener, talk);
    NEED(setsockopt(flow[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one) == 0);
    NEED(write(half[0], "end", 3) == 3 && shutdown(half[0], SHUT_WR) == 0);
    socklen_t length = sizeof at;
    NEED(getsockname(listener, (struct sockaddr *)&at, &length) == 0);
    // Connected, and accepted only at the end.
    late = at_home();
    NEED(connect(late, (struct sockaddr *)&at, sizeof at) == 0 && write(late, "late", 4) == 4);
    if (early) NEED((accepted = accept(listener, NULL, NULL)) >= 0);
    ready();
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, echo, NULL) == 0);
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        uint64_t word = value_at(i), other = 0;
        CHECK(send(flow[0], &word, 8, 0) == 8 && send(flow[1], &i, 8, 0) == 8);
        if (i >= 100) {
            CHECK(recv(flow[1], &other, 8, MSG_WAITALL) == 8 && other == value_at(i - 100));
            CHECK(recv(flow[0], &other, 8, MSG_WAITALL) == 8 && other == i - 100);
        }
        if (i % 8 == 0) {
            CHECK(send(talk[0], &word, 8, 0) == 8);
            CHECK(recv(talk[0], &other, 8, MSG_WAITALL) == 8 && other == word);
        }
        length = sizeof on;
        CHECK(getsockopt(flow[0], IPPROTO_TCP, TCP_NODELAY, &on, &length) == 0 && on);
        add(other);
        work(1);
    }
    char text[8];
    CHECK(read(half[1], text, 8) == 3 && !memcmp(text, "end", 3) && read(half[1], text, 8) == 0);
    if (!early) accepted = accept(listener, NULL, NULL);
    CHECK(accepted >= 0 && read(accepted, text, 8) == 4 && !memcmp(text, "late", 4));
    shutdown(talk[0], SHUT_RDWR);
    CHECK(pthread_join(thread, NULL) == 0);
    return finish("tcp");
}
