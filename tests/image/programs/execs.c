// A program that becomes another one, itself, again and again; what it has got so far is handed on in
// its arguments, and an open file lives through it.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 60), turn = argc > 2 ? atol(argv[2]) : 0;
    if (argc > 3) sum = strtoull(argv[3], NULL, 16);
    if (turn == 0) {
        int log = open("turns", O_RDWR | O_CREAT | O_TRUNC | O_APPEND, 0600);
        NEED(log >= 0 && dup2(log, 9) == 9 && close(log) == 0);
    }
    for (int i = 0; i < 20; i++) add(work(10) + value_at((uint64_t)(turn * 20 + i)));
    NEED(write(9, &sum, 8) == 8);
    if (turn < n) {
        char all[24], next[24], so_far[24];
        snprintf(all, sizeof all, "%ld", n);
        snprintf(next, sizeof next, "%ld", turn + 1);
        snprintf(so_far, sizeof so_far, "%" PRIx64, sum);
        execl("/proc/self/exe", argv[0], all, next, so_far, NULL);
        NEED(!"exec");
    }
    uint64_t word;
    long words = 0;
    for (; pread(9, &word, 8, words * 8) == 8; words++) add(word);
    CHECK(words == n + 1);
    return finish("execs");
}
