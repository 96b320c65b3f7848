// Memory for `benches/image`: fills so many MiB with noise, and does on a signal what a number says.
//
//     fill MIB        SIGRTMIN+p changes p percent of the pages (p below 21: p; 21: 50, 22: 100);
//                     SIGUSR1 reads every page; after each, the count of what was done goes to `done`
//     fill shared MIB the same with memory that it shares with others
//     fill copy MIB   prints how fast memory is copied, in GB/s
//     fill fork MIB   prints how long a bare fork of such a process takes, in ms
//     fill touch MIB  prints how fast the system gives memory for the first time and for the second,
//                     in GB/s
//     fill huge MIB   the same with huge pages
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t state = 88172645463325252ull;

static uint64_t noise(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int copy(size_t bytes) {
    char *a = malloc(bytes), *b = malloc(bytes);
    if (!a || !b) return 1;
    memset(a, 1, bytes);
    memset(b, 2, bytes);
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        double begun = now();
        memcpy(i % 2 ? a : b, i % 2 ? b : a, bytes);
        double took = now() - begun;
        if (took < best) best = took;
    }
    printf("%.2f\n", (double)bytes / best * 1e-9);
    return 0;
}

static char *pages_of_noise(size_t bytes, int flags) {
    uint64_t *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED) return NULL;
    madvise(area, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes / 8; i++) area[i] = noise();
    return (char *)area;
}

static int bare_fork(size_t bytes) {
    char *area = pages_of_noise(bytes, MAP_PRIVATE);
    if (!area) return 1;
    double best = 1e9;
    for (int i = 0; i < 5; i++) {
        // As of a program that writes: a page that is shared already is faster to share again.
        for (size_t at = 0; at < bytes; at += 4096) area[at]++;
        double begun = now();
        pid_t child = fork();
        if (!child) _exit(0);
        double took = now() - begun;
        if (child < 0 || waitpid(child, NULL, 0) < 0) return 1;
        if (took < best) best = took;
    }
    printf("%.1f\n", best * 1e3);
    return 0;
}

// In a virtual machine memory that was free for a while may have to be had from the host first,
// which can be slower than the storage.
static int touch(size_t bytes, int huge) {
    for (int i = 0; i < 2; i++) {
        char *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (area == MAP_FAILED) return 1;
        if (huge) madvise(area, bytes, MADV_HUGEPAGE);
        double begun = now();
        for (size_t at = 0; at < bytes; at += 4096) area[at] = 1;
        printf("%.2f\n", (double)bytes / (now() - begun) * 1e-9);
        munmap(area, bytes);
    }
    return 0;
}

int main(int argc, char **argv) {
    if (argc > 2 && !strcmp(argv[1], "touch")) return touch((size_t)atol(argv[2]) << 20, 0);
    if (argc > 2 && !strcmp(argv[1], "huge")) return touch((size_t)atol(argv[2]) << 20, 1);
    if (argc > 2 && !strcmp(argv[1], "copy")) return copy((size_t)atol(argv[2]) << 20);
    if (argc > 2 && !strcmp(argv[1], "fork")) return bare_fork((size_t)atol(argv[2]) << 20);
    int shared = argc > 2 && !strcmp(argv[1], "shared");
    size_t bytes = argc > 1 ? (size_t)atol(argv[1 + shared]) << 20 : 1 << 20, pages = bytes / 4096;
    uint64_t *area = (uint64_t *)pages_of_noise(bytes, shared ? MAP_SHARED : MAP_PRIVATE);
    if (!area) return 1;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    for (int p = 0; p <= 22; p++) sigaddset(&set, SIGRTMIN + p);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int file = open("done", O_RDWR | O_CREAT, 0600);
    uint64_t done = 0, sum = 0;
    if (file < 0 || pwrite(file, &done, 8, 0) != 8) return 1;
    for (;;) {
        int signal = sigwaitinfo(&set, NULL);
        if (signal < 0) continue;
        int p = signal - SIGRTMIN;
        size_t changes = pages * (size_t)(p == 22 ? 100 : p == 21 ? 50 : p) / 100;
        if (signal == SIGUSR1) {
            for (size_t i = 0; i < pages; i++) sum += area[i * 512];
        } else {
            // A stride that meets each page once.
            for (size_t i = 0; i < changes; i++) area[(i * 7919 + done) % pages * 512 + 7] += done + 1;
        }
        done++;
        if (pwrite(file, &done, 8, 0) != 8) return sum != 0;
    }
}
