// Files mapped privately and shared, one of them deleted: at once, as a freeze before that could not
// be restored afterwards.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 1 << 20 };

static unsigned char *map_file(const char *name, int seed, int flags, int deleted) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (deleted) unlink(name);
    unsigned char *bytes = malloc(BYTES);
    for (int i = 0; i < BYTES; i++) bytes[i] = (unsigned char)((i * seed) >> 3);
    if (write(fd, bytes, BYTES) != BYTES) exit(3);
    free(bytes);
    unsigned char *m = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, flags, fd, 0);
    close(fd);
    return m;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 200;
    unsigned char *a = map_file("private", 77, MAP_PRIVATE, 0);
    unsigned char *b = map_file("shared", 99, MAP_SHARED, 0);
    unsigned char *c = map_file("deleted", 55, MAP_PRIVATE, 1);
    close(open("begun", O_WRONLY | O_CREAT, 0600));
    uint64_t h = 1;
    for (long r = 0; r < rounds; r++) {
        for (int i = 0; i < BYTES; i += 3) {
            h = (h ^ a[i] ^ c[BYTES - 1 - i]) * 1099511628211ull;
            if (i / 4096 % 3 == 0) a[i] = (unsigned char)(h >> 20);
            if (i / 4096 % 5 == 0) c[i] = (unsigned char)(h >> 30);
        }
        // What is written to a shared file is outside the image: only what does not depend on it.
        b[r % BYTES] = (unsigned char)r;
        h ^= b[r % BYTES];
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%016llx\n", (unsigned long long)h);
    return fclose(out);
}
