// Temporary files that have names: made, filled, read, removed, as a database does; one that is only
// mapped and read, of which somebody might clean up; one in a folder that goes, too.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { WORDS = 2048, LIFE = 100 };

static int fresh(const char *name, uint64_t *from) {
    int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0 && write(file, from, WORDS * sizeof *from) == WORDS * sizeof *from);
    return file;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    static uint64_t words[WORDS], back[WORDS];
    const size_t bytes = sizeof words;
    const uint64_t *view = NULL;
    int file = -1, below = -1;
    ready();
    for (long i = 0; i < n; i++) {
        if (i % LIFE == 0) {
            char name[32];
            if (i) {
                snprintf(name, sizeof name, "scratch.%ld", i / LIFE - 1);
                CHECK(unlink(name) == 0 && close(file) == 0);
                CHECK(munmap((void *)view, bytes) == 0 && unlink("seen") == 0);
                CHECK(unlink("folder/below") == 0 && close(below) == 0 && rmdir("folder") == 0);
            }
            for (int k = 0; k < WORDS; k++) words[k] = value_at((uint64_t)(i + k));
            snprintf(name, sizeof name, "scratch.%ld", i / LIFE);
            file = fresh(name, words);
            int seen = fresh("seen", words);
            CHECK(close(seen) == 0 && (seen = open("seen", O_RDONLY)) >= 0);
            view = mmap(NULL, bytes, PROT_READ, MAP_SHARED, seen, 0);
            CHECK(view != MAP_FAILED && close(seen) == 0);
            CHECK(mkdir("folder", 0700) == 0);
            below = fresh("folder/below", words);
        }
        int at = (int)(value_at((uint64_t)i) % WORDS);
        words[at] += (uint64_t)i;
        CHECK(pwrite(file, &words[at], sizeof *words, (off_t)(at * 8)) == sizeof *words);
        CHECK(pread(file, back, bytes, 0) == (ssize_t)bytes && !memcmp(back, words, bytes));
        CHECK(pread(below, back, 8, (off_t)(at * 8)) == 8 && back[0] == view[at]);
        add(view[at]);
        add(words[at]);
    }
    return finish("scratch");
}
