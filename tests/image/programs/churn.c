// An address space that changes all the time: mapped, unmapped, moved, protected, dropped; the break
// grows and shrinks; memory that is freed and reads as zero.
#define _GNU_SOURCE
#include "check.h"
#include <sys/mman.h>

enum { SLOTS = 24, PAGE = 4096 };
static struct { uint64_t *at; size_t pages; uint64_t seed; } slots[SLOTS];

static void fill(int s) {
    for (size_t p = 0; p < slots[s].pages; p++)
        slots[s].at[p * 512 + slots[s].seed % 512] = value_at(slots[s].seed + p);
}

static void look(int s) {
    for (size_t p = 0; p < slots[s].pages; p++)
        CHECK(slots[s].at[p * 512 + slots[s].seed % 512] == value_at(slots[s].seed + p));
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 4000);
    int rw = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS;
    for (long i = 0; i < n; i++) {
        uint64_t r = value_at((uint64_t)i);
        int s = (int)(r % SLOTS);
        size_t pages = 1 + r / 64 % 40;
        if (slots[s].at && r / 4096 % 4 == 0) {
            look(s);
            CHECK(munmap(slots[s].at, slots[s].pages * PAGE) == 0);
            slots[s].at = NULL;
        } else if (slots[s].at && r / 4096 % 4 == 1) {
            void *moved = mremap(slots[s].at, slots[s].pages * PAGE, pages * PAGE, MREMAP_MAYMOVE);
            CHECK(moved != MAP_FAILED);
            slots[s].at = moved;
            if (pages < slots[s].pages) slots[s].pages = pages;
            look(s);
            slots[s].pages = pages;
            slots[s].seed = r;
            fill(s);
        } else if (slots[s].at && r / 4096 % 4 == 2) {
            CHECK(madvise(slots[s].at, PAGE, MADV_DONTNEED) == 0);
            CHECK(slots[s].at[slots[s].seed % 512] == 0);
            fill(s);
            CHECK(mprotect(slots[s].at, slots[s].pages * PAGE, PROT_READ) == 0);
            look(s);
            CHECK(mprotect(slots[s].at, slots[s].pages * PAGE, rw) == 0);
        } else if (!slots[s].at) {
            slots[s].at = mmap(NULL, pages * PAGE, rw, flags, -1, 0);
            NEED(slots[s].at != MAP_FAILED);
            slots[s].pages = pages;
            slots[s].seed = r;
            fill(s);
        }
        char *end = sbrk(3 * PAGE);
        CHECK(end != (char *)-1 && end[PAGE] == 0);
        end[PAGE] = 1;
        CHECK(sbrk(-3 * PAGE) == end + 3 * PAGE);
        work(1);
    }
    for (int s = 0; s < SLOTS; s++) {
        add(slots[s].at ? slots[s].pages : 0);
        if (slots[s].at) look(s);
    }
    return finish("churn");
}
