// Private mappings of files: read, changed in part, of a file deleted meanwhile, longer than the
// file's last page; and a library loaded by hand.
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 7000);
    enum { PAGE = 4096, PAGES = 20, BYTES = PAGES * PAGE - 100 };
    char *content = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) content[i] = (char)value_at((uint64_t)i);
    const char *names[] = {"mapped", "mapped-deleted"};
    char *maps[2];
    for (int f = 0; f < 2; f++) {
        // Not written again when it is there: an image holds on to its date.
        int fd = open(names[f], O_RDWR | O_CREAT | O_EXCL, 0600);
        if (fd >= 0) {
            NEED(write(fd, content, BYTES) == BYTES);
            close(fd);
        }
        fd = open(names[f], O_RDONLY);
        NEED(fd >= 0);
        maps[f] = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
        NEED(maps[f] != MAP_FAILED);
        close(fd);
    }
    unlink(names[1]);
    ready();
    for (long i = 0; i < n; i++) {
        for (int f = 0; f < 2; f++) {
            // The first five pages are changed, the others only read.
            maps[f][value_at((uint64_t)i) % (5 * PAGE)] += (char)i;
            uint64_t at = 5 * PAGE + value_at((uint64_t)i + 1) % (BYTES - 5 * PAGE);
            CHECK(maps[f][at] == content[at]);
        }
        CHECK(maps[0][BYTES + 50] == 0);
        if (i % 50 == 0) {
            void *library = dlopen("libm.so.6", RTLD_NOW);
            double (*cosine)(double) = library ? (double (*)(double))dlsym(library, "cos") : NULL;
            CHECK(cosine && cosine(0.0) == 1.0);
            if (library) dlclose(library);
        }
        work(1);
    }
    for (int f = 0; f < 2; f++) add_bytes(maps[f], 5 * PAGE);
    return finish("mapped");
}
