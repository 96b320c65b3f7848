// Heap, stdio to a file, the clock, a growing break: the everyday program.
#define _GNU_SOURCE
#include "check.h"
#include <time.h>

static int zeros[1 << 16], ones[1 << 10] = {1, 2, 3};
static _Thread_local uint64_t local = 42;

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 12000);
    FILE *log = fopen("log", "w+");
    NEED(log);
    char *kept[64] = {0};
    struct timespec before = {0, 0}, now;
    for (long i = 0; i < n; i++) {
        size_t bytes = 1000 + (sum >> 40) % 60000;
        char *p = malloc(bytes);
        memset(p, (int)sum, bytes);
        add_bytes(p, bytes / 8);
        free(kept[i % 64]);
        kept[i % 64] = p;
        zeros[i % (1 << 16)] += (int)i;
        ones[i % (1 << 10)] ^= (int)sum;
        local = local * 31 + sum;
        CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
        CHECK(now.tv_sec > before.tv_sec
              || (now.tv_sec == before.tv_sec && now.tv_nsec >= before.tv_nsec));
        before = now;
        CHECK(fprintf(log, "%ld %016" PRIx64 "\n", i, sum) > 0);
    }
    add_bytes(zeros, sizeof zeros);
    add_bytes(ones, sizeof ones);
    add(local);
    rewind(log);
    char line[64];
    while (fgets(line, sizeof line, log)) add_bytes(line, strlen(line));
    CHECK(fclose(log) == 0);
    return finish("plain");
}
