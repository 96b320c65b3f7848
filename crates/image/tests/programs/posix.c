// Named shared memory and semaphores: what they hold decides about the result, so that content of
// another moment shows. "alone ROUNDS NAME", "pair ROUNDS NAME" (a parent and its child),
// "hold NAME" (has the segment mapped and does nothing).
#define _GNU_SOURCE
#include "check.h"
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum { PAGE = 4096, BYTES = 256 * PAGE };
static char names[4][80];

static unsigned char *segment(const char *name, int *fd, int flags) {
    *fd = shm_open(name, O_RDWR | flags, 0640);
    if (*fd < 0 || (flags && ftruncate(*fd, BYTES))) exit(2);
    void *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (p == MAP_FAILED) exit(2);
    return p;
}

static sem_t *semaphore(const char *name) {
    sem_t *s = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    if (s == SEM_FAILED) exit(2);
    return s;
}

static void say_ready(void) {
    FILE *ready = fopen("ready", "w");
    fprintf(ready, "ready\n");
    fclose(ready);
}

static uint64_t mix(uint64_t h, unsigned char *bytes, long r) {
    for (int i = (int)(r % 97); i < BYTES; i += 997) {
        h = (h ^ bytes[i]) * 1099511628211ull;
        // Every third page is never touched.
        if (i / PAGE % 3 != 1) bytes[i] = (unsigned char)(h >> 24);
    }
    return h;
}

// What the file behind a semaphore's name holds.
static int value_of(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "/dev/shm/sem.%s", name + 1);
    int fd = open(path, O_RDONLY), value = -1;
    CHECK(fd >= 0 && read(fd, &value, sizeof value) == sizeof value);
    close(fd);
    return value;
}

// Says once which pages of two views differ, and what the page map says of them (bit 61: of the file).
static void say_differing(const unsigned char *view, const unsigned char *other) {
    static int said;
    int map = open("/proc/self/pagemap", O_RDONLY);
    for (long page = 0; page < BYTES / PAGE; page++) {
        uint64_t entry = 0;
        if (!memcmp(view + page * PAGE, other + page * PAGE, PAGE) || said++ > 20) continue;
        pread(map, &entry, sizeof entry, (off_t)((uintptr_t)view / PAGE + (uintptr_t)page) * 8);
        fprintf(stderr, "page %ld differs, page map %llx\n", page, (unsigned long long)entry);
    }
    close(map);
}

static void alone(long rounds) {
    int fd, closed;
    unsigned char *bytes = segment(names[0], &fd, O_CREAT | O_EXCL);
    unsigned char *other = segment(names[1], &closed, O_CREAT | O_EXCL);
    close(closed);
    int reader = shm_open(names[0], O_RDONLY, 0);
    unsigned char *view = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, reader, 0);
    unsigned char *own = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, reader, 0);
    own[7 * PAGE] = 99;
    lseek(reader, 77, SEEK_SET);
    sem_t *s = semaphore(names[2]);
    say_ready();
    uint64_t h = 1;
    int count = 0;
    for (long r = 0; r < rounds; r++) {
        h = mix(mix(h, bytes, r), other, r + 1);
        CHECK(!memcmp(view, bytes, BYTES) && own[7 * PAGE] == 99);
        // A private view shows what others write to pages that it has no copy of.
        int same = !memcmp(own, bytes, 7 * PAGE) && !memcmp(own + 8 * PAGE, bytes + 8 * PAGE, PAGE);
        CHECK(same);
        if (!same) say_differing(own, bytes);
        // It grows and shrinks behind what is mapped, and gets holes.
        off_t size = BYTES + r % 5 * 1000;
        CHECK(!ftruncate(reader < 0 ? -1 : fd, size));
        if (r % 50 == 0) CHECK(!fallocate(fd, 3, r % 256 * PAGE, PAGE));
        int up = h % 3 != 0 || count == 0, value = -1;
        CHECK(up ? !sem_post(s) : !sem_trywait(s));
        count += up ? 1 : -1;
        CHECK(!sem_getvalue(s, &value) && value == count);
        struct stat a, b;
        CHECK(!fstat(fd, &a) && a.st_size == size && !fstat(reader, &b) && b.st_size == size);
        CHECK(lseek(reader, 0, SEEK_CUR) == 77 && (a.st_mode & 0777) == 0640);
    }
    // The names lead to what is mapped.
    CHECK(value_of(names[2]) == count && !sem_post(s) && value_of(names[2]) == count + 1);
    int again;
    unsigned char *fresh = segment(names[0], &again, 0);
    fresh[5] ^= 0x55;
    CHECK(fresh[5] == bytes[5]);
    fresh = segment(names[1], &again, 0);
    fresh[5] ^= 0x55;
    CHECK(fresh[5] == other[5]);
    FILE *out = fopen("out", "w");
    fprintf(out, "%016llx %d wrong %ld\n", (unsigned long long)h, count, wrong);
    fclose(out);
}

static uint64_t take_turns(sem_t *mine, sem_t *theirs, unsigned char *bytes, long rounds) {
    uint64_t h = 1;
    for (long r = 0; r < rounds; r++) {
        while (sem_wait(mine)) CHECK(errno == EINTR);
        h = mix(h, bytes, r);
        CHECK(!sem_post(theirs));
    }
    return h;
}

static void pair(long rounds) {
    int fd;
    unsigned char *bytes = segment(names[0], &fd, O_CREAT | O_EXCL);
    close(fd);
    sem_t *ours = semaphore(names[2]), *theirs = semaphore(names[3]);
    pid_t child = fork();
    if (child == 0) {
        // By name, like a program of its own.
        bytes = segment(names[0], &fd, 0);
        sem_t *mine = sem_open(names[3], 0);
        take_turns(mine, ours, bytes, rounds);
        _exit(wrong != 0);
    }
    CHECK(!sem_post(ours));
    say_ready();
    uint64_t h = take_turns(ours, theirs, bytes, rounds);
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    // The child's last one is left.
    CHECK(value_of(names[3]) == 0 && !sem_post(ours) && value_of(names[2]) == 2);
    FILE *out = fopen("out", "w");
    fprintf(out, "%016llx wrong %ld\n", (unsigned long long)h, wrong);
    fclose(out);
}

int main(int argc, char **argv) {
    if (argc < 3) return 2;
    long rounds = atol(argv[2]);
    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "/%s.%d", argc > 3 ? argv[3] : argv[2], i);
    }
    if (!strcmp(argv[1], "hold")) {
        int fd;
        segment(names[0], &fd, 0);
        close(fd);
        say_ready();
        for (;;) pause();
    }
    for (int i = 0; i < 4; i++) i < 2 ? shm_unlink(names[i]) : sem_unlink(names[i]);
    if (!strcmp(argv[1], "pair")) pair(rounds); else alone(rounds);
    for (int i = 0; i < 4; i++) i < 2 ? shm_unlink(names[i]) : sem_unlink(names[i]);
    return 0;
}
