// Memory of one kind, named by the first argument: what it holds decides about the result, and what
// /proc/self/smaps says of it must stay the same.
#define _GNU_SOURCE
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, HUGE = 2 << 20, MAX = 12 };
static const int RW = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS;
static long wrong, turn;
static struct { unsigned char *at; size_t bytes; int fixed; } areas[MAX];
static int count;
static char seen[MAX][512];

#define CHECK(what) do { if (!(what)) { fprintf(stderr, "turn %ld line %d: %s\n", turn, __LINE__, #what); wrong++; } } while (0)
#define NEED(what) do { if (!(what)) { fprintf(stderr, "line %d: %s (%s)\n", __LINE__, #what, strerror(errno)); exit(2); } } while (0)

// Pages of 4 KiB at addresses of their own, so that neighbours do not join.
static unsigned char *area(size_t bytes, int prot, int flags, int fd) {
    static uintptr_t next = 0x200000000;
    unsigned char *at = mmap((void *)next, bytes, prot, flags | MAP_FIXED_NOREPLACE, fd, 0);
    NEED(at != MAP_FAILED);
    next += (bytes + 3 * HUGE - 1) / HUGE * HUGE;
    areas[count].at = at;
    areas[count++].bytes = bytes;
    return at;
}

// The line of flags, the key and the page size of the mapping at an address.
static void look(const void *at, char *to, size_t bytes) {
    char line[512];
    int here = 0;
    uintptr_t start, end;
    to[0] = 0;
    FILE *maps = fopen("/proc/self/smaps", "r");
    NEED(maps);
    while (fgets(line, sizeof line, maps)) {
        char perms[8];
        if (sscanf(line, "%lx-%lx %7s", &start, &end, perms) == 3) {
            here = start <= (uintptr_t)at && (uintptr_t)at < end;
            if (here) snprintf(to, bytes, "%lx %lx %s ", start, end, perms);
        } else if (here && (!strncmp(line, "VmFlags", 7) || !strncmp(line, "Prot", 4)
                            || !strncmp(line, "Kernel", 6))) {
            strncat(to, line, bytes - strlen(to) - 1);
        }
    }
    fclose(maps);
}

static long locked_kib(void) {
    char line[256];
    long kib = -1;
    FILE *status = fopen("/proc/self/status", "r");
    NEED(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "VmLck: %ld", &kib);
    fclose(status);
    return kib;
}

static sigjmp_buf back;
static void on_fault(int signal) { siglongjmp(back, signal); }

// A handler runs with rights of its own, which a jump out of it keeps.
static int has_keys;
static unsigned rights(void) {
    unsigned a = 0, d = 0;
    if (has_keys) __asm__ volatile(".byte 0x0f, 0x01, 0xee" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}
static void set_rights(unsigned a) {
    if (has_keys) __asm__ volatile(".byte 0x0f, 0x01, 0xef" ::"a"(a), "c"(0), "d"(0));
}

static int faults(volatile unsigned char *p, int write) {
    static volatile unsigned before;
    before = rights();
    if (sigsetjmp(back, 1)) {
        set_rights(before);
        return 1;
    }
    if (write) *p = *p;
    else (void)*p;
    return 0;
}

// Locked memory, and what mlockall says of memory to come.
static long locked;
static void locked_begin(void) {
    unsigned char *a = area(8 * PAGE, RW, PRIVATE, -1);
    NEED(mlock(a, 4 * PAGE) == 0);
    NEED(syscall(SYS_mlock2, a + 5 * PAGE, 2 * PAGE, MLOCK_ONFAULT) == 0);
    area(2 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1);
    NEED(mlock(areas[1].at, 2 * PAGE) == 0);
    NEED(mlockall(MCL_FUTURE | MCL_ONFAULT) == 0);
    locked_kib();
    locked = locked_kib();
}
static int locked_is(long kib) {
    for (int again = 0; again < 4; again++) if (locked_kib() == kib) return 1;
    return 0;
}
static void locked_turn(void) {
    CHECK(locked_is(locked));
    void *new = mmap(NULL, PAGE, RW, PRIVATE, -1, 0);
    CHECK(locked_is(locked + 4));
    munmap(new, PAGE);
}

// Huge pages that the administrator has set aside.
static void huge_begin(void) {
    area(2 * HUGE, RW, PRIVATE | MAP_HUGETLB, -1);
    area(2 * HUGE, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB, -1);
    int fd = memfd_create("huge", MFD_HUGETLB);
    NEED(fd >= 0 && ftruncate(fd, HUGE) == 0);
    area(HUGE, RW, MAP_SHARED, fd);
    area(HUGE, PROT_READ, MAP_SHARED, fd);
    areas[3].fixed = 1;
    // Not a huge page touched.
    area(HUGE, PROT_NONE, PRIVATE | MAP_HUGETLB | MAP_NORESERVE, -1);
    areas[4].fixed = 2;
}
static void huge_turn(void) { CHECK(!memcmp(areas[2].at, areas[3].at, HUGE)); }

// Protection keys: one that denies, one that was freed, and the one of memory only to be executed.
static int keys[3];
static void keys_begin(void) {
    for (int i = 0; i < 3; i++) NEED((keys[i] = pkey_alloc(0, 0)) > 0);
    has_keys = 1;
    unsigned char *a = area(4 * PAGE, RW, PRIVATE, -1);
    unsigned char *b = area(4 * PAGE, RW, PRIVATE, -1);
    memset(b, 7, 4 * PAGE);
    areas[1].fixed = 2;
    unsigned char *code = area(PAGE, RW, PRIVATE, -1);
    code[0] = 0xb8;
    code[1] = 42;
    code[5] = 0xc3;
    areas[2].fixed = 2;
    NEED(mprotect(code, PAGE, PROT_EXEC) == 0);
    NEED(pkey_mprotect(a, 4 * PAGE, RW, keys[0]) == 0 && pkey_mprotect(b, 4 * PAGE, RW, keys[2]) == 0);
    NEED(pkey_free(keys[1]) == 0 && pkey_set(keys[2], PKEY_DISABLE_ACCESS) == 0);
}
static void keys_turn(void) {
    CHECK(pkey_get(keys[0]) == 0 && pkey_get(keys[2]) == PKEY_DISABLE_ACCESS);
    CHECK(faults(areas[1].at, 0) && !faults(areas[0].at, 1));
    pkey_set(keys[2], PKEY_DISABLE_WRITE);
    CHECK(!faults(areas[1].at, 0) && faults(areas[1].at, 1) && areas[1].at[PAGE] == 7);
    pkey_set(keys[2], PKEY_DISABLE_ACCESS);
    CHECK(((int (*)(void))(uintptr_t)areas[2].at)() == 42);
    CHECK(faults(areas[2].at, 0));
    int again = pkey_alloc(0, 0);
    CHECK(again == keys[1]);
    pkey_free(again);
}

// Sealed memory.
static void sealed_begin(void) {
    unsigned char *a = area(4 * PAGE, RW, PRIVATE, -1);
    area(4 * PAGE, RW, MAP_SHARED | MAP_ANONYMOUS, -1);
    for (int i = 0; i < 2; i++) NEED(syscall(462, areas[i].at, 4 * PAGE, 0) == 0);
    (void)a;
}
static void sealed_turn(void) {
    for (int i = 0; i < 2; i++) {
        CHECK(munmap(areas[i].at, PAGE) == -1 && errno == EPERM);
        CHECK(mprotect(areas[i].at, PAGE, PROT_READ) == -1 && errno == EPERM);
    }
}

// A stack of one's own, growing from turn to turn.
static void grows_begin(void) {
    area(64 * PAGE, RW, PRIVATE | MAP_GROWSDOWN | MAP_STACK, -1);
    areas[0].fixed = 3;
    memset(areas[0].at, 3, 64 * PAGE);
}
static void grows_turn(void) {
    static long depth;
    if (turn % 1024 == 0 && depth < 200 * PAGE) {
        depth += PAGE;
        areas[0].at[-depth] = (unsigned char)depth;
    }
    for (long d = PAGE; d <= depth; d += PAGE) CHECK(areas[0].at[-d] == (unsigned char)d);
    CHECK(areas[0].at[turn % (64 * PAGE)] == 3);
}

// Advice of all kinds.
static void advice_begin(void) {
    static const int advices[] = {
        MADV_HUGEPAGE, MADV_NOHUGEPAGE, MADV_DONTDUMP, MADV_DONTFORK, MADV_WIPEONFORK,
        MADV_MERGEABLE, MADV_RANDOM, MADV_SEQUENTIAL,
    };
    for (unsigned i = 0; i < sizeof advices / sizeof *advices; i++) {
        unsigned char *a = area(4 * PAGE, RW, PRIVATE | MAP_NORESERVE, -1);
        // Kernels without same-page merging know nothing of it.
        if (madvise(a, 4 * PAGE, advices[i])) NEED(advices[i] == MADV_MERGEABLE);
    }
    // A page that guards, in the middle.
    unsigned char *a = area(8 * PAGE, RW, PRIVATE, -1);
    if (madvise(a + 5 * PAGE, PAGE, 102) == 0) areas[count - 1].bytes = 5 * PAGE;
}
static void advice_turn(void) {
    unsigned char *a = areas[8].at;
    if (areas[8].bytes == 5 * PAGE) CHECK(faults(a + 5 * PAGE, 0) && !faults(a + 6 * PAGE, 1));
}

static const struct { const char *name; void (*begin)(void), (*turn)(void); } kinds[] = {
    {"locked", locked_begin, locked_turn}, {"huge", huge_begin, huge_turn},
    {"keys", keys_begin, keys_turn},       {"sealed", sealed_begin, sealed_turn},
    {"grows", grows_begin, grows_turn},    {"advice", advice_begin, advice_turn},
};

int main(int argc, char **argv) {
    unsigned kind = 0, all = sizeof kinds / sizeof *kinds;
    while (argc > 1 && kind < all && strcmp(argv[1], kinds[kind].name)) kind++;
    if (argc < 3 || kind == all) return 2;
    struct sigaction action = {.sa_handler = on_fault};
    sigaction(SIGSEGV, &action, NULL);
    kinds[kind].begin();
    char now[512];
    // A text of /proc that is read across a checkpoint is of two processes.
    for (int i = 0; i < count; i++) {
        if (areas[i].fixed == 3) continue;
        do {
            look(areas[i].at, seen[i], sizeof seen[i]);
            look(areas[i].at, now, sizeof now);
        } while (!*now || strcmp(now, seen[i]));
    }
    uint64_t h = 1;
    for (turn = 0; turn < atol(argv[2]); turn++) {
        kinds[kind].turn();
        for (int i = 0; i < count; i++) {
            if (areas[i].fixed >= 2) continue;
            for (size_t k = (size_t)turn % 13 * 64; k < areas[i].bytes; k += 1021) {
                h = (h ^ areas[i].at[k]) * 1099511628211ull;
                if (!areas[i].fixed) areas[i].at[k] = (unsigned char)(h >> 24);
            }
        }
        if (turn % 16 == 0) {
            for (int i = 0; i < count; i++) {
                if (areas[i].fixed == 3) continue;
                for (int again = 0; again < 4; again++) {
                    look(areas[i].at, now, sizeof now);
                    if (!strcmp(now, seen[i])) break;
                }
                if (strcmp(now, seen[i])) {
                    fprintf(stderr, "turn %ld area %d:\n%s%s", turn, i, seen[i], now);
                    wrong++;
                }
            }
        }
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%016llx wrong %ld\n", (unsigned long long)h, wrong);
    return fclose(out) || wrong;
}
