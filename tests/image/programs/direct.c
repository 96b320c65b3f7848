// Files read past the page cache (O_DIRECT): the device writes into pages that the kernel has pinned
// for it, which no page table tells. Two threads read all the time; each block is looked at when it
// was read, and again later.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>

enum { BLOCK = 256 << 10, BLOCKS = 8, SLOTS = 16, THREADS = 2 };
static int file;
static struct { unsigned char *at; int holds; } slots[THREADS][SLOTS];
static long count;

static uint64_t word(int block, size_t i) { return value_at((uint64_t)block * BLOCK + i); }

static void look(int t, int s) {
    const uint64_t *at = (const uint64_t *)slots[t][s].at;
    if (slots[t][s].holds < 0) return;
    for (size_t i = 0; i < BLOCK / 8; i += 61) CHECK(at[i] == word(slots[t][s].holds, i));
}

static void *reader(void *which) {
    int t = (int)(intptr_t)which;
    for (long i = 0; i < count; i++) {
        uint64_t r = value_at((uint64_t)(i * THREADS + t));
        int s = (int)(r % SLOTS), block = (int)(r / SLOTS % BLOCKS);
        ssize_t n = pread(file, slots[t][s].at, BLOCK, (off_t)block * BLOCK);
        CHECK(n == BLOCK);
        slots[t][s].holds = block;
        look(t, s);
        look(t, (int)(r / 4096 % SLOTS));
    }
    return NULL;
}

int main(int argc, char **argv) {
    count = rounds(argc, argv, 600);
    file = open("blocks", O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    if (file < 0 && errno == EINVAL) {
        fprintf(stderr, "the file system does not read past the page cache\n");
        return 77;
    }
    NEED(file >= 0);
    uint64_t *block = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    NEED(block != MAP_FAILED);
    for (int b = 0; b < BLOCKS; b++) {
        for (size_t i = 0; i < BLOCK / 8; i++) block[i] = word(b, i);
        NEED(pwrite(file, block, BLOCK, (off_t)b * BLOCK) == BLOCK);
    }
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
        for (int s = 0; s < SLOTS; s++) {
            slots[t][s].at = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            NEED(slots[t][s].at != MAP_FAILED);
            slots[t][s].holds = -1;
        }
    }
    ready();
    for (int t = 0; t < THREADS; t++)
        NEED(pthread_create(&threads[t], NULL, reader, (void *)(intptr_t)t) == 0);
    for (int t = 0; t < THREADS; t++) pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++) {
        for (int s = 0; s < SLOTS; s++) {
            look(t, s);
            add((uint64_t)slots[t][s].holds);
        }
    }
    return finish("direct");
}
