// Memory files: written and mapped, sealed, with an offset; a mapping whose descriptor is closed.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    enum { BYTES = 1 << 17, WORDS = BYTES / 8 };
    int rw = PROT_READ | PROT_WRITE, seals = F_SEAL_SHRINK | F_SEAL_GROW;
    int file = memfd_create("matrix", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int gone = memfd_create("mapped only", 0);
    NEED(file >= 0 && gone >= 0 && !ftruncate(file, BYTES) && !ftruncate(gone, BYTES));
    NEED(fcntl(file, F_ADD_SEALS, seals) == 0);
    uint64_t *seen = mmap(NULL, BYTES, rw, MAP_SHARED, file, 0);
    uint64_t *kept = mmap(NULL, BYTES, rw, MAP_SHARED, gone, 0);
    uint64_t *copy = mmap(NULL, BYTES, rw, MAP_PRIVATE, gone, 0);
    NEED(seen != MAP_FAILED && kept != MAP_FAILED && copy != MAP_FAILED && close(gone) == 0);
    kept[WORDS - 1] = 77;
    copy[0] = 88;
    for (long i = 0; i < n; i++) {
        uint64_t word = value_at((uint64_t)i);
        if (lseek(file, 0, SEEK_CUR) == BYTES) CHECK(lseek(file, 0, SEEK_SET) == 0);
        off_t at = lseek(file, 0, SEEK_CUR);
        CHECK(at == (off_t)(i % WORDS) * 8);
        CHECK(write(file, &word, 8) == 8 && seen[at / 8] == word);
        CHECK(ftruncate(file, BYTES * 2) == -1 && errno == EPERM);
        CHECK(fcntl(file, F_GET_SEALS) == seals);
        kept[i % (WORDS - 1)] += word;
        CHECK(copy[0] == 88);
        add(kept[(i * 7) % (WORDS - 1)]);
        work(1);
    }
    add_bytes(seen, BYTES);
    add_bytes(kept, BYTES);
    return finish("memfds");
}
