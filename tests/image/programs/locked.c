// Locked memory: a range, a range locked on fault, and how much the kernel says is locked.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

static long locked_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    while (status && fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
    if (status) fclose(status);
    return kib;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 4000);
    enum { PAGE = 4096, PAGES = 16 };
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t *area = mmap(NULL, PAGES * PAGE, rw, flags, -1, 0);
    NEED(area != MAP_FAILED);
    // 48 KiB in all: below the limit of an unprivileged process on the oldest kernels.
    NEED(mlock(area, 8 * PAGE) == 0);
    NEED(mlock2((char *)area + 8 * PAGE, 4 * PAGE, MLOCK_ONFAULT) == 0);
    for (long i = 0; i < n; i++) {
        area[i % (PAGES * PAGE / 8)] += value_at((uint64_t)i);
        CHECK(locked_kib() == 48);
        work(1);
    }
    add_bytes(area, PAGES * PAGE);
    CHECK(munlock(area, PAGES * PAGE) == 0);
    CHECK(locked_kib() == 0);
    return finish("locked");
}
