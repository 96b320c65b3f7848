// What all programs of the matrix share: checks that count, a checksum of all that was seen, work
// by count (never by time), and one line at the end: `NAME CHECKSUM WRONG`.
#ifndef CHECK_H
#define CHECK_H
#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long wrong;
static uint64_t sum = 1469598103934665603ull;

#define CHECK(what)                                                                           \
    do {                                                                                      \
        if (!(what) && __atomic_fetch_add(&wrong, 1, __ATOMIC_RELAXED) < 20)                  \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #what, errno);      \
    } while (0)
// For what the program cannot go on without.
#define NEED(what)                                                                            \
    do {                                                                                      \
        if (!(what)) {                                                                        \
            fprintf(stderr, "%s:%d: needs %s (errno %d)\n", __FILE__, __LINE__, #what, errno);\
            exit(3);                                                                          \
        }                                                                                     \
    } while (0)

static inline void add(uint64_t value) { sum = (sum ^ value) * 1099511628211ull + 1; }

static inline void add_bytes(const void *bytes, size_t n) {
    for (size_t i = 0; i < n; i++) add(((const unsigned char *)bytes)[i]);
}

// A value that only depends on its place.
static inline uint64_t value_at(uint64_t i) {
    i = (i + 0x9e3779b97f4a7c15ull) * 0xbf58476d1ce4e5b9ull;
    i = (i ^ (i >> 27)) * 0x94d049bb133111ebull;
    return i ^ (i >> 31);
}

// Some tens of microseconds of computing for n = 1.
static inline uint64_t work(long n) {
    volatile uint64_t x = 1;
    for (long i = 0; i < n * 10000; i++) x = x * 6364136223846793005ull + 1442695040888963407ull;
    return x;
}

// As many as there are arguments for, or the usual number; more where that turned out too short.
static inline long rounds(int argc, char **argv, long usual) {
    const char *times = getenv("ROUNDS_TIMES");
    long count = (argc > 1 ? atol(argv[1]) : usual) * (times ? atol(times) : 1);
    // A program that becomes another one hands on the number.
    unsetenv("ROUNDS_TIMES");
    return count;
}

// What can be awaited only by looking again ends a hung program after a minute.
#define AWAIT(what)                                                                           \
    do {                                                                                      \
        for (long looks = 0; !(what); looks++) {                                              \
            NEED(looks < 60000);                                                              \
            usleep(1000);                                                                     \
        }                                                                                     \
    } while (0)

// For programs that must not be frozen while they prepare what the outside world sees of them.
static inline void ready(void) {
    FILE *mark = fopen("ready", "w");
    NEED(mark && fclose(mark) == 0);
}

static inline int finish(const char *name) {
    long faults = __atomic_load_n(&wrong, __ATOMIC_RELAXED);
    printf("%s %016" PRIx64 " %ld wrong\n", name, sum, faults);
    return fflush(stdout) || faults ? 1 : 0;
}
#endif
