/* A program with a TCP connection to itself and bytes in flight on it: it tells its addresses when
 * it is asked (a line of input), and ends with 0 if what was in flight arrives. Its address is its
 * own: a port that it must get again is nobody else's meanwhile. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void show(const char *what, int fd, int (*ask)(int, struct sockaddr *, socklen_t *)) {
    struct sockaddr_in name;
    socklen_t bytes = sizeof name;
    char text[64] = "none";
    if (ask(fd, (struct sockaddr *)&name, &bytes) == 0)
        inet_ntop(AF_INET, &name.sin_addr, text, sizeof text);
    printf("%s %s\n", what, text);
}

int main(void) {
    struct sockaddr_in name = {.sin_family = AF_INET}, any;
    if (inet_pton(AF_INET, "127.87.11.1", &name.sin_addr) != 1) return 1;
    any = name;
    socklen_t bytes = sizeof name;
    int listener = socket(AF_INET, SOCK_STREAM, 0), near = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (struct sockaddr *)&name, bytes) || listen(listener, 4)) return 2;
    if (getsockname(listener, (struct sockaddr *)&name, &bytes)) return 3;
    if (bind(near, (struct sockaddr *)&any, bytes)) return 4;
    if (connect(near, (struct sockaddr *)&name, bytes)) return 4;
    int far = accept(listener, NULL, NULL);
    if (far < 0 || write(near, "in flight", 9) != 9) return 5;
    puts("ready");
    fflush(stdout);
    char line[64];
    if (!fgets(line, sizeof line, stdin)) return 6;
    show("listener", listener, getsockname);
    show("near", near, getsockname);
    show("far", near, getpeername);
    char got[9];
    if (recv(far, got, 9, MSG_WAITALL) != 9 || memcmp(got, "in flight", 9)) return 7;
    if (write(far, "back", 4) != 4 || recv(near, got, 4, MSG_WAITALL) != 4) return 8;
    return 0;
}
