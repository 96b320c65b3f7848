// Echoes lines of standard input to output, error and a duplicate of output, counting in a shared
// segment whose descriptor it was given.
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int segment = argc > 1 ? atoi(argv[1]) : -1;
    int keep = argc > 2 && !strcmp(argv[2], "keep");
    volatile uint64_t *counter = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, segment, 4096);
    if (counter == MAP_FAILED) return 1;
    if (!keep) close(segment);
    int copy = dup(1);
    char c;
    char line[100];
    int n = 0;
    while (read(0, &c, 1) == 1) {
        line[n++] = c;
        if (c != '\n') continue;
        counter[0]++;
        if (keep && lseek(segment, 0, SEEK_END) != 12288) return 2;
        if (write(1, line, n) != n || write(copy, line, n) != n || write(2, "!", 1) != 1) return 3;
        n = 0;
    }
    return 0;
}
