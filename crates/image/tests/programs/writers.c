// Shared memory that is written to in every way there is: `writers`. When `step-K` is there it is
// written to in way K, and `done-K` says so; when `stop` is there, all is compared with what it is
// to be, which is known in memory of the program's own.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 24 << 8, WAYS = 11 };
static const size_t BYTES = (size_t)PAGES * PAGE;

static int file;
static unsigned char *anon, *mapped, *anon_is, *file_is;

static void fill(unsigned char *area, unsigned seed) {
    for (size_t i = 0; i < BYTES; i += 8) {
        uint64_t n = (i + seed) * 0x9e3779b97f4a7c15ull;
        n ^= n >> 29;
        memcpy(area + i, &n, 8);
    }
}

static int child(void (*work)(void)) {
    pid_t pid = fork();
    int status = 1;
    if (pid == 0) {
        work();
        _exit(0);
    }
    return pid < 0 || waitpid(pid, &status, 0) != pid ? 1 : status;
}

static void by_child(void) { anon[7 * PAGE + 5] = 0xa1; }

// A mapping of its own, which is gone again.
static void by_other_mapping(void) {
    unsigned char *other = mmap(NULL, PAGE, PROT_WRITE, MAP_SHARED, file, 19 * PAGE);
    if (other == MAP_FAILED) _exit(1);
    other[9] = 0xa2;
    munmap(other, PAGE);
}

static void into_parent(void) {
    char bytes[2 * PAGE];
    memset(bytes, 0xa3, sizeof bytes);
    struct iovec from = {bytes, sizeof bytes}, to = {anon + 30 * PAGE + 100, sizeof bytes};
    if (process_vm_writev(getppid(), &from, 1, &to, 1, 0) != sizeof bytes) _exit(1);
}

static void by_file(void) {
    if (pwrite(file, "child", 5, 41 * PAGE) != 5) _exit(1);
}

static int step(int way) {
    char bytes[3] = "abc";
    void *twice;
    switch (way) {
    case 0:
        anon[3 * PAGE] = anon_is[3 * PAGE] = 0xb0;
        mapped[4 * PAGE] = file_is[4 * PAGE] = 0xb1;
        return 0;
    case 1:
        anon_is[7 * PAGE + 5] = 0xa1;
        return child(by_child);
    case 2:
        file_is[19 * PAGE + 9] = 0xa2;
        return child(by_other_mapping);
    case 3:
        memset(anon_is + 30 * PAGE + 100, 0xa3, 2 * PAGE);
        return child(into_parent);
    case 4:
        memcpy(file_is + 41 * PAGE, "child", 5);
        return child(by_file);
    case 5:
        memcpy(file_is + 50 * PAGE + 4095, bytes, 3);
        return pwrite(file, bytes, 3, 50 * PAGE + 4095) != 3;
    case 6:
        memcpy(file_is + 60 * PAGE, bytes, 3);
        return lseek(file, 60 * PAGE, SEEK_SET) < 0 || write(file, bytes, 3) != 3;
    case 7:
        memset(file_is + 70 * PAGE, 0, 8 * PAGE);
        return fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 70 * PAGE, 8 * PAGE);
    case 8:
        memset(anon_is + 80 * PAGE, 0, 8 * PAGE);
        return madvise(anon + 80 * PAGE, 8 * PAGE, MADV_REMOVE);
    case 9:
        memset(file_is + BYTES - 3 * PAGE - 7, 0, 3 * PAGE + 7);
        return ftruncate(file, BYTES - 3 * PAGE - 7) || ftruncate(file, BYTES);
    case 10:
        // A second mapping of the same pages, in the same process, for a moment.
        anon_is[90 * PAGE + 1] = 0xb2;
        twice = mremap(anon + 90 * PAGE, 0, PAGE, MREMAP_MAYMOVE);
        if (twice == MAP_FAILED) return 1;
        ((unsigned char *)twice)[1] = 0xb2;
        return munmap(twice, PAGE);
    }
    return 1;
}

static int touch(const char *name) {
    int fd = open(name, O_CREAT | O_WRONLY, 0600);
    return fd < 0 || close(fd);
}

int main(void) {
    // Where only parents may write to their children's memory.
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    file = memfd_create("writers", 0);
    if (file < 0 || ftruncate(file, BYTES)) return 2;
    anon = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    mapped = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    anon_is = malloc(BYTES);
    file_is = malloc(BYTES);
    if (anon == MAP_FAILED || mapped == MAP_FAILED || !anon_is || !file_is) return 2;
    fill(anon_is, 1);
    fill(file_is, 2);
    memcpy(anon, anon_is, BYTES);
    memcpy(mapped, file_is, BYTES);
    if (touch("ready")) return 2;
    for (int way = 0; way < WAYS;) {
        char name[32];
        snprintf(name, sizeof name, "step-%d", way);
        if (access(name, F_OK)) continue;
        if (step(way)) return 20 + way;
        snprintf(name, sizeof name, "done-%d", way);
        if (touch(name)) return 2;
        way++;
    }
    while (access("stop", F_OK)) {}
    for (int page = 0; page < PAGES; page++) {
        if (memcmp(anon + (size_t)page * PAGE, anon_is + (size_t)page * PAGE, PAGE)) return 3;
        if (memcmp(mapped + (size_t)page * PAGE, file_is + (size_t)page * PAGE, PAGE)) return 4;
    }
    return 0;
}
