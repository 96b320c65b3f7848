// A region whose parts are protected differently for a while, and which is moved as one afterwards.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PARTS = 4 };
static const size_t bytes = 4 << 20;
static volatile char *all;

static void check(int good, const char *what) {
    if (good) return;
    FILE *out = fopen("bad", "w");
    fprintf(out, "%s: %m\n", what);
    fclose(out);
    exit(1);
}

static char at(int part, size_t offset) {
    return all[part * bytes + offset];
}

static void fill(char *start) {
    check(!mprotect(start, bytes, PROT_READ | PROT_WRITE), "mprotect");
    for (size_t i = 0; i < bytes; i++) start[i] = i * 2654435761u % 241;
}

int main(void) {
    int anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    // Between two pages that are nobody's, so that it has no neighbours. What is before and behind
    // that shares blocks of the image with what is needed first.
    size_t behind = bytes + 4096 + PARTS * bytes + 4096;
    char *place = mmap(NULL, behind + bytes, PROT_NONE, anonymous, -1, 0);
    check(place != MAP_FAILED, "map");
    fill(place), fill(place + behind);
    all = place + bytes + 4096;
    check(!mprotect((char *)all, PARTS * bytes, PROT_READ | PROT_WRITE), "mprotect");
    for (size_t i = 0; i < PARTS * bytes; i++) all[i] = 1 + i * 2654435761u % 251;
    close(open("ready", O_CREAT | O_WRONLY, 0600));
    while (access("go", F_OK)) usleep(1000);
    check(!mprotect((char *)all + bytes, bytes, PROT_READ), "protect");
    size_t middle = bytes / 2;
    // The outer ones first: each is alone when its memory comes.
    check(at(0, middle) != 0, "first part");
    check(at(3, middle) != 0, "last part");
    check(at(1, middle) != 0, "protected part");
    check(!mprotect((char *)all + bytes, bytes, PROT_READ | PROT_WRITE), "let go");
    char *to = mmap(NULL, PARTS * bytes, PROT_NONE, anonymous, -1, 0);
    check(to != MAP_FAILED, "map");
    int flags = MREMAP_MAYMOVE | MREMAP_FIXED;
    check(mremap((char *)all, PARTS * bytes, PARTS * bytes, flags, to) == to, "mremap");
    for (size_t i = 0; i < PARTS * bytes; i++)
        check(to[i] == (char)(1 + i * 2654435761u % 251), "moved");
    return 0;
}
