// Memory policies of threads and mappings, and switches that are seldom used: looked at again and
// again. What this kernel does not have is left out, before and after.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PREFERRED = 1, BIND = 2, INTERLEAVE = 3, LOCAL = 4, STATIC = 1 << 15, ADDRESS = 2 };
enum { BYTES = 1 << 16, MAPS = 6 };
static atomic_int done, wrong, ready;
// Only the first thread has set its switches.
static int apart;
static char *maps[MAPS];
static const unsigned long node = 1;

static void tell(char *to, size_t bytes, const char *name, void *at) {
    int mode = -1;
    unsigned long nodes[17] = {0};
    long r = syscall(SYS_get_mempolicy, &mode, nodes, 1025, at, at ? ADDRESS : 0);
    size_t n = strlen(to);
    snprintf(to + n, bytes - n, " %s %ld %x %lx", name, r, mode, nodes[0]);
}

static void compare(const char *before, const char *now) {
    if (!strcmp(before, now)) return;
    fprintf(stderr, "was %s\nis  %s\n", before, now);
    wrong++;
}

static void look(char *to, size_t bytes) {
    char line[32] = "";
    int tsc = 0;
    *to = 0;
    tell(to, bytes, "own", NULL);
    for (int i = 0; i < MAPS; i++) tell(to, bytes, "map", maps[i] + BYTES / 2);
    // Beside it there is none.
    tell(to, bytes, "stack", line);
    FILE *f = fopen("/proc/self/coredump_filter", "r");
    if (f) {
        if (!fgets(line, sizeof line, f)) wrong++;
        fclose(f);
    }
    prctl(PR_GET_TSC, &tsc);
    size_t n = strlen(to);
    if (apart) return;
    snprintf(to + n, bytes - n, " core %s thp %d mce %d spec %d %d merge %d code %d tsc %d", line,
             prctl(42, 0, 0, 0, 0), prctl(34, 0, 0, 0, 0), prctl(52, 0, 0, 0, 0),
             prctl(52, 1, 0, 0, 0), prctl(68, 0, 0, 0, 0), prctl(66, 0, 0, 0, 0), tsc);
}

static void tell_own(char *to, size_t bytes) {
    int tsc = 0;
    tell(to, bytes, "thread", NULL);
    prctl(PR_GET_TSC, &tsc);
    size_t n = strlen(to);
    snprintf(to + n, bytes - n, " mce %d spec %d tsc %d", prctl(34, 0, 0, 0, 0),
             prctl(52, 0, 0, 0, 0), tsc);
}

static void set_own(void) {
    prctl(33, 1, 1, 0, 0);     // PR_MCE_KILL, early
    prctl(53, 0, 4, 0, 0);     // PR_SET_SPECULATION_CTRL, store bypass, off
    prctl(53, 1, 8, 0, 0);     // indirect branches, off for good
}

static void *worker(void *arg) {
    char before[256] = "", now[256];
    int which = (int)(intptr_t)arg;
    if (which == 1) syscall(SYS_set_mempolicy, PREFERRED, &node, 64);
    if (which == 2) syscall(SYS_set_mempolicy, 0, NULL, 0);
    tell_own(before, sizeof before);
    ready++;
    while (!done) {
        *now = 0;
        tell_own(now, sizeof now);
        compare(before, now);
        usleep(500);
    }
    return arg;
}

static char *map(int flags) {
    char *at = mmap(NULL, 3 * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) exit(2);
    flags |= MAP_FIXED | MAP_ANONYMOUS;
    at = mmap(at + BYTES, BYTES, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) exit(2);
    return at;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100;
    static char before[4096], now[4096];
    pthread_t threads[3];
    for (int i = 0; i < MAPS; i++) maps[i] = map(i == 3 ? MAP_SHARED : MAP_PRIVATE);
    madvise(maps[4], BYTES, MADV_DONTFORK);
    syscall(SYS_mbind, maps[0], BYTES, BIND, &node, 64, 0);
    syscall(SYS_mbind, maps[1], BYTES, INTERLEAVE | STATIC, &node, 64, 0);
    syscall(SYS_mbind, maps[2], BYTES, LOCAL, NULL, 0, 0);
    syscall(SYS_mbind, maps[3], BYTES, BIND, &node, 64, 0);
    syscall(SYS_mbind, maps[4], BYTES, PREFERRED, &node, 64, 0);
    for (int i = 0; i < MAPS; i++) memset(maps[i], i + 1, BYTES);
    syscall(SYS_set_mempolicy, INTERLEAVE, &node, 64);
    FILE *f = fopen("/proc/self/coredump_filter", "w");
    if (f) {
        fputs("0x25", f);
        fclose(f);
    }
    prctl(41, 1, 2, 0, 0);     // PR_SET_THP_DISABLE, except where advised
    apart = argc > 2;
    if (!apart) set_own();
    prctl(67, 1, 0, 0, 0);     // PR_SET_MEMORY_MERGE
    // PR_SET_MDWE, not for children where it can be
    if (prctl(65, 3, 0, 0, 0)) prctl(65, 1, 0, 0, 0);
    for (intptr_t i = 0; i < 3; i++) pthread_create(&threads[i], NULL, worker, (void *)i);
    while (ready < 3) usleep(100);
    if (apart) set_own();
    look(before, sizeof before);
    for (long r = 0; r < rounds; r++) {
        look(now, sizeof now);
        compare(before, now);
        for (int i = 0; i < MAPS; i++) wrong += maps[i][r % BYTES] != i + 1;
    }
    done = 1;
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%s wrong %d\n", before, wrong);
    return fclose(out) || wrong;
}
