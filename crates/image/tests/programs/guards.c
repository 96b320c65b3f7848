// Protections of every kind come back: unreadable pages keep their content, guard pages keep guarding.
#define _GNU_SOURCE
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096 };
static sigjmp_buf back;

static void on_fault(int signal) { siglongjmp(back, signal); }

static int faults(volatile char *p, int write) {
    if (sigsetjmp(back, 1)) return 1;
    if (write) *p = 1;
    else (void)*p;
    return 0;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 10000;
    signal(SIGSEGV, on_fault);
    signal(SIGBUS, on_fault);
    char *m = mmap(NULL, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 64 * PAGE; i++) m[i] = (char)(i * 31 + i / PAGE);
    mprotect(m + 8 * PAGE, 8 * PAGE, PROT_NONE);
    mprotect(m + 16 * PAGE, 8 * PAGE, PROT_READ);
    mprotect(m + 24 * PAGE, 8 * PAGE, PROT_READ | PROT_EXEC);
    int guard = madvise(m + 40 * PAGE, 4 * PAGE, 102) == 0;
    char *none = mmap(NULL, 1ul << 36, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    mprotect(none + (1ul << 30), PAGE, PROT_READ | PROT_WRITE);
    none[1ul << 30] = 42;
    // Content that a fork does not hand down.
    char *alone = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(alone, 7, 4 * PAGE);
    madvise(alone, 4 * PAGE, MADV_DONTFORK);
    char *wiped = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(wiped, 9, 4 * PAGE);
    madvise(wiped, 4 * PAGE, MADV_WIPEONFORK);
    long wrong = 0;
    for (long r = 0; r < rounds; r++) {
        wrong += !faults(m + 9 * PAGE, 0) + !faults(m + 17 * PAGE, 1) + faults(m + 17 * PAGE, 0);
        wrong += !faults(m + 25 * PAGE, 1) + (guard && !faults(m + 41 * PAGE, 0));
        wrong += faults(m + 44 * PAGE, 1) + !faults(none + PAGE, 0) + (none[1ul << 30] != 42);
        wrong += alone[r % (4 * PAGE)] != 7;
        wrong += wiped[r % (4 * PAGE)] != 9;
    }
    mprotect(m, 64 * PAGE, PROT_READ | PROT_WRITE);
    for (int i = 0; i < 40 * PAGE; i++) wrong += m[i] != (char)(i * 31 + i / PAGE);
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%ld rounds %ld wrong\n", rounds, wrong);
    return fclose(out);
}
