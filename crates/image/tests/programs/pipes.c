// Pipes with bytes in flight: of another capacity, in packets, with one end closed, by two numbers,
// through a FIFO and one that was deleted.
#define _GNU_SOURCE
#include "check.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

enum { AHEAD = 500 };

static int left(int fd) {
    int bytes = -1;
    ioctl(fd, FIONREAD, &bytes);
    return bytes;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 2000;
    signal(SIGPIPE, SIG_IGN);
    int plain[2], small[2], packets[2], ended[2], deaf[2];
    CHECK(!pipe2(plain, O_CLOEXEC) && !pipe(small) && !pipe2(packets, O_DIRECT | O_NONBLOCK));
    CHECK(!pipe(ended) && !pipe(deaf));
    CHECK(fcntl(small[0], F_SETPIPE_SZ, 8192) == 8192);
    CHECK(fcntl(plain[0], F_SETPIPE_SZ, 262144) == 262144);
    CHECK(write(ended[1], "the rest", 8) == 8);
    close(ended[1]);
    close(deaf[0]);
    unlink("fifo");
    unlink("lost");
    CHECK(!mkfifo("fifo", 0600) && !mkfifo("lost", 0600));
    int fifo = open("fifo", O_RDWR), writer = open("fifo", O_WRONLY | O_NONBLOCK);
    int lost = open("lost", O_RDWR);
    unlink("lost");
    close(open("begun", O_WRONLY | O_CREAT, 0600));
    int again = dup2(plain[1], 90);
    // A second description of the same end.
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", plain[0]);
    int other = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(fcntl(small[1], F_SETFL, O_NONBLOCK) == 0);
    char page[4096];
    memset(page, 7, sizeof page);
    CHECK(write(small[1], page, sizeof page) == sizeof page && write(small[1], page, 4096) == 4096);
    for (int i = 0; i < AHEAD; i++) {
        CHECK(write(plain[1], &i, sizeof i) == sizeof i);
        CHECK(write(fifo, &i, sizeof i) == sizeof i && write(lost, &i, sizeof i) == sizeof i);
    }
    for (int i = 0; i < 10; i++) CHECK(write(packets[1], page, 1 + i) == 1 + i);
    for (long r = 0; r < rounds; r++) {
        int next = (int)r + AHEAD, value = -1;
        CHECK(write(r % 2 ? again : plain[1], &next, sizeof next) == sizeof next);
        CHECK(read(r % 3 ? plain[0] : other, &value, sizeof value) == sizeof value && value == r);
        CHECK(write(writer, &next, sizeof next) == sizeof next);
        CHECK(read(fifo, &value, sizeof value) == sizeof value && value == r);
        CHECK(write(lost, &next, sizeof next) == sizeof next);
        CHECK(read(lost, &value, sizeof value) == sizeof value && value == r);
        char small_packet[64];
        CHECK(read(packets[0], small_packet, 64) == 1 + r % 10);
        CHECK(write(packets[1], page, (size_t)(1 + r % 10)) == 1 + r % 10);
        CHECK(left(plain[0]) == 4 * AHEAD && left(packets[0]) == 55 && left(small[0]) == 8192);
        CHECK(write(small[1], page, 1) == -1 && errno == EAGAIN);
        CHECK(fcntl(small[0], F_GETPIPE_SZ) == 8192 && fcntl(plain[0], F_GETPIPE_SZ) == 262144);
        CHECK(fcntl(packets[0], F_GETFL) == (O_RDONLY | O_DIRECT | O_NONBLOCK));
        CHECK(fcntl(plain[1], F_GETFL) == O_WRONLY && fcntl(small[0], F_GETFL) == O_RDONLY);
        CHECK(fcntl(plain[0], F_GETFD) == FD_CLOEXEC && fcntl(again, F_GETFD) == 0);
        CHECK(fcntl(other, F_GETFL) & O_NONBLOCK);
        CHECK(write(deaf[1], "x", 1) == -1 && errno == EPIPE);
        struct pollfd end = {.fd = ended[0], .events = POLLIN};
        CHECK(poll(&end, 1, 0) == 1 && end.revents & POLLHUP && left(ended[0]) == 8);
    }
    CHECK(read(ended[0], page, 100) == 8 && !memcmp(page, "the rest", 8));
    CHECK(read(ended[0], page, 100) == 0);
    return finish(rounds);
}
