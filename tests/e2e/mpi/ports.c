/*
 * Groups of one job that meet later: by ports, by names of ports, and over a socket. The upper half
 * of the ranks serves the lower half; then everybody meets rank 0 alone, in whatever order they
 * come. On one rank there is only what needs nobody else.
 */
#include "check.h"

#include <sys/socket.h>
#include <unistd.h>

/* So many that ranks can be killed in the middle. */
enum { ROUNDS = 60 };

/* Somebody in the job keeps names of ports. */
static int named;

static long across(MPI_Comm inter, long own)
{
    long sum = 0;
    OK(MPI_Allreduce(&own, &sum, 1, MPI_LONG, MPI_SUM, inter));
    return sum;
}

static void refused(void)
{
    char port[MPI_MAX_PORT_NAME];
    MPI_Comm none;
    OK(MPI_Comm_get_parent(&none));
    CHECK(none == MPI_COMM_NULL, "nobody has started it");
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Lookup_name("nobody's", MPI_INFO_NULL, port);
    named = class_of(code) != MPI_ERR_UNSUPPORTED_OPERATION;
    if (named) {
        CHECK(class_of(code) == MPI_ERR_NAME, "%d", code);
        code = MPI_Unpublish_name("nobody's", MPI_INFO_NULL, "none");
        CHECK(class_of(code) == MPI_ERR_SERVICE, "%d", code);
    }
    code = MPI_Comm_connect("none", MPI_INFO_NULL, 0, MPI_COMM_SELF, &none);
    CHECK(class_of(code) == MPI_ERR_PORT, "%d", code);
    code = MPI_Comm_accept("none", MPI_INFO_NULL, ranks - 1, MPI_COMM_WORLD, &none);
    CHECK(class_of(code) == MPI_ERR_PORT, "%d", code);
    code = MPI_Close_port("none");
    CHECK(class_of(code) == MPI_ERR_PORT, "%d", code);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Both halves, by a port whose name is published anew in each round. */
static void halves(int round, MPI_Comm half)
{
    char port[MPI_MAX_PORT_NAME] = "", name[32];
    int serves = rank >= ranks / 2, size;
    MPI_Comm inter, all;
    snprintf(name, sizeof name, "round %d", round);
    OK(MPI_Comm_size(half, &size));
    if (rank == ranks / 2) {
        OK(MPI_Open_port(MPI_INFO_NULL, port));
        if (named)
            OK(MPI_Publish_name(name, MPI_INFO_NULL, port));
    }
    /* Who looks it up hears of it by others. */
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (!named)
        OK(MPI_Bcast(port, sizeof port, MPI_CHAR, ranks / 2, MPI_COMM_WORLD));
    if (serves) {
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter));
    } else {
        if (named && rank == size - 1)
            OK(MPI_Lookup_name(name, MPI_INFO_NULL, port));
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, size - 1, half, &inter));
    }
    long want = 0;
    for (int r = serves ? 0 : ranks / 2; r < (serves ? ranks / 2 : ranks); r++)
        want += round * 100 + r;
    long sum = across(inter, round * 100 + rank);
    CHECK(sum == want, "%ld instead of %ld in round %d", sum, want, round);
    OK(MPI_Intercomm_merge(inter, serves, &all));
    int at;
    OK(MPI_Comm_rank(all, &at));
    CHECK(at == rank, "%d", at);
    OK(MPI_Comm_free(&all));
    OK(MPI_Comm_disconnect(&inter));
    CHECK(inter == MPI_COMM_NULL, "it is gone");
    if (rank == ranks / 2) {
        if (named)
            OK(MPI_Unpublish_name(name, MPI_INFO_NULL, port));
        OK(MPI_Close_port(port));
    }
}

/* Rank 0 takes all others as they come. */
static void one_by_one(const char *port)
{
    MPI_Comm inter;
    long sum = 0, all = 0;
    if (rank > 0) {
        OK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
        CHECK(across(inter, rank) == -1, "rank 0 says so");
        OK(MPI_Comm_disconnect(&inter));
        return;
    }
    for (int r = 1; r < ranks; r++) {
        OK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, &inter));
        sum += across(inter, -1);
        all += r;
        OK(MPI_Comm_disconnect(&inter));
    }
    CHECK(sum == all, "%ld of %ld", sum, all);
}

/* The two ends of a pair of sockets are in one process: that joins nobody. */
static void joined(void)
{
    int pair[2];
    MPI_Comm none;
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "a pair of sockets");
    char noise[32];
    memset(noise, 'x', sizeof noise);
    CHECK(write(pair[1], noise, sizeof noise) == sizeof noise, "written");
    int code = MPI_Comm_join(pair[0], &none);
    CHECK(class_of(code) == MPI_ERR_OTHER, "%d", code);
    close(pair[0]);
    close(pair[1]);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    refused();
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    joined();
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
    if (ranks > 1) {
        MPI_Comm half;
        char port[MPI_MAX_PORT_NAME] = "";
        OK(MPI_Comm_split(MPI_COMM_WORLD, rank >= ranks / 2, rank, &half));
        if (rank == 0)
            OK(MPI_Open_port(MPI_INFO_NULL, port));
        OK(MPI_Bcast(port, sizeof port, MPI_CHAR, 0, MPI_COMM_WORLD));
        for (int round = 0; round < ROUNDS; round++) {
            halves(round, half);
            one_by_one(port);
        }
        if (rank == 0)
            OK(MPI_Close_port(port));
        OK(MPI_Comm_free(&half));
    }
    return finish("ports");
}
