// A file that is read and written in place: a record now hangs on what it held before, so one that
// is written twice shows. By descriptor, by a mapping, and by a file that is opened each time.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { RECORDS = 4096 };

static uint64_t next(uint64_t held, long i) { return value_at(held ^ (uint64_t)i) + held; }

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 8000);
    int file = open("records", O_RDWR | O_CREAT | O_TRUNC, 0600);
    int view = open("view", O_RDWR | O_CREAT | O_TRUNC, 0600);
    size_t bytes = RECORDS * sizeof(uint64_t);
    NEED(file >= 0 && view >= 0 && ftruncate(file, (off_t)bytes) == 0);
    NEED(ftruncate(view, (off_t)bytes) == 0);
    uint64_t *mapped = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, view, 0);
    NEED(mapped != MAP_FAILED && close(view) == 0);
    uint64_t *expected = calloc(RECORDS, sizeof *expected);
    NEED(expected);
    ready();
    for (long i = 0; i < n; i++) {
        uint64_t held = 0, at = value_at((uint64_t)i) % RECORDS;
        off_t where = (off_t)(at * sizeof held);
        CHECK(pread(file, &held, sizeof held, where) == sizeof held);
        CHECK(held == expected[at] && mapped[at] == held);
        held = expected[at] = mapped[at] = next(held, i);
        CHECK(pwrite(file, &held, sizeof held, where) == sizeof held);
        // It grows, and is cut.
        if (i % 64 == 0) CHECK(ftruncate(file, (off_t)(bytes + (size_t)(i % 3) * 4096)) == 0);
        work(1);
    }
    for (long i = 0; i < RECORDS; i++) {
        uint64_t held = 0;
        CHECK(pread(file, &held, sizeof held, (off_t)((size_t)i * sizeof held)) == sizeof held);
        CHECK(held == expected[i] && mapped[i] == held);
        add(held);
    }
    struct stat now;
    CHECK(fstat(file, &now) == 0);
    add((uint64_t)now.st_size);
    return finish("inplace");
}
