// Ordinary files: appended to, written at an offset, shared between two descriptors, renamed while
// open, cut; folders and devices; descriptors of high numbers; closed on exec.
#define _GNU_SOURCE
#include "check.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 8000);
    int append = open("log", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    int data = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(append >= 0 && data >= 0);
    for (int i = 0; i < 4096; i++) NEED(write(data, &i, 4) == 4);
    int in = open("data", O_RDONLY), same = dup2(in, 777), zero = open("/dev/zero", O_RDONLY);
    int null = open("/dev/null", O_WRONLY), folder = open(".", O_RDONLY | O_DIRECTORY);
    int path = open("data", O_PATH), moved = open("before", O_RDWR | O_CREAT, 0600);
    NEED(in >= 0 && same == 777 && zero >= 0 && null >= 0 && folder >= 0 && path >= 0);
    NEED(moved >= 0 && rename("before", "after") == 0);
    ready();
    struct stat a, b;
    for (long i = 0; i < n; i++) {
        int value = -1, cleared = -1;
        if (i % 4096 == 0) CHECK(lseek(same, 0, SEEK_SET) == 0);
        CHECK(read(i % 2 ? in : same, &value, 4) == 4 && value == i % 4096);
        CHECK(read(zero, &cleared, 4) == 4 && cleared == 0 && write(null, &cleared, 4) == 4);
        CHECK((fcntl(append, F_GETFD) & FD_CLOEXEC) && !(fcntl(in, F_GETFD) & FD_CLOEXEC));
        CHECK(fcntl(append, F_GETFL) & O_APPEND);
        CHECK(faccessat(folder, "data", R_OK, 0) == 0);
        CHECK(fstat(path, &a) == 0 && fstat(data, &b) == 0 && a.st_ino == b.st_ino);
        CHECK(pwrite(moved, &value, 4, value * 4) == 4);
        char line[64];
        int length = snprintf(line, sizeof line, "%ld %016" PRIx64 "\n", i, sum);
        CHECK(write(append, line, (size_t)length) == length);
        add((uint64_t)value);
        work(1);
    }
    FILE *log = fopen("log", "r");
    char line[64];
    long lines = 0, number;
    NEED(log);
    while (fgets(line, sizeof line, log)) {
        CHECK(sscanf(line, "%ld", &number) == 1 && number == lines++);
        add_bytes(line, strlen(line));
    }
    CHECK(lines == n && fstat(moved, &a) == 0 && a.st_size == 4096 * 4);
    return finish("files");
}
