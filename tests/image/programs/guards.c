// Guard pages: without access, and the kernel's own where it has them. Touching one is a fault that a
// handler takes, before and after a restore.
#define _GNU_SOURCE
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102
#endif
static sigjmp_buf place;

static void handler(int signal) { siglongjmp(place, signal); }

// Whether an access faults.
static int faults(volatile char *at, int write) {
    int signal = sigsetjmp(place, 1);
    if (signal) return signal == SIGSEGV;
    if (write) *at = 1;
    else (void)*at;
    return 0;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 7000);
    enum { PAGE = 4096, PAGES = 32 };
    struct sigaction action = {.sa_handler = handler};
    NEED(sigaction(SIGSEGV, &action, NULL) == 0);
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    char *area = mmap(NULL, PAGES * PAGE, rw, flags, -1, 0);
    NEED(area != MAP_FAILED);
    for (long i = 0; i < PAGES * PAGE / 8; i++) ((uint64_t *)area)[i] = value_at((uint64_t)i);
    NEED(mprotect(area + 3 * PAGE, PAGE, PROT_NONE) == 0);
    NEED(mprotect(area + 5 * PAGE, PAGE, PROT_READ) == 0);
    int kernel = madvise(area + 9 * PAGE, 2 * PAGE, MADV_GUARD_INSTALL) == 0;
    for (long i = 0; i < n; i++) {
        CHECK(faults(area + 3 * PAGE + i % PAGE, 0));
        CHECK(!faults(area + 5 * PAGE, 0));
        CHECK(faults(area + 5 * PAGE, 1));
        if (kernel) CHECK(faults(area + 9 * PAGE + i % (2 * PAGE), (int)i & 1));
        uint64_t *word = (uint64_t *)(area + 12 * PAGE) + i % 512;
        *word = *word * 31 + (uint64_t)i;
        work(1);
    }
    // What lies behind a page without access is still there.
    NEED(mprotect(area + 3 * PAGE, PAGE, PROT_READ) == 0);
    add_bytes(area, 9 * PAGE);
    add_bytes(area + 11 * PAGE, (PAGES - 11) * PAGE);
    return finish("guards");
}
