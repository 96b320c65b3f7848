// Pairs of threads that hand a number to and fro by mutex and condition variable.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define PAIRS 4

struct pair {
    pthread_mutex_t mutex;
    pthread_cond_t turned;
    int turn;
    uint64_t value;
    long rounds;
};

struct player {
    struct pair *pair;
    int side;
    uint64_t sum;
};

static __thread uint64_t own;

static void *play(void *arg) {
    struct player *p = arg;
    struct pair *pair = p->pair;
    for (long i = 0; i < pair->rounds; i++) {
        pthread_mutex_lock(&pair->mutex);
        while (pair->turn != p->side) pthread_cond_wait(&pair->turned, &pair->mutex);
        pair->value = pair->value * 6364136223846793005ull + (uint64_t)p->side + 1442695040888963407ull;
        own = (own ^ pair->value) * 1099511628211ull;
        pair->turn = !p->side;
        pthread_cond_signal(&pair->turned);
        pthread_mutex_unlock(&pair->mutex);
    }
    p->sum = own;
    return p;
}

int main(int argc, char **argv) {
    static struct pair pairs[PAIRS];
    static struct player players[2 * PAIRS];
    pthread_t threads[2 * PAIRS];
    long rounds = argc > 1 ? atol(argv[1]) : 10000;
    for (int i = 0; i < 2 * PAIRS; i++) {
        struct pair *pair = &pairs[i / 2];
        if (i % 2 == 0) {
            pthread_mutex_init(&pair->mutex, NULL);
            pthread_cond_init(&pair->turned, NULL);
            pair->value = (uint64_t)i;
            pair->rounds = rounds;
        }
        players[i] = (struct player){pair, i % 2, 0};
        if (pthread_create(&threads[i], NULL, play, &players[i])) return 2;
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    for (int i = 0; i < 2 * PAIRS; i++) {
        void *back;
        if (pthread_join(threads[i], &back) || back != &players[i]) return 3;
        fprintf(out, "%d %016llx\n", i, (unsigned long long)players[i].sum);
    }
    return fclose(out);
}
