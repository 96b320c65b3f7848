// A log that the program moves on while it has it open, and opens anew; the oldest goes. Each line is
// there once, in order, and the names are those of the right files.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/stat.h>

enum { LINES = 200, KEPT = 3 };

static int begin(void) { return open("log", O_WRONLY | O_CREAT | O_APPEND, 0600); }

static void rotate(void) {
    char from[32], to[32];
    for (int i = KEPT; i > 0; i--) {
        snprintf(from, sizeof from, i > 1 ? "log.%d" : "log", i - 1);
        snprintf(to, sizeof to, "log.%d", i);
        CHECK(rename(from, to) == 0 || errno == ENOENT);
    }
}

// Adds a log's lines, the next of which is `line`; returns the one behind the last.
static long read_log(const char *name, long line) {
    FILE *log = fopen(name, "r");
    char text[64];
    long number;
    NEED(log);
    while (fgets(text, sizeof text, log)) {
        CHECK(sscanf(text, "%ld", &number) == 1);
        CHECK(line < 0 || number == line);
        line = number + 1;
        add_bytes(text, strlen(text));
    }
    fclose(log);
    return line;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 8000);
    int log = begin();
    NEED(log >= 0);
    ready();
    for (long i = 0; i < n; i++) {
        if (i && i % LINES == 0) {
            rotate();
            int next = begin();
            CHECK(next >= 0 && close(log) == 0);
            log = next;
        }
        char line[64];
        int length = snprintf(line, sizeof line, "%ld %016" PRIx64 "\n", i, value_at((uint64_t)i));
        CHECK(write(log, line, (size_t)length) == length);
        work(1);
    }
    struct stat open_one, named;
    CHECK(fstat(log, &open_one) == 0 && stat("log", &named) == 0);
    CHECK(open_one.st_ino == named.st_ino);
    long line = -1;
    for (int i = KEPT; i > 0; i--) {
        char name[32];
        snprintf(name, sizeof name, "log.%d", i);
        line = read_log(name, line);
    }
    CHECK(read_log("log", line) == n);
    add((uint64_t)n);
    return finish("rotated");
}
