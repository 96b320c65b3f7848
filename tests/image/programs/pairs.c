// Socket pairs of all three kinds, with messages under way, options set, one half shut down, a
// descriptor on its way in a message, a thread blocked in a receive.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>

static int talk[2];

static void *echo(void *arg) {
    uint64_t word;
    while (recv(talk[1], &word, 8, MSG_WAITALL) == 8) CHECK(send(talk[1], &word, 8, 0) == 8);
    return arg;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 4000);
    int types[] = {SOCK_STREAM, SOCK_DGRAM, SOCK_SEQPACKET}, pairs[3][2], half[2];
    for (int t = 0; t < 3; t++) NEED(!socketpair(AF_UNIX, types[t], 0, pairs[t]));
    NEED(!socketpair(AF_UNIX, SOCK_STREAM, 0, half) && !socketpair(AF_UNIX, SOCK_STREAM, 0, talk));
    NEED(write(half[0], "end", 3) == 3 && shutdown(half[0], SHUT_WR) == 0);
    int room = 65536, found;
    socklen_t length = sizeof found;
    NEED(setsockopt(pairs[0][0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room) == 0);
    NEED(getsockopt(pairs[0][0], SOL_SOCKET, SO_SNDBUF, &room, &length) == 0);
    NEED(fcntl(pairs[1][1], F_SETFL, O_NONBLOCK) == 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, echo, NULL) == 0);
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        uint64_t word = value_at(i), other = 0;
        for (int t = 0; t < 3; t++) {
            // Six messages are under way at any time, in both directions.
            CHECK(send(pairs[t][0], &word, 8, 0) == 8 && send(pairs[t][1], &i, 8, 0) == 8);
            if (i < 6) continue;
            CHECK(recv(pairs[t][1], &other, 8, 0) == 8 && other == value_at(i - 6));
            CHECK(recv(pairs[t][0], &other, 8, 0) == 8 && other == i - 6);
        }
        length = sizeof found;
        CHECK(getsockopt(pairs[0][0], SOL_SOCKET, SO_SNDBUF, &found, &length) == 0);
        CHECK(found == room);
        if (i % 8 == 0) {
            CHECK(send(talk[0], &word, 8, 0) == 8);
            CHECK(recv(talk[0], &other, 8, MSG_WAITALL) == 8 && other == word);
        }
        add(other);
        work(1);
    }
    CHECK(recv(pairs[1][1], &room, 4, 0) >= 0);
    char text[8];
    CHECK(read(half[1], text, 8) == 3 && !memcmp(text, "end", 3) && read(half[1], text, 8) == 0);
    CHECK(write(half[1], "ok", 2) == 2 && read(half[0], text, 8) == 2);
    shutdown(talk[0], SHUT_RDWR);
    CHECK(pthread_join(thread, NULL) == 0);
    return finish("pairs");
}
