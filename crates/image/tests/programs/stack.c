// Deep recursion with frames of changing size: the stack grows, also after a restore.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t descend(uint64_t h, int depth) {
    volatile unsigned char frame[512 + depth % 1500];
    memset((void *)frame, (int)h, sizeof frame);
    h = h * 6364136223846793005ull + frame[depth % sizeof frame] + 1442695040888963407ull;
    if (depth == 0) return h;
    h = descend(h, depth - 1);
    for (size_t i = 0; i < sizeof frame; i += 64) h ^= (h >> 7) + frame[i];
    return h;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    uint64_t h = 1;
    for (long i = 0; i < rounds; i++) {
        h = descend(h, (int)(100 + (i * 37) % 4000));
        if (i % 50 == 0) fprintf(out, "%ld %016llx\n", i, (unsigned long long)h);
    }
    return fclose(out);
}
