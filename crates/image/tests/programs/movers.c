// Threads whose memory grows, shrinks, moves and is mapped anew where the kernel likes, and that
// check it page by page all the time: "movers ROUNDS".
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4, CHUNKS = 16, PAGES = 128, PAGE = 4096, WORDS = PAGE / 8 };
static const size_t bytes = (size_t)PAGES * PAGE;

struct chunk {
    uint64_t *at, version;
    size_t length;
};

struct thread {
    struct chunk chunks[CHUNKS];
    uint64_t seed;
    int number;
    pthread_t id;
};

static struct thread threads[THREADS];
static long rounds;

static uint64_t next(struct thread *t) {
    t->seed ^= t->seed << 13;
    t->seed ^= t->seed >> 7;
    t->seed ^= t->seed << 17;
    return t->seed;
}

static uint64_t expected(struct chunk *c, int page) {
    return (page + 1) * 0x9e3779b97f4a7c15ull ^ c->version;
}

static void fill(struct thread *t, struct chunk *c) {
    c->version = next(t);
    for (int p = 0; p < PAGES; p++) c->at[p * WORDS] = expected(c, p);
}

static void fail(const char *what, struct thread *t, int c, long round) {
    FILE *out = fopen("bad", "w");
    fprintf(out, "%s: thread %d, chunk %d, round %ld\n", what, t->number, c, round);
    fclose(out);
    _exit(1);
}

static void check(const char *what, struct thread *t, int i, long round) {
    struct chunk *c = &t->chunks[i];
    for (int p = 0; p < PAGES; p++) {
        if (c->at[p * WORDS] != expected(c, p)) fail(what, t, i, round);
    }
    for (size_t p = PAGES; p < c->length / PAGE; p++) {
        if (c->at[p * WORDS]) fail("what grew", t, i, round);
    }
}

static void map(struct thread *t, struct chunk *c) {
    c->at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (c->at == MAP_FAILED) exit(2);
    c->length = bytes;
    fill(t, c);
}

static void *work(void *arg) {
    struct thread *t = arg;
    for (long r = 0; r < rounds; r++) {
        int i = next(t) % CHUNKS;
        struct chunk *c = &t->chunks[i];
        uint64_t what = next(t) % 8;
        if (what < 5) {
            // Grows or shrinks: what is beyond the first half is zeros.
            size_t length = c->length == bytes ? 2 * bytes : bytes;
            c->at = mremap(c->at, c->length, length, MREMAP_MAYMOVE);
            if (c->at == MAP_FAILED) fail("mremap", t, i, r);
            c->length = length;
            if (what < 2) check("moved", t, i, r);
        } else if (what == 5) {
            munmap(c->at, c->length);
            map(t, c);
        } else if (what == 6) {
            check("at rest", t, i, r);
            fill(t, c);
        } else {
            madvise(c->at, bytes, MADV_DONTNEED);
            fill(t, c);
        }
    }
    for (int i = 0; i < CHUNKS; i++) check("in the end", t, i, rounds);
    return NULL;
}

int main(int argc, char **argv) {
    rounds = argc > 1 ? atol(argv[1]) : 1000;
    for (int i = 0; i < THREADS; i++) {
        threads[i].number = i;
        threads[i].seed = 88172645463325252ull + i;
        for (int c = 0; c < CHUNKS; c++) map(&threads[i], &threads[i].chunks[c]);
    }
    close(open("ready", O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i].id, NULL, work, &threads[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i].id, NULL);
    FILE *out = fopen("out", "w");
    for (int i = 0; i < THREADS; i++) {
        for (int c = 0; c < CHUNKS; c++) {
            fprintf(out, "%016llx\n", (unsigned long long)threads[i].chunks[c].version);
        }
    }
    return fclose(out);
}
