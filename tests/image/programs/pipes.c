// Pipes of the program's own: with bytes under way, full, in packets, resized, not blocking, doubled,
// one end closed, a named one; a thread that is blocked in one.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>

static int to_thread[2], from_thread[2];

static void *echo(void *arg) {
    uint64_t word;
    while (read(to_thread[0], &word, 8) == 8) CHECK(write(from_thread[1], &word, 8) == 8);
    return arg;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 4000);
    int flow[2], full[2], packets[2], named, same, half[2];
    unlink("fifo");
    NEED(mkfifo("fifo", 0600) == 0);
    NEED((named = open("fifo", O_RDWR | O_NONBLOCK)) >= 0);
    ready();
    NEED(!pipe(flow) && !pipe2(full, O_NONBLOCK | O_CLOEXEC) && !pipe2(packets, O_DIRECT));
    NEED(!pipe(to_thread) && !pipe(from_thread) && !pipe(half));
    NEED((same = dup(flow[0])) >= 0);
    int size = fcntl(full[1], F_SETPIPE_SZ, 8192);
    NEED(size > 0);
    char block[4096];
    memset(block, 'x', sizeof block);
    long filled = 0, came;
    while ((came = write(full[1], block, sizeof block)) > 0) filled += came;
    NEED(errno == EAGAIN && write(half[1], "last words", 10) == 10 && close(half[1]) == 0);
    pthread_t thread;
    NEED(pthread_create(&thread, NULL, echo, NULL) == 0);
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        uint64_t word = value_at(i), other = 0;
        // Thirty-two words are under way at any time.
        CHECK(write(flow[1], &word, 8) == 8);
        if (i >= 32) CHECK(read(i & 1 ? same : flow[0], &other, 8) == 8 && other == value_at(i - 32));
        CHECK(write(packets[1], &word, 1 + i % 7) == (ssize_t)(1 + i % 7));
        if (i >= 3) {
            uint64_t before = value_at(i - 3);
            CHECK(read(packets[0], block, sizeof block) == (ssize_t)(1 + (i - 3) % 7));
            CHECK(!memcmp(block, &before, 1 + (i - 3) % 7));
        }
        CHECK(write(full[1], block, 1) == -1 && errno == EAGAIN);
        CHECK(fcntl(full[1], F_GETPIPE_SZ) == size);
        CHECK(fcntl(full[0], F_GETFD) & FD_CLOEXEC);
        CHECK(write(named, &word, 8) == 8 && read(named, &other, 8) == 8 && other == word);
        CHECK(read(named, &other, 8) == -1 && errno == EAGAIN);
        if (i % 8 == 0) {
            CHECK(write(to_thread[1], &word, 8) == 8);
            CHECK(read(from_thread[0], &other, 8) == 8 && other == word);
        }
        add(other);
        work(1);
    }
    while (read(full[0], block, sizeof block) > 0) filled -= 4096;
    CHECK(filled <= 0);
    CHECK(read(half[0], block, sizeof block) == 10 && !memcmp(block, "last words", 10));
    CHECK(read(half[0], block, sizeof block) == 0);
    close(to_thread[1]);
    CHECK(pthread_join(thread, NULL) == 0);
    return finish("pipes");
}
