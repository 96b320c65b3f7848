// More descriptors open than half of the limit, in the program and in a child that shares some of
// them; each leads to the file that it led to.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { LIMIT = 1024, FILES = 1000 };

static long count(void) {
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur == LIMIT);
    return (long)limit.rlim_max;
}

// Descriptor `fd` is a number in a file of numbers, read from there on.
static void look(int fd, int turn) {
    uint32_t number = 0;
    CHECK(pread(fd, &number, sizeof number, lseek(fd, 0, SEEK_CUR)) == sizeof number);
    CHECK(number == (uint32_t)(fd * 7 % FILES));
    CHECK(fcntl(fd, F_GETFD) == (fd % 3 ? 0 : FD_CLOEXEC));
    add(number + (uint64_t)turn);
}

static void some(int turn, int first, int last) {
    for (int i = 0; i < 100; i++) look(first + (turn * 37 + i * 11) % (last - first), turn);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 300);
    struct rlimit limit = {LIMIT, LIMIT};
    NEED(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    int out = open("numbers", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    for (uint32_t i = 0; i < FILES; i++) NEED(write(out, &i, sizeof i) == sizeof i);
    close(out);
    int child = -1, first = 3;
    for (int i = FILES - 1; i >= first; i--) {
        int fd = open("numbers", O_RDONLY);
        NEED(fd >= 0);
        if (fd != i) NEED(dup3(fd, i, i % 3 ? 0 : O_CLOEXEC) == i && close(fd) == 0);
        else fcntl(fd, F_SETFD, i % 3 ? 0 : FD_CLOEXEC);
        NEED(lseek(i, i * 7 % FILES * 4, SEEK_SET) >= 0);
    }
    if (argc > 2) {
        child = fork();
        NEED(child >= 0);
        first = child ? first : FILES / 2;
        if (!child) {
            for (int fd = 3; fd < FILES / 2; fd++) close(fd);
            for (int i = 0; i < n; i++) some(i, first, FILES), work(1);
            _exit(wrong ? 1 : 0);
        }
    }
    ready();
    long hard = count();
    for (int i = 0; i < n; i++) {
        some(i, first, FILES);
        CHECK(count() == hard);
        work(1);
    }
    int status = 0;
    if (child > 0) CHECK(waitpid(child, &status, 0) == child && status == 0);
    add((uint64_t)n);
    return finish("crowded");
}
