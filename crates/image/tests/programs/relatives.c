// A parent and a child that share memory without a name, a file's offset, pipes and a socket pair,
// and hand a token to each other through all of them in turn.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
    pthread_mutex_t lock;
    pthread_cond_t turned;
    int turn;
    uint64_t sum;
    uint32_t table[1 << 16];
};

static int failures;
#define CHECK(what) do { if (!(what)) { fprintf(stderr, "%d, line %d: %s (errno %d)\n", getpid(), __LINE__, #what, errno); failures++; } } while (0)

static void turn(struct shared *s, int me, uint64_t value) {
    pthread_mutex_lock(&s->lock);
    while (s->turn != me) pthread_cond_wait(&s->turned, &s->lock);
    s->sum = s->sum * 31 + value;
    s->table[value & 0xffff]++;
    s->turn = !me;
    pthread_cond_signal(&s->turned);
    pthread_mutex_unlock(&s->lock);
}

static void all(int fd, void *data, size_t bytes, int out) {
    char *at = data;
    while (bytes > 0) {
        ssize_t n = out ? write(fd, at, bytes) : read(fd, at, bytes);
        if (n <= 0) {
            CHECK(!"a whole token");
            _exit(9);
        }
        at += n;
        bytes -= (size_t)n;
    }
}

static uint64_t next(uint64_t x) {
    for (int i = 0; i < 200; i++) x ^= x << 13, x ^= x >> 7, x ^= x << 17;
    return x;
}

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 1000;
    int there[2], back[2], pair[2], left[2];
    struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pthread_mutexattr_t mutex;
    pthread_condattr_t condition;
    pthread_mutexattr_init(&mutex);
    pthread_mutexattr_setpshared(&mutex, PTHREAD_PROCESS_SHARED);
    pthread_condattr_init(&condition);
    pthread_condattr_setpshared(&condition, PTHREAD_PROCESS_SHARED);
    pthread_mutex_init(&s->lock, &mutex);
    pthread_cond_init(&s->turned, &condition);
    if (pipe(there) || pipe(back) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair)) return 2;
    int file = open("journal", O_RDWR | O_CREAT | O_TRUNC, 0600);
    // Full of what nobody will add to any more: the child's standard input.
    if (pipe(left)) return 2;
    for (int i = 0; i < 5000; i++) {
        uint32_t number = (uint32_t)i * 7919;
        if (write(left[1], &number, sizeof number) != sizeof number) return 2;
    }
    close(left[1]);
    pid_t child = fork();
    if (child == 0) {
        dup2(left[0], 0), close(left[0]);
        close(there[1]), close(back[0]), close(pair[0]);
        for (long r = 0; r < rounds; r++) {
            uint64_t token;
            all(there[0], &token, sizeof token, 0);
            token = next(token);
            turn(s, 1, token);
            all(file, &token, sizeof token, 1);
            all(r & 1 ? back[1] : pair[1], &token, sizeof token, 1);
        }
        for (int i = 0; i < 5000; i++) {
            uint32_t number = 0;
            CHECK(read(0, &number, sizeof number) == sizeof number && number == (uint32_t)i * 7919);
        }
        CHECK(read(0, &rounds, sizeof rounds) == 0);
        _exit(failures ? 8 : 3);
    }
    close(left[0]), close(there[0]), close(back[1]), close(pair[1]);
    uint64_t token = 88172645463325252u;
    for (long r = 0; r < rounds; r++) {
        all(there[1], &token, sizeof token, 1);
        turn(s, 0, token);
        all(r & 1 ? back[0] : pair[0], &token, sizeof token, 0);
        token = next(token);
        // One offset for both: what each writes comes behind what the other wrote.
        all(file, &token, sizeof token, 1);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(lseek(file, 0, SEEK_CUR) == rounds * 16);
    CHECK(read(pair[0], &token, 1) == 0 && read(back[0], &token, 1) == 0);
    uint64_t sum = s->sum, word;
    for (int i = 0; i < 1 << 16; i++) sum = sum * 7 + s->table[i];
    lseek(file, 0, SEEK_SET);
    while (read(file, &word, sizeof word) == sizeof word) sum = sum * 5 + word;
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    fprintf(out, "%llu, failures: %d\n", (unsigned long long)sum, failures);
    return fclose(out);
}
