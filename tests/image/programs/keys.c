// Protection keys: pages under a key whose rights change, a key that was given back. On a processor
// without them the program says so in its exit code.
#define _GNU_SOURCE
#include "check.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>

static sigjmp_buf place;

static void handler(int signal) { siglongjmp(place, signal); }

static int faults(volatile uint64_t *at, int write) {
    int signal = sigsetjmp(place, 1);
    if (signal) return signal == SIGSEGV;
    if (write) *at = 1;
    else (void)*at;
    return 0;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 7000);
    enum { BYTES = 1 << 16, WORDS = BYTES / 8 };
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    uint64_t *area = mmap(NULL, BYTES, rw, flags, -1, 0);
    NEED(area != MAP_FAILED);
    int gone = pkey_alloc(0, 0), key = pkey_alloc(0, 0);
    if (gone < 0 || key < 0) {
        fprintf(stderr, "protection keys (errno %d)\n", errno);
        return 77;
    }
    struct sigaction action = {.sa_handler = handler};
    NEED(sigaction(SIGSEGV, &action, NULL) == 0);
    NEED(pkey_free(gone) == 0 && pkey_mprotect(area, BYTES, rw, key) == 0);
    for (long i = 0; i < n; i++) {
        uint64_t *word = &area[value_at((uint64_t)i) % WORDS];
        *word = *word * 31 + (uint64_t)i;
        add(*word);
        NEED(pkey_set(key, PKEY_DISABLE_WRITE) == 0);
        CHECK(!faults(word, 0));
        work(1);
        CHECK(pkey_get(key) == PKEY_DISABLE_WRITE);
        // A handler has rights of its own, and keeps them when it is left by a jump.
        CHECK(faults(word, 1));
        NEED(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
        CHECK(faults(word, 0));
        NEED(pkey_set(key, 0) == 0);
    }
    add_bytes(area, BYTES);
    return finish("keys");
}
