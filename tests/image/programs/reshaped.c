// Files changed in other ways than by write: holes, ranges zeroed, taken out and put in, sizes cut
// below what is mapped, copies made by the kernel, names exchanged. Each change hangs on the one
// before. Asked for by a letter each: links and folders that come and go (a), rights and times (m).
#define _GNU_SOURCE
#include "check.h"
#include <fcntl.h>
#include <linux/falloc.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>

enum { BLOCK = 4096, BLOCKS = 16, BYTES = BLOCK * BLOCKS, LIFE = 40 };

static unsigned char model[BYTES], other[BYTES], back[BYTES];
static sigjmp_buf beyond;

static void fell(int signal) { siglongjmp(beyond, signal); }

static void fill(unsigned char *to, size_t bytes, long i) {
    for (size_t k = 0; k < bytes; k++) to[k] = (unsigned char)value_at((uint64_t)i + k / 8);
}

static int fresh(const char *name) {
    int file = open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0);
    return file;
}

static void holds(int file, const unsigned char *expected, size_t bytes) {
    struct stat now;
    CHECK(fstat(file, &now) == 0 && (size_t)now.st_size == bytes);
    CHECK(pread(file, back, BYTES, 0) == (ssize_t)bytes && !memcmp(back, expected, bytes));
}

// Where the file system does not do it, neither is the model changed.
static void ranges(long i) {
    static int file = -1;
    if (i == 0) {
        file = fresh("ranges");
        fill(model, BYTES, 1);
        CHECK(write(file, model, BYTES) == BYTES);
    }
    size_t at = value_at((uint64_t)i) % (BLOCKS - 1) * BLOCK, rest = BYTES - at - BLOCK;
    off_t from = (off_t)at;
    switch (i % 5) {
    case 0:
        if (fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, from, BLOCK)) break;
        memset(model + at, 0, BLOCK);
        break;
    case 1:
        if (fallocate(file, FALLOC_FL_ZERO_RANGE, from + 100, 1000)) break;
        memset(model + at + 100, 0, 1000);
        break;
    case 2:
        if (fallocate(file, FALLOC_FL_COLLAPSE_RANGE, from, BLOCK)) break;
        memmove(model + at, model + at + BLOCK, rest);
        memset(model + BYTES - BLOCK, 0, BLOCK);
        CHECK(ftruncate(file, BYTES) == 0);
        break;
    case 3:
        if (fallocate(file, FALLOC_FL_INSERT_RANGE, from, BLOCK)) break;
        memmove(model + at + BLOCK, model + at, rest);
        memset(model + at, 0, BLOCK);
        CHECK(ftruncate(file, BYTES) == 0);
        break;
    default:
        fill(model + at, BLOCK, i);
        CHECK(pwrite(file, model + at, BLOCK, from) == BLOCK);
    }
    holds(file, model, BYTES);
}

// A file that is shorter than its mapping, and longer again: beyond its end is SIGBUS.
static void cut_below(long i) {
    static int file = -1;
    static volatile unsigned char *view;
    static size_t blocks = BLOCKS;
    if (i == 0) {
        file = fresh("cut");
        fill(other, BYTES, 2);
        CHECK(write(file, other, BYTES) == BYTES);
        view = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        CHECK(view != MAP_FAILED);
    }
    size_t next = 1 + value_at((uint64_t)i) % BLOCKS;
    CHECK(ftruncate(file, (off_t)(next * BLOCK)) == 0);
    if (next < BLOCKS) memset(other + next * BLOCK, 0, BYTES - next * BLOCK);
    blocks = next;
    size_t at = value_at((uint64_t)i + 7) % (blocks * BLOCK);
    CHECK(view[at] == other[at]);
    view[at] = other[at] = (unsigned char)(other[at] + 1);
    holds(file, other, blocks * BLOCK);
    if (blocks < BLOCKS) {
        int signal = sigsetjmp(beyond, 1);
        if (!signal) CHECK(view[blocks * BLOCK] == 0 && 0);
        CHECK(signal == SIGBUS);
    }
}

// The kernel copies between two files, whose names are exchanged.
static void copied(long i) {
    static int from = -1, to = -1;
    static unsigned char a[BLOCK], b[BLOCK];
    if (i == 0) {
        from = fresh("first"), to = fresh("second");
        fill(a, BLOCK, 3), fill(b, BLOCK, 4);
        CHECK(write(from, a, BLOCK) == BLOCK && write(to, b, BLOCK) == BLOCK);
    }
    size_t at = value_at((uint64_t)i) % 3000, bytes = 1 + value_at((uint64_t)i + 5) % 1000;
    off_t in = (off_t)at, out = (off_t)(at + 50);
    if (i % 2) {
        CHECK(copy_file_range(from, &in, to, &out, bytes, 0) == (ssize_t)bytes);
    } else {
        CHECK(lseek(to, out, SEEK_SET) == out);
        CHECK(sendfile(to, from, &in, bytes) == (ssize_t)bytes);
    }
    memcpy(b + at + 50, a + at, bytes);
    a[at] ^= b[(at + 99) % BLOCK];
    CHECK(pwrite(from, &a[at], 1, (off_t)at) == 1);
    holds(from, a, BLOCK), holds(to, b, BLOCK);
    if (i % 3 == 0) {
        struct stat open_one, named;
        CHECK(fstat(from, &open_one) == 0 && stat("first", &named) == 0);
        CHECK(open_one.st_ino == named.st_ino);
        CHECK(renameat2(AT_FDCWD, "first", AT_FDCWD, "second", RENAME_EXCHANGE) == 0);
        CHECK(fstat(to, &open_one) == 0 && stat("first", &named) == 0);
        CHECK(open_one.st_ino == named.st_ino);
        CHECK(renameat2(AT_FDCWD, "first", AT_FDCWD, "second", RENAME_EXCHANGE) == 0);
    }
}

// Nothing of these is open: names are made and removed.
static void names(long i) {
    static int target = -1;
    char text[64], name[32];
    if (i == 0) target = fresh("target");
    long age = i % LIFE;
    if (age == 0) {
        if (i) {
            CHECK(unlink("soft") == 0 && unlink("hard") == 0 && unlink("pipe") == 0);
            CHECK(rmdir("made/below") == 0 && rmdir("made") == 0);
        }
        snprintf(name, sizeof name, "towards.%ld", i);
        CHECK(symlink(name, "soft") == 0 && link("target", "hard") == 0);
        CHECK(mkfifo("pipe", 0600) == 0);
        CHECK(mkdir("made", 0700) == 0 && mkdir("made/below", 0700) == 0);
    }
    snprintf(name, sizeof name, "towards.%ld", i - age);
    ssize_t n = readlink("soft", text, sizeof text - 1);
    CHECK(n > 0 && (size_t)n == strlen(name) && !memcmp(text, name, (size_t)n));
    struct stat now;
    CHECK(fstat(target, &now) == 0 && now.st_nlink == 2);
    CHECK(lstat("pipe", &now) == 0 && S_ISFIFO(now.st_mode));
    CHECK(access("made/below", F_OK) == 0);
}

// Rights and times.
static void marks(long i) {
    static int file = -1;
    struct stat now;
    if (i == 0) {
        file = fresh("marks");
        CHECK(fchmod(file, 0600) == 0);
    } else {
        CHECK(fstat(file, &now) == 0 && (now.st_mode & 0777) == (i % 2 ? 0600u : 0644u));
        CHECK(now.st_mtim.tv_sec == i - 1);
    }
    CHECK(fchmod(file, i % 2 ? 0644 : 0600) == 0);
    struct timespec times[2] = {{i, 0}, {i, 0}};
    CHECK(futimens(file, times) == 0);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 4000);
    const char *kinds = argc > 2 ? argv[2] : "rck";
    struct sigaction action = {.sa_handler = fell};
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    ready();
    for (long i = 0; i < n; i++) {
        if (strchr(kinds, 'r')) ranges(i);
        if (strchr(kinds, 'c')) cut_below(i);
        if (strchr(kinds, 'k')) copied(i);
        if (strchr(kinds, 'a')) names(i);
        if (strchr(kinds, 'm')) marks(i);
        if (wrong > 15) break;
    }
    add_bytes(model, BYTES);
    add_bytes(other, BYTES);
    return finish("reshaped");
}
