// Two processes that are connected by TCP (IPv4, and IPv4 at one end and IPv6 at the other) and Unix sockets, by name, with data in
// flight both ways all the time, until the file `../stop` appears. `full`: more in flight than the
// reader has room for. `far`: TCP only, as between nodes.
#define _GNU_SOURCE
#include "check.h"
#include <arpa/inet.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { AHEAD = 200, LINES = 4, CONTROL = 3, BIG = 1 << 16 };

union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
    struct sockaddr_un path;
};
static int families[LINES] = {AF_INET, AF_INET6, AF_UNIX, AF_UNIX};
static int kinds[LINES] = {SOCK_STREAM, SOCK_STREAM, SOCK_STREAM, SOCK_SEQPACKET};
static int lines[LINES], doors[LINES];

static socklen_t own_address(union address *at, int line) {
    memset(at, 0, sizeof *at);
    at->any.sa_family = (sa_family_t)families[line];
    // An address of its own: a port that it must get again is nobody else's meanwhile.
    in_addr_t home = htonl(127u << 24 | (getpid() & 0xffffff));
    if (families[line] == AF_INET) {
        at->v4.sin_addr.s_addr = home;
        return sizeof at->v4;
    }
    if (families[line] == AF_INET6) {
        // The same, in a socket for both kinds.
        memset(at->v6.sin6_addr.s6_addr + 10, 0xff, 2);
        memcpy(at->v6.sin6_addr.s6_addr + 12, &home, 4);
        return sizeof at->v6;
    }
    CHECK(getcwd(at->path.sun_path, 90));
    strcat(at->path.sun_path, line == 2 ? "/stream" : "/packets");
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(at->path.sun_path) + 1);
}

static void serve(void) {
    FILE *file = fopen("addresses.new", "w");
    for (int i = 0; i < LINES; i++) {
        union address at;
        socklen_t bytes = own_address(&at, i);
        doors[i] = socket(families[i], kinds[i], 0);
        CHECK(!bind(doors[i], &at.any, bytes) && !listen(doors[i], 5));
        bytes = sizeof at;
        CHECK(!getsockname(doors[i], &at.any, &bytes));
        CHECK(fwrite(&at, sizeof at, 1, file) == 1);
    }
    CHECK(!fclose(file) && !rename("addresses.new", "addresses"));
    for (int i = 0; i < LINES; i++) lines[i] = accept(doors[i], NULL, NULL);
}

static void reach(union address *all) {
    FILE *file = fopen("../server/addresses", "r");
    CHECK(file && fread(all, sizeof *all, LINES, file) == LINES && !fclose(file));
}

static int call(const union address *at, int line) {
    int tcp = families[line] != AF_UNIX;
    socklen_t bytes = tcp ? sizeof at->v4 : sizeof at->path;
    union address plain = *at;
    if (families[line] == AF_INET6) {
        plain.v4 = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = at->v6.sin6_port};
        memcpy(&plain.v4.sin_addr, at->v6.sin6_addr.s6_addr + 12, 4);
    }
    int fd = socket(tcp ? AF_INET : AF_UNIX, kinds[line], 0);
    union address own;
    int small = 20000;
    CHECK(!setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small));
    if (tcp) CHECK(!bind(fd, &own.any, own_address(&own, 0)));
    CHECK(!connect(fd, &plain.any, bytes));
    return fd;
}

// Address and port as text, whichever kind of socket says so.
static void text(char *to, const union address *at) {
    uint32_t ip;
    uint16_t port = at->v4.sin_port;
    if (at->any.sa_family == AF_INET) ip = at->v4.sin_addr.s_addr;
    else memcpy(&ip, at->v6.sin6_addr.s6_addr + 12, 4);
    sprintf(to, "%08x:%04x", ntohl(ip), ntohs(port));
}

// The name that one end has is the name of the peer that the other one has, each in its own family.
static void same_names(int first) {
    for (int i = 0; i < 2; i++) {
        union address own = {0}, peer = {0};
        char both[2][16] = {{0}}, theirs[2][16];
        socklen_t bytes = sizeof own;
        CHECK(!getsockname(lines[i], &own.any, &bytes));
        bytes = sizeof own;
        CHECK(!getpeername(lines[i], &peer.any, &bytes));
        CHECK(own.any.sa_family == (first ? families[i] : AF_INET));
        CHECK(peer.any.sa_family == own.any.sa_family);
        text(both[0], &own);
        text(both[1], &peer);
        if (first) CHECK(write(lines[i], both, sizeof both) == sizeof both);
        else {
            CHECK(recv(lines[i], theirs, sizeof theirs, MSG_WAITALL) == sizeof theirs);
            CHECK(!strcmp(theirs[0], both[1]) && !strcmp(theirs[1], both[0]));
        }
    }
}

int main(int argc, char **argv) {
    int server = argc > 1 && !strcmp(argv[1], "server"), full = 0;
    for (int i = 2; i < argc; i++) {
        full |= !strcmp(argv[i], "full");
        if (strcmp(argv[i], "far")) continue;
        families[2] = families[3] = AF_INET;
        kinds[2] = kinds[3] = SOCK_STREAM;
    }
    static char big[BIG];
    union address all[LINES];
    long held = 0;
    if (server) serve();
    else {
        reach(all);
        for (int i = 0; i < LINES; i++) lines[i] = call(&all[i], i);
    }
    int extra = server ? accept(doors[0], NULL, NULL) : call(&all[0], 0);
    if (full && server) {
        CHECK(!fcntl(extra, F_SETFL, O_NONBLOCK));
        for (ssize_t n; held < 400000; held += n) {
            for (int i = 0; i < BIG; i++) big[i] = (char)((held + i) % 251);
            if ((n = write(extra, big, BIG)) <= 0) break;
        }
    }
    CHECK(!(server ? shutdown(extra, SHUT_WR) : 0));
    for (int i = 0; i < AHEAD; i++)
        for (int l = 0; l < CONTROL; l++) CHECK(write(lines[l], &i, 4) == 4);
    CHECK(close(open("begun", O_CREAT | O_WRONLY, 0600)) == 0);
    long end = -1;
    for (long r = 0; end < 0 || r < end; r++) {
        int next = (int)r + AHEAD, value = -1;
        for (int l = 0; l < CONTROL; l++) CHECK(write(lines[l], &next, 4) == 4);
        for (int l = 0; l < CONTROL; l++)
            CHECK(recv(lines[l], &value, 4, MSG_WAITALL) == 4 && value == r);
        if (server && end < 0 && !access("../stop", F_OK)) {
            end = r + 3 * AHEAD;
            CHECK(write(lines[CONTROL], &end, sizeof end) == sizeof end);
        }
        long told;
        if (!server && end < 0 && recv(lines[CONTROL], &told, sizeof told, MSG_DONTWAIT) > 0)
            end = told;
        if (wrong) return 1;
    }
    // What the other one was ahead, and the end of it.
    for (int i = 0; i < AHEAD; i++) {
        int value = -1;
        for (int l = 0; l < CONTROL; l++)
            CHECK(recv(lines[l], &value, 4, MSG_WAITALL) == 4 && value == end + i);
    }
    same_names(server);
    CHECK(write(lines[CONTROL], &held, sizeof held) == sizeof held);
    long theirs = -1, seen = 0;
    CHECK(read(lines[CONTROL], &theirs, sizeof theirs) == sizeof theirs);
    if (!server) {
        for (ssize_t n; (n = read(extra, big, BIG)) > 0; seen += n)
            for (ssize_t i = 0; i < n; i++) CHECK(big[i] == (char)((seen + i) % 251));
        CHECK(seen == theirs);
    }
    // Through the doors, which are open as before.
    for (int l = 0; l < LINES; l++) {
        int fd = server ? accept(doors[l], NULL, NULL) : call(&all[l], l);
        CHECK(server ? write(fd, "new", 3) == 3 : recv(fd, big, 3, 0) == 3 && !memcmp(big, "new", 3));
    }
    // Nothing is cut off while the other one reads.
    CHECK(write(lines[CONTROL], "end", 3) == 3 && read(lines[CONTROL], big, BIG) == 3);
    return finish(0);
}
