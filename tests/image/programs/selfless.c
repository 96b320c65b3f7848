// A program whose own file goes while it runs: it runs a copy of itself that another one replaces,
// and goes on with what /proc/self/exe is. In the end it executes that once more.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>

static const char text[] = "what stands in the program's own file";

static uint64_t own_file(void) {
    static char part[1 << 16];
    uint64_t before = sum, result;
    sum = 1;
    int fd = open("/proc/self/exe", O_RDONLY);
    CHECK(fd >= 0);
    for (ssize_t n; (n = read(fd, part, sizeof part)) > 0;) add_bytes(part, (size_t)n);
    close(fd);
    result = sum;
    sum = before;
    return result;
}

static void copy(const char *from, const char *to) {
    char part[1 << 14];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0700);
    NEED(in >= 0 && out >= 0);
    for (ssize_t n; (n = read(in, part, sizeof part)) > 0;) NEED(write(out, part, (size_t)n) == n);
    NEED(close(in) == 0 && close(out) == 0);
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[2], "last")) {
        add_bytes(text, sizeof text);
        add((uint64_t)atol(argv[1]));
        return finish("selfless");
    }
    long n = rounds(argc, argv, 200);
    char number[32];
    snprintf(number, sizeof number, "%ld", n);
    if (argc < 3) {
        copy("/proc/self/exe", "copy");
        execl("./copy", "copy", number, "copy", NULL);
        NEED(!"a program");
    }
    // Another file is in its place.
    copy("/dev/null", "other");
    NEED(rename("other", "copy") == 0);
    uint64_t first = own_file();
    ready();
    for (long i = 0; i < n; i++) {
        CHECK(own_file() == first);
        work(3);
    }
    snprintf(number, sizeof number, "%ld", wrong ? -1 : n);
    execl("/proc/self/exe", "copy", number, "last", NULL);
    NEED(!"a program that is gone");
}
