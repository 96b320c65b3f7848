// Many threads that do nothing, and a first one that ends the program when the file `go` is there.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 60 };

static void *rest(void *unused) {
    for (;;) pause();
    return unused;
}

int main(void) {
    for (int i = 0; i < THREADS; i++) {
        pthread_t id;
        if (pthread_create(&id, NULL, rest, NULL)) return 2;
    }
    fclose(fopen("ready", "w"));
    while (access("go", F_OK)) {}
    _exit(7);
}
