// Children that the program waits for: workers fed through pipes, one that has ended and was not
// collected, a grandchild, a process group; memory shared with them.
#define _GNU_SOURCE
#include "check.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { WORKERS = 3 };

static void serve(int in, int out, int me) {
    uint64_t word, state = value_at((uint64_t)me);
    pid_t parent = getppid();
    while (read(in, &word, 8) == 8) {
        if (getppid() != parent) _exit(9);
        work(2);
        state = state * 31 + word;
        if (write(out, &state, 8) != 8) _exit(8);
    }
    _exit(10 + me);
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 1500);
    int rw = PROT_READ | PROT_WRITE, to[WORKERS][2], from[WORKERS][2], status;
    pid_t workers[WORKERS], ended, nested;
    uint64_t *common = mmap(NULL, 4096, rw, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    NEED(common != MAP_FAILED);
    for (int w = 0; w < WORKERS; w++) NEED(!pipe(to[w]) && !pipe(from[w]));
    for (int w = 0; w < WORKERS; w++) {
        NEED((workers[w] = fork()) >= 0);
        if (workers[w]) continue;
        for (int o = 0; o < WORKERS; o++) {
            close(to[o][1]);
            close(from[o][0]);
        }
        serve(to[w][0], from[w][1], w);
    }
    for (int w = 0; w < WORKERS; w++) NEED(!close(to[w][0]) && !close(from[w][1]));
    NEED((ended = fork()) >= 0);
    if (!ended) _exit(77);
    NEED((nested = fork()) >= 0);
    if (!nested) {
        setpgid(0, 0);
        pid_t inner = fork();
        if (!inner) {
            for (long i = 0; i < n; i++) {
                work(2);
                __atomic_fetch_add(&common[0], 1, __ATOMIC_SEQ_CST);
            }
            _exit(5);
        }
        _exit(waitpid(inner, &status, 0) == inner && WEXITSTATUS(status) == 5 ? 6 : 1);
    }
    for (long i = 0; i < n; i++) {
        for (int w = 0; w < WORKERS; w++) {
            uint64_t word = value_at((uint64_t)(i * WORKERS + w)), answer = 0;
            CHECK(write(to[w][1], &word, 8) == 8);
            CHECK(read(from[w][0], &answer, 8) == 8);
            add(answer);
        }
    }
    for (int w = 0; w < WORKERS; w++) {
        close(to[w][1]);
        CHECK(waitpid(workers[w], &status, 0) == workers[w] && WEXITSTATUS(status) == 10 + w);
    }
    CHECK(waitpid(ended, &status, 0) == ended && WIFEXITED(status) && WEXITSTATUS(status) == 77);
    CHECK(waitpid(nested, &status, 0) == nested && WEXITSTATUS(status) == 6);
    CHECK(common[0] == (uint64_t)n && wait(&status) == -1 && errno == ECHILD);
    add(common[0]);
    return finish("children");
}
