// Open files: appended to, read at an offset, shared between two descriptors, closed on exec.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 20000;
    // Truncated first: an image from before this line comes back to a file that was written since.
    int log = open("out", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    int data = open("data", O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (int i = 0; i < 10000; i++) if (write(data, &i, 4) != 4) return 3;
    int in = open("data", O_RDONLY), same = dup2(in, 77);
    int zero = open("/dev/zero", O_RDONLY), null = open("/dev/null", O_WRONLY);
    int folder = open(".", O_RDONLY | O_DIRECTORY);
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5};
    if (fcntl(data, F_SETLK, &lock) || flock(log, LOCK_EX)) return 4;
    long wrong = 0, sum = 0;
    for (long r = 0; r < rounds; r++) {
        int value = -1, cleared = -1;
        if (read(r % 2 ? in : same, &value, 4) != 4) {
            lseek(same, 0, SEEK_SET);
            if (read(in, &value, 4) != 4) wrong++;
        }
        sum = sum * 31 + value;
        if (value != r % 10000) wrong++;
        if (read(zero, &cleared, 4) != 4 || cleared) wrong++;
        if (write(null, &cleared, 4) != 4) wrong++;
        if ((fcntl(log, F_GETFD) & FD_CLOEXEC) == 0 || fcntl(in, F_GETFD)) wrong++;
        if ((fcntl(log, F_GETFL) & O_APPEND) == 0) wrong++;
        if (faccessat(folder, "data", R_OK, 0)) wrong++;
        int other = open("out", O_WRONLY);
        if (flock(other, LOCK_EX | LOCK_NB) != -1 || errno != EWOULDBLOCK) wrong++;
        close(other);
        char line[80];
        int n = snprintf(line, sizeof line, "%ld %lx %ld\n", r, (unsigned long)sum, wrong);
        if (write(log, line, n) != n) wrong++;
    }
    return 0;
}
