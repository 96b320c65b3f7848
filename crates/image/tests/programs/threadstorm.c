// Threads are started and end all the time.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define STARTERS 3
#define BATCH 4

static void *leaf(void *arg) {
    uint64_t h = (uint64_t)(uintptr_t)arg;
    for (int i = 0; i < 500; i++) h = (h ^ (uint64_t)i) * 1099511628211ull;
    return (void *)(uintptr_t)h;
}

static long rounds;

static void *starter(void *arg) {
    uint64_t h = (uint64_t)(uintptr_t)arg;
    for (long r = 0; r < rounds; r++) {
        pthread_t threads[BATCH];
        for (int i = 0; i < BATCH; i++) {
            if (pthread_create(&threads[i], NULL, leaf, (void *)(uintptr_t)(h + (uint64_t)i))) abort();
        }
        for (int i = 0; i < BATCH; i++) {
            void *result;
            if (pthread_join(threads[i], &result)) abort();
            h = h * 31 + (uint64_t)(uintptr_t)result;
        }
    }
    return (void *)(uintptr_t)h;
}

int main(int argc, char **argv) {
    pthread_t threads[STARTERS];
    rounds = argc > 1 ? atol(argv[1]) : 1000;
    for (uintptr_t i = 0; i < STARTERS; i++) {
        if (pthread_create(&threads[i], NULL, starter, (void *)(i + 1))) return 2;
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    for (int i = 0; i < STARTERS; i++) {
        void *result;
        if (pthread_join(threads[i], &result)) return 3;
        fprintf(out, "%016llx\n", (unsigned long long)(uintptr_t)result);
    }
    return fclose(out);
}
