// Processes that share more memory than is copied while they stand still: written through mappings
// of three processes in turn, through a descriptor, and by children that come and go; pages of it
// are given back and are zeros again.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>
#include <sys/wait.h>

// What is filled once is as much as is not copied at a freeze; little of it changes afterwards.
enum { PAGE = 4096, WORDS = PAGE / 8, FILLED = 49 << 8, BUSY = 48, HELPERS = 2, EVERY = 50 };

static uint64_t *common, *object;
static int file;

// One process's turn: what it does depends on all turns before.
static void turn(long i, int who) {
    uint64_t at = (uint64_t)i * (HELPERS + 1) + (uint64_t)who;
    uint64_t *word = common + (at * 7 % BUSY) * 256 * WORDS + at % WORDS;
    *word = *word * 31 + value_at(at);
    uint64_t mixed = object[at % WORDS] ^ *word;
    CHECK(pwrite(file, &mixed, 8, (off_t)(at * 13 % (4 * WORDS) * 8)) == 8);
    work(1);
}

static void help(int in, int out, int who) {
    uint64_t i;
    while (read(in, &i, 8) == 8) {
        turn((long)i, who);
        if (write(out, &i, 8) != 8) _exit(8);
    }
    _exit(wrong ? 1 : 10 + who);
}

// A child that writes and is gone before anybody has seen it.
static void passing(long i) {
    int status;
    pid_t child = fork();
    NEED(child >= 0);
    if (!child) {
        common[(uint64_t)i % BUSY * 256 * WORDS + WORDS / 2] += value_at((uint64_t)i);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 1200);
    int rw = PROT_READ | PROT_WRITE, to[HELPERS][2], from[HELPERS][2], status;
    pid_t helpers[HELPERS];
    common = mmap(NULL, (size_t)FILLED * PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    file = memfd_create("sharing", MFD_CLOEXEC);
    NEED(common != MAP_FAILED && file >= 0 && ftruncate(file, 64 * PAGE) == 0);
    object = mmap(NULL, 64 * PAGE, rw, MAP_SHARED, file, 0);
    NEED(object != MAP_FAILED);
    // Every other page holds nothing but is there.
    for (long page = 0; page < FILLED; page++) {
        uint64_t *at = common + page * WORDS;
        at[0] = 0;
        if (page % 2) at[1] = value_at((uint64_t)page);
    }
    for (int h = 0; h < HELPERS; h++) NEED(!pipe(to[h]) && !pipe(from[h]));
    for (int h = 0; h < HELPERS; h++) {
        NEED((helpers[h] = fork()) >= 0);
        if (helpers[h]) continue;
        for (int o = 0; o < HELPERS; o++) {
            close(to[o][1]);
            close(from[o][0]);
        }
        help(to[h][0], from[h][1], h + 1);
    }
    for (int h = 0; h < HELPERS; h++) NEED(!close(to[h][0]) && !close(from[h][1]));
    ready();
    for (long i = 0; i < n; i++) {
        turn(i, 0);
        for (int h = 0; h < HELPERS; h++) {
            uint64_t word = (uint64_t)i, answer = 0;
            CHECK(write(to[h][1], &word, 8) == 8);
            CHECK(read(from[h][0], &answer, 8) == 8 && answer == word);
        }
        if (i % EVERY == 0) passing(i);
        if (i % EVERY == 7) {
            // Pages in the middle are given back.
            size_t page = (size_t)(BUSY * 256 + i % 128);
            CHECK(madvise((char *)common + page * PAGE, PAGE, MADV_REMOVE) == 0);
            CHECK(common[page * WORDS + 1] == 0);
        }
        add(object[(uint64_t)i % (4 * WORDS)]);
    }
    for (int h = 0; h < HELPERS; h++) {
        close(to[h][1]);
        CHECK(waitpid(helpers[h], &status, 0) == helpers[h] && WEXITSTATUS(status) == 11 + h);
    }
    for (long i = 0; i < (long)FILLED * WORDS; i++) if (common[i]) add(common[i] + (uint64_t)i);
    add_bytes(object, 64 * PAGE);
    return finish("sharing");
}
