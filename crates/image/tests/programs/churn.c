// Memory that changes a little at a time, in every way that memory can: written, dropped, unmapped,
// mapped anew in the same place, moved, protected, grown, zeroed, read into by the kernel. What all
// of it holds goes into a running hash. Without a number of rounds, or with 0, it goes on until there
// is a file "stop". A second number: so many MiB more that do not change.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PAGE 4096ul
#define PAGES 1024ul
#define SLOTS 16

static uint64_t h = 88172645463325252ull;
static uint64_t next(void) {
    h ^= h << 13;
    h ^= h >> 7;
    h ^= h << 17;
    return h;
}

static char *area(size_t pages) {
    char *p = mmap(0, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) exit(2);
    return p;
}

static void fill(char *p, size_t n) {
    for (size_t i = 0; i + 8 <= n; i += 8) memcpy(p + i, &(uint64_t){next()}, 8);
}

static uint64_t sum(const char *p, size_t n, uint64_t s) {
    for (size_t i = 0; i + 8 <= n; i += 8) {
        uint64_t w;
        memcpy(&w, p + i, 8);
        s = (s ^ w) * 1099511628211ull;
    }
    return s;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 0;
    size_t rest = argc > 2 ? strtoul(argv[2], 0, 10) << 20 : 0;
    if (rest) memset(area(rest / PAGE), 7, rest);
    char *base = area(PAGES), *moved = area(64), *slots[SLOTS];
    fill(base, PAGES / 2 * PAGE);  // the other half is never touched, or zeros
    memset(base + PAGES / 4 * 3 * PAGE, 0, 64 * PAGE);
    fill(moved, 64 * PAGE);
    int fd = open("data", O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 8 * PAGE) || pwrite(fd, base, 4 * PAGE, 0) < 0) return 1;
    char *file = mmap(0, 8 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED) return 2;
    for (int i = 0; i < SLOTS; i++) slots[i] = malloc(1000 * (i + 1));
    for (int i = 0; i < SLOTS; i++) fill(slots[i], 1000 * (i + 1));
    FILE *out = fopen("out", "a");  // cut back at restore
    int zero = open("/dev/zero", O_RDONLY);
    if (!out || zero < 0) return 1;
    for (long r = 0; !rounds || r < rounds; r++) {
        char *page = base + next() % PAGES * PAGE;
        switch (next() % 10) {
        case 0: madvise(page, PAGE, MADV_DONTNEED); break;
        case 1: if (read(zero, page, PAGE / 2) != PAGE / 2) return 3; break;
        case 2: memset(page, 0, PAGE); break;
        case 3:  // another mapping in the same place
            if (mmap(page, PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != page) return 4;
            if (r % 2) page[8] = 1;
            break;
        case 4:  // protected pages keep what they hold
            mprotect(page, PAGE, PROT_READ);
            mprotect(page, PAGE, PROT_READ | PROT_WRITE);
            break;
        case 5: {
            char *to = area(64);
            moved = mremap(moved, 64 * PAGE, 64 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
            if (moved == MAP_FAILED) return 5;
            moved[next() % (64 * PAGE)]++;
            break;
        }
        case 6: {
            int i = next() % SLOTS;
            slots[i] = realloc(slots[i], 1000 * (i + 1) + r % 200000);
            fill(slots[i], 64);
            break;
        }
        case 7: file[next() % (8 * PAGE)]++; break;
        case 8: page[next() % PAGE] = (char)next(); page[0] = 7; break;
        default: fill(page, PAGE);
        }
        if (r % 100) continue;
        uint64_t s = sum(base, PAGES * PAGE, 1);
        s = sum(moved, 64 * PAGE, sum(file, 8 * PAGE, s));
        for (int i = 0; i < SLOTS; i++) s = sum(slots[i], 1000 * (i + 1), s);
        fprintf(out, "%ld %016llx\n", r, (unsigned long long)s);
        if (!rounds && !access("stop", F_OK)) break;
    }
    return fclose(out);
}
