// Shared anonymous memory (also of a mapping that was split and protected in part), a shared mapping
// of a file that is written through it, and a read-only shared one.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>

enum { PAGES = 64, PAGE = 4096, WORDS = PAGE / 8 };

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 8000);
    int rw = PROT_READ | PROT_WRITE;
    uint64_t *anon = mmap(NULL, PAGES * PAGE, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(anon != MAP_FAILED);
    anon[0] = 4711;
    NEED(mprotect(anon, PAGE, PROT_READ) == 0);
    int fd = open("shared", O_RDWR | O_CREAT, 0600);
    NEED(fd >= 0 && ftruncate(fd, PAGES * PAGE) == 0);
    uint64_t *file = mmap(NULL, PAGES * PAGE, rw, MAP_SHARED, fd, 0);
    const uint64_t *view = mmap(NULL, PAGES * PAGE, PROT_READ, MAP_SHARED, fd, 0);
    NEED(file != MAP_FAILED && view != MAP_FAILED);
    close(fd);
    for (long i = 0; i < n; i++) {
        // The same value at the same place whenever it is done: what a program does after its image
        // was taken reaches the file all the same.
        uint64_t at = (uint64_t)i % (PAGES * WORDS);
        file[at] = value_at(at);
        CHECK(view[at] == value_at(at));
        uint64_t to = WORDS + (uint64_t)i % ((PAGES - 1) * WORDS);
        anon[to] += value_at((uint64_t)i);
        add(anon[to]);
        CHECK(anon[0] == 4711);
        work(1);
    }
    add_bytes(anon, PAGES * PAGE);
    for (long i = 0; i < n && i < PAGES * WORDS; i++) add(file[i]);
    return finish("shared");
}
