/* The ranks form a ring of connections of their own, by TCP over the loopback and by Unix sockets
 * under a name, beside MPI: each sends its neighbour numbers, always some that are not read yet, and
 * says with all others what it has read. With `tcp` by TCP only; with `wide` by TCP between the
 * addresses of the machines. */
#include <ifaddrs.h>
#include <mpi.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { AHEAD = 100, STEPS = 400 };

static void check(int holds, const char *what)
{
    if (holds) return;
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

/* The other end is gone: who has it died, and this rank is about to be taken back with all others. */
static void moved(ssize_t bytes)
{
    while (bytes != sizeof(long)) pause();
}

static long mixed(long sum, long value)
{
    return (long)((unsigned long)sum * 31 + (unsigned long)value);
}

/* This machine's own address. */
static in_addr_t machine(void)
{
    struct ifaddrs *all, *one;
    in_addr_t found = 0;
    check(!getifaddrs(&all), "getifaddrs");
    for (one = all; one; one = one->ifa_next) {
        int ip = one->ifa_addr && one->ifa_addr->sa_family == AF_INET;
        if (ip && !found && !(one->ifa_flags & IFF_LOOPBACK))
            found = ((struct sockaddr_in *)(void *)one->ifa_addr)->sin_addr.s_addr;
    }
    freeifaddrs(all);
    check(found != 0, "an address");
    return found;
}

int main(int argc, char **argv)
{
    int rank, ranks, lines[4];
    int wide = argc > 1 && !strcmp(argv[1], "wide"), step_by = argc > 1 ? 2 : 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int next = (rank + 1) % ranks, pid = getpid();
    /* An address of its own: a port that it must get again is nobody else's meanwhile. */
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_addr.s_addr = htonl(127u << 24 | (unsigned)(pid & 0xffffff))};
    if (wide) at.sin_addr.s_addr = machine();
    struct sockaddr_in home = at;
    struct sockaddr_un path = {.sun_family = AF_UNIX};
    int tcp = socket(AF_INET, SOCK_STREAM, 0), local = socket(AF_UNIX, SOCK_STREAM, 0);
    check(!bind(tcp, (struct sockaddr *)&at, sizeof at) && !listen(tcp, 5), "listen");
    socklen_t bytes = sizeof at;
    check(!getsockname(tcp, (struct sockaddr *)&at, &bytes), "getsockname");
    /* An abstract name. */
    sprintf(path.sun_path + 1, "eyrie-calls-%d", pid);
    bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(path.sun_path + 1));
    check(!bind(local, (struct sockaddr *)&path, bytes) && !listen(local, 5), "listen");
    struct { struct sockaddr_in at; struct sockaddr_un path; socklen_t bytes; } own = {at, path, bytes}, *all;
    all = calloc((size_t)ranks, sizeof own);
    MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    lines[0] = socket(AF_INET, SOCK_STREAM, 0);
    check(!bind(lines[0], (struct sockaddr *)&home, sizeof home), "bind");
    check(!connect(lines[0], (struct sockaddr *)&all[next].at, sizeof at), "connect");
    check((lines[2] = accept(tcp, NULL, NULL)) >= 0, "accept");
    if (step_by == 1) {
        lines[1] = socket(AF_UNIX, SOCK_STREAM, 0);
        check(!connect(lines[1], (struct sockaddr *)&all[next].path, all[next].bytes), "connect");
        check((lines[3] = accept(local, NULL, NULL)) >= 0, "accept");
    }
    long sum = rank, value;
    for (long step = -AHEAD; step < STEPS; step++) {
        for (int l = 0; l < 4; l += step_by) {
            value = step * 10 + rank;
            moved(send(lines[l], &value, sizeof value, MSG_NOSIGNAL));
            if (step < 0) continue;
            moved(recv(lines[l], &value, sizeof value, MSG_WAITALL));
            sum = mixed(sum, value);
        }
        if (step % 50 == 49) {
            long total;
            MPI_Allreduce(&sum, &total, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
            if (rank == 0) printf("step %ld: %ld\n", step, total);
            fflush(stdout);
        }
        if (step >= 0) usleep(4000);
    }
    for (int i = 0; i < AHEAD; i++) {
        for (int l = 0; l < 4; l += step_by) {
            moved(recv(lines[l], &value, sizeof value, MSG_WAITALL));
            sum = mixed(sum, value);
        }
    }
    long *sums = calloc((size_t)ranks, sizeof sum);
    MPI_Gather(&sum, 1, MPI_LONG, sums, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < ranks; r++) printf("rank %d: %ld\n", r, sums[r]);
    MPI_Finalize();
    return 0;
}
