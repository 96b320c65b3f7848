// A program with threads that again and again executes itself anew, from one thread or another,
// while its other threads start more; a count is handed on.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char **arguments;
static int by_first;

static void *idle(void *arg) {
    usleep(50);
    return arg;
}

static void *starts(void *arg) {
    pthread_t t;
    for (;;) {
        if (pthread_create(&t, NULL, idle, NULL) == 0) pthread_join(t, NULL);
    }
    return arg;
}

static void *again(void *arg) {
    usleep(300);
    execv("/proc/self/exe", arguments);
    _exit(3);
    return arg;
}

int main(int argc, char **argv) {
    long left = argc > 1 ? atol(argv[1]) : 100;
    unsigned long sum = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    char count[32], total[32];
    pthread_t t;
    if (left == 0) {
        FILE *out = fopen("out", "w");
        if (!out) return 1;
        fprintf(out, "%lu\n", sum);
        return fclose(out);
    }
    snprintf(count, sizeof count, "%ld", left - 1);
    snprintf(total, sizeof total, "%lu", sum * 31 + (unsigned long)left);
    char *next[] = {argv[0], count, total, NULL};
    arguments = next;
    by_first = left % 3 == 0;
    for (int i = 0; i < 3; i++) pthread_create(&t, NULL, starts, NULL);
    if (by_first) again(NULL);
    pthread_create(&t, NULL, again, NULL);
    for (;;) pause();
}
