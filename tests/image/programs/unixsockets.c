// Unix sockets between a program and its child: bound to a path, connected, with bytes under way, and
// a listener that accepts on and on.
#define _GNU_SOURCE
#include "check.h"
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

static struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "door"};

static void child(long n) {
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) _exit(2);
    uint64_t word;
    while (recv(fd, &word, 8, MSG_WAITALL) == 8) {
        work(2);
        word = word * 31 + 7;
        if (send(fd, &word, 8, MSG_NOSIGNAL) != 8) _exit(3);
    }
    _exit(n > 0 ? 12 : 13);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 2500);
    unlink(at.sun_path);
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), status;
    NEED(listener >= 0 && bind(listener, (struct sockaddr *)&at, sizeof at) == 0);
    NEED(listen(listener, 4) == 0);
    pid_t pid = fork();
    NEED(pid >= 0);
    if (!pid) child(n);
    int fd = accept(listener, NULL, NULL);
    NEED(fd >= 0);
    ready();
    for (uint64_t i = 0; i < (uint64_t)n; i++) {
        uint64_t word = value_at(i), answer = 0;
        CHECK(send(fd, &word, 8, 0) == 8);
        if (i >= 4) {
            CHECK(recv(fd, &answer, 8, MSG_WAITALL) == 8 && answer == value_at(i - 4) * 31 + 7);
            add(answer);
        }
    }
    shutdown(fd, SHUT_WR);
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 12);
    return finish("unixsockets");
}
