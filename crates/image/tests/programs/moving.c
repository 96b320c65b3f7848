// 64 MiB that is moved, given up, refilled and forked, and checked page by page all the time.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNKS = 64, PAGES = 256, PAGE = 4096, WORDS = PAGE / 8 };
static const size_t bytes = (size_t)PAGES * PAGE;

static uint64_t *chunk[CHUNKS];
static uint64_t version[CHUNKS];
static uint64_t seed = 88172645463325252ull;

static uint64_t next(void) {
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static uint64_t expected(int c, int p) {
    return (c * 1000ull + p + 1) * 0x9e3779b97f4a7c15ull ^ version[c];
}

static void fill(int c, int from) {
    for (int p = from; p < PAGES; p++) {
        chunk[c][p * WORDS] = expected(c, p);
        chunk[c][p * WORDS + WORDS - 1] = ~expected(c, p);
    }
}

static int holds(int c) {
    for (int p = 0; p < PAGES; p++) {
        const uint64_t *page = chunk[c] + p * WORDS;
        if (page[0] != expected(c, p) || page[WORDS - 1] != ~expected(c, p)) return 0;
    }
    return 1;
}

static void fail(const char *what, int c, long round) {
    FILE *out = fopen("bad", "w");
    fprintf(out, "%s: chunk %d, round %ld: %m\n", what, c, round);
    fclose(out);
    exit(1);
}

static void *map(void *at, size_t length, int prot) {
    return mmap(at, length, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    int alone = argc > 2;
    char *all = map(NULL, bytes * CHUNKS, PROT_READ | PROT_WRITE);
    for (int c = 0; c < CHUNKS; c++) {
        chunk[c] = (uint64_t *)(all + c * bytes);
        fill(c, 0);
    }
    close(open("ready", O_CREAT | O_WRONLY, 0600));
    for (long r = 0; r < rounds; r++) {
        int c = next() % CHUNKS;
        switch (next() % 8) {
        case 0: {
            void *to = map(NULL, bytes, PROT_NONE);
            int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
            if (mremap(chunk[c], bytes, bytes, flags, to) != to) fail("mremap", c, r);
            chunk[c] = to;
            break;
        }
        case 1:
            if (madvise(chunk[c] + PAGES / 2 * WORDS, bytes / 2, MADV_DONTNEED))
                fail("madvise", c, r);
            for (size_t i = PAGES / 2 * WORDS; i < bytes / 8; i += WORDS)
                if (chunk[c][i]) fail("given up", c, r);
            fill(c, PAGES / 2);
            break;
        case 2:
            version[c] = next();
            munmap(chunk[c], bytes);
            chunk[c] = map(chunk[c], bytes, PROT_READ | PROT_WRITE);
            if (chunk[c][0]) fail("mapped anew", c, r);
            fill(c, 0);
            break;
        case 3: {
            if (next() % 16 || alone) break;
            pid_t pid = fork();
            if (pid == 0) {
                for (int i = 0; i < CHUNKS; i += 7)
                    if (!holds(i)) fail("forked", i, r);
                _exit(0);
            }
            int status = 0;
            if (pid < 0 || waitpid(pid, &status, 0) != pid || status) fail("fork", c, r);
            break;
        }
        case 4:
            mprotect(chunk[c], bytes / 2, PROT_READ);
            if (!holds(c)) fail("protected", c, r);
            mprotect(chunk[c], bytes / 2, PROT_READ | PROT_WRITE);
            break;
        case 5: {
            // The kernel reads it on our behalf.
            int pipes[2], p = next() % PAGES;
            uint64_t word = 0;
            if (pipe(pipes) || write(pipes[1], &chunk[c][p * WORDS], 8) != 8) fail("pipe", c, r);
            if (read(pipes[0], &word, 8) != 8 || word != expected(c, p))
                fail("read by the kernel", c, r);
            close(pipes[0]), close(pipes[1]);
            break;
        }
        default:
            if (!holds(c)) fail("at rest", c, r);
            version[c] = next();
            fill(c, 0);
        }
    }
    for (int c = 0; c < CHUNKS; c++)
        if (!holds(c)) fail("in the end", c, rounds);
    FILE *out = fopen("out", "w");
    for (int c = 0; c < CHUNKS; c++) fprintf(out, "%016llx\n", (unsigned long long)version[c]);
    return fclose(out);
}
