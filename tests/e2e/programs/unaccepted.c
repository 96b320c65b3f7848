/* Each rank connects to its neighbour (one that is alone: to itself), and nobody accepts before there is the file
 * that is named: until then no checkpoint can be taken. Then numbers go around by these connections, and their sum
 * by MPI. With `unix` by Unix sockets. */
#include <mpi.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { STEPS = 300 };

static void check(int holds, const char *what)
{
    if (holds) return;
    perror(what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

int main(int argc, char **argv)
{
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int local = argc > 2 && !strcmp(argv[2], "unix"), family = local ? AF_UNIX : AF_INET, pid = getpid();
    struct { union { struct sockaddr_in ip; struct sockaddr_un path; } at; socklen_t bytes; } own, *all;
    memset(&own, 0, sizeof own);
    int door = socket(family, SOCK_STREAM, 0), out = socket(family, SOCK_STREAM, 0);
    if (local) {
        own.at.path.sun_family = AF_UNIX;
        sprintf(own.at.path.sun_path + 1, "eyrie-unaccepted-%d", pid);
        own.bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(own.at.path.sun_path + 1));
    } else {
        own.at.ip.sin_family = AF_INET;
        own.at.ip.sin_addr.s_addr = htonl(127u << 24 | (unsigned)(pid & 0xffffff));
        own.bytes = sizeof own.at.ip;
    }
    check(!bind(door, (struct sockaddr *)&own.at, own.bytes) && !listen(door, 5), "listen");
    check(!getsockname(door, (struct sockaddr *)&own.at, &own.bytes), "getsockname");
    all = calloc((size_t)ranks, sizeof own);
    MPI_Allgather(&own, sizeof own, MPI_BYTE, all, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    int next = (rank + 1) % ranks;
    check(!connect(out, (struct sockaddr *)&all[next].at, all[next].bytes), "connect");
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("connected\n");
    fflush(stdout);
    while (access(argv[1], F_OK)) usleep(1000);
    int in = accept(door, NULL, NULL);
    check(in >= 0, "accept");
    long sum = rank, value, total;
    for (long step = 0; step < STEPS; step++) {
        value = step * 10 + rank;
        check(send(out, &value, sizeof value, MSG_NOSIGNAL) == sizeof value, "send");
        check(recv(in, &value, sizeof value, MSG_WAITALL) == sizeof value, "recv");
        sum = (long)((unsigned long)sum * 31 + (unsigned long)value);
        usleep(1000);
    }
    MPI_Reduce(&sum, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%ld\n", total);
    MPI_Finalize();
    return 0;
}
