// Files whose names are others than those by which they were opened: one that had none and was given
// one, one whose first name is gone, one that is called as if it were deleted, and one that is only
// mapped. What is written by a descriptor or mapping must be under the name, and what a record
// becomes hangs on what it held.
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { RECORDS = 512, BYTES = RECORDS * 8, FILES = 4 };

static const char *const names[FILES] = {"given", "below/second", "odd (deleted)", "mapped"};

static int opened(const char *first, const char *name) {
    int fd = open(first, O_RDWR | O_CREAT | O_TRUNC, 0600);
    NEED(fd >= 0 && ftruncate(fd, BYTES) == 0);
    unlink(name);
    if (strcmp(first, name)) NEED(link(first, name) == 0 && unlink(first) == 0);
    return fd;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    char path[64];
    int files[FILES];
    mkdir("below", 0700);
    NEED((files[0] = open(".", O_RDWR | O_TMPFILE, 0600)) >= 0 && ftruncate(files[0], BYTES) == 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", files[0]);
    unlink(names[0]);
    NEED(linkat(AT_FDCWD, path, AT_FDCWD, names[0], AT_SYMLINK_FOLLOW) == 0);
    files[1] = opened("first", names[1]);
    NEED((files[2] = open(names[2], O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    NEED(ftruncate(files[2], BYTES) == 0);
    files[3] = opened("before", names[3]);
    uint64_t *view = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, files[3], 0);
    NEED(view != MAP_FAILED && close(files[3]) == 0);
    ready();
    for (long i = 0; i < n; i++) {
        int f = (int)(i % FILES);
        uint64_t held = 0, found = 1, at = value_at((uint64_t)i) % RECORDS;
        struct stat there, here;
        int named = open(names[f], O_RDONLY);
        CHECK(named >= 0 && pread(named, &held, 8, (off_t)at * 8) == 8);
        held = value_at(held ^ (uint64_t)i) + held;
        if (f == FILES - 1) view[at] = held;
        else CHECK(pwrite(files[f], &held, 8, (off_t)at * 8) == 8);
        CHECK(pread(named, &found, 8, (off_t)at * 8) == 8 && found == held);
        if (f < FILES - 1) {
            CHECK(fstat(named, &there) == 0 && fstat(files[f], &here) == 0);
            CHECK(there.st_ino == here.st_ino && here.st_nlink == 1);
        }
        close(named);
        work(1);
    }
    for (int f = 0; f < FILES; f++) {
        uint64_t records[RECORDS];
        int named = open(names[f], O_RDONLY);
        CHECK(named >= 0 && read(named, records, BYTES) == BYTES);
        add_bytes(records, BYTES);
    }
    return finish("linked");
}
