/* A program without MPI that asks for its own image (eyrie_image.h), and says what it finds afterwards.
 *
 *     asks IMAGE [thread|child]    takes an image in the middle of its work, and goes on
 *     asks --become IMAGE          becomes the program of an image
 *
 * It waits for a file IMAGE.go before it goes on, so that a test can end it in between. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <eyrie_image.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(what) ((what) ? (void)0 : (fprintf(stderr, "asks: line %d: %s\n", __LINE__, #what), exit(3)))

static volatile sig_atomic_t seen;
static volatile long turns;

static void on_signal(int number)
{
    (void)number;
    seen++;
}

static void *turn(void *unused)
{
    for (;;) {
        turns++;
        usleep(1000);
    }
    return unused;
}

/* Whether a byte goes through both ways. */
static int goes_through(int one, int other)
{
    char byte = 0;
    return write(one, "a", 1) == 1 && read(other, &byte, 1) == 1 && byte == 'a' && write(other, "b", 1) == 1
        && read(one, &byte, 1) == 1 && byte == 'b';
}

static void listen_at(struct sockaddr_in *at, int *door)
{
    socklen_t size = sizeof *at;
    *door = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(bind(*door, (struct sockaddr *)at, size) == 0 && listen(*door, 1) == 0);
    CHECK(getsockname(*door, (struct sockaddr *)at, &size) == 0);
}

static void wait_for(const char *image)
{
    char name[4096];
    snprintf(name, sizeof name, "%s.go", image);
    while (access(name, F_OK) != 0)
        usleep(2000);
}

int main(int count, char **words)
{
    if (count == 3 && strcmp(words[1], "--become") == 0) {
        eyrie_image_restart(words[2]);
        fprintf(stderr, "asks: %s\n", eyrie_image_error());
        return 4;
    }
    CHECK(count >= 2);
    const char *how = count > 2 ? words[2] : "";
    size_t bytes = 8 << 20;
    unsigned char *memory = malloc(bytes);
    CHECK(memory);
    for (size_t at = 0; at < bytes; at++)
        memory[at] = (unsigned char)(at * 2654435761u >> 13);
    char name[4096];
    snprintf(name, sizeof name, "%s.data", words[1]);
    int file = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600), ends[2], door, near, far;
    CHECK(file >= 0 && write(file, "before\n", 7) == 7);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = inet_addr("127.0.0.2")};
    listen_at(&at, &door);
    near = socket(AF_INET, SOCK_STREAM, 0);
    CHECK(connect(near, (struct sockaddr *)&at, sizeof at) == 0);
    far = accept(door, NULL, NULL);
    CHECK(far >= 0 && goes_through(near, far) && goes_through(ends[0], ends[1]));
    /* Under way when the image is taken. */
    CHECK(write(near, "tcp", 3) == 3 && write(ends[0], "unix", 4) == 4);
    struct sigaction action = {.sa_handler = on_signal};
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR2);
    CHECK(sigprocmask(SIG_BLOCK, &blocked, NULL) == 0 && raise(SIGUSR2) == 0);
    pthread_t other;
    if (strcmp(how, "thread") == 0)
        CHECK(pthread_create(&other, NULL, turn, NULL) == 0);
    register double half = 0.5 + (double)count;

    int came = eyrie_image_checkpoint(words[1]);
    if (came < 0) {
        fprintf(stderr, "asks: %s\n", eyrie_image_error());
        return 5;
    }
    if (came == EYRIE_IMAGE_TAKEN) {
        printf("taken\n");
        fflush(stdout);
        wait_for(words[1]);
    }
    CHECK(half == 0.5 + (double)count);
    for (size_t byte = 0; byte < bytes; byte++)
        CHECK(memory[byte] == (unsigned char)(byte * 2654435761u >> 13));
    CHECK(write(file, "after\n", 6) == 6 && lseek(file, 0, SEEK_CUR) == 13);
    char text[8] = "";
    CHECK(read(far, text, 3) == 3 && memcmp(text, "tcp", 3) == 0);
    CHECK(read(ends[1], text, 4) == 4 && memcmp(text, "unix", 4) == 0);
    CHECK(goes_through(near, far) && goes_through(ends[0], ends[1]));
    CHECK(raise(SIGUSR1) == 0 && seen == 1);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0 && sigismember(&pending, SIGUSR2) == 1);
    if (strcmp(how, "thread") == 0)
        for (long before = turns; turns == before;)
            usleep(1000);
    socklen_t size = sizeof at;
    CHECK(getsockname(door, (struct sockaddr *)&at, &size) == 0);
    printf("%s, listens at %s\n", came == EYRIE_IMAGE_RESTARTED ? "restarted" : "went on", inet_ntoa(at.sin_addr));
    return came == EYRIE_IMAGE_RESTARTED ? 7 : 0;
}
