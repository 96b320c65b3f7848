/*
 * A program that starts itself: parents start children, several times and in several ways, send them
 * what to do, and take the results. Children start a grandchild. What comes out does not depend on
 * who was killed meanwhile.
 *
 *   spawned [ROUNDS [CHILDREN [STEPS]]]     with room for CHILDREN + 1
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH = 1000 };

static int steps = 20;

static char *own;

static void need(int condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "spawned: %s\n", what);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static long mixed(long value, int by)
{
    return (value * 31 + by) % 1000003;
}

/* Adds up what the parents send, step by step, among the children, and answers them. */
static void work(MPI_Comm parent, int depth)
{
    int rank, size, parents, app, flag, *number;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_remote_size(parent, &parents);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &number, &flag);
    app = flag ? *number : -1;
    long *data = malloc(LENGTH * sizeof *data), sum, all, most = 0;
    for (int step = 0; step < steps; step++) {
        MPI_Bcast(data, LENGTH, MPI_LONG, 0, parent);
        sum = 0;
        for (int i = rank; i < LENGTH; i += size)
            sum = mixed(sum + data[i], rank + app);
        MPI_Allreduce(&sum, &all, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Send(&all, 1, MPI_LONG, step % parents, step, parent);
        most = mixed(most + all, step);
    }
    if (depth > 1 && rank == 0) {
        /* One of its own, which gets the sum and gives it back. */
        MPI_Comm below;
        char text[16], many[16];
        snprintf(text, sizeof text, "%d", depth - 1);
        snprintf(many, sizeof many, "%d", steps);
        char *words[] = {"child", text, many, NULL};
        int code;
        MPI_Comm_spawn(own, words, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &below, &code);
        for (int step = 0; step < steps; step++) {
            for (int i = 0; i < LENGTH; i++)
                data[i] = mixed(most, i + step);
            MPI_Bcast(data, LENGTH, MPI_LONG, MPI_ROOT, below);
            MPI_Recv(&all, 1, MPI_LONG, 0, step, below, MPI_STATUS_IGNORE);
            most = mixed(most + all, step);
        }
        MPI_Comm_disconnect(&below);
        MPI_Send(&most, 1, MPI_LONG, 0, steps, parent);
    }
    free(data);
    MPI_Comm_disconnect(&parent);
    MPI_Comm_get_parent(&parent);
    need(parent == MPI_COMM_NULL, "who has disconnected has no parent");
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    own = argv[0];
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        need(argc == 4 && !strcmp(argv[1], "child"), "arguments of a child");
        steps = atoi(argv[3]);
        char name[MPI_MAX_OBJECT_NAME];
        int length;
        MPI_Comm_get_name(parent, name, &length);
        need(!strcmp(name, "MPI_COMM_PARENT"), "the name of the parents");
        work(parent, atoi(argv[2]));
        MPI_Finalize();
        return 0;
    }
    int rank, size, rounds = argc > 1 ? atoi(argv[1]) : 3, children = argc > 2 ? atoi(argv[2]) : 2;
    steps = argc > 3 ? atoi(argv[3]) : steps;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *universe, flag;
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &universe, &flag);
    need(flag && *universe > size + children, "there is room");
    long result = 1, *data = malloc(LENGTH * sizeof *data);
    int *codes = malloc(2 * (size_t)children * sizeof *codes);
    for (int round = 0; round < rounds; round++) {
        MPI_Comm inter;
        char depth[] = {(char)('1' + round % 2), 0};
        char many[16];
        snprintf(many, sizeof many, "%d", steps);
        char *words[] = {"child", depth, many, NULL};
        int count = children, at = round % size;
        if (round % 3 == 2) {
            /* Two of them, with numbers. */
            char *commands[] = {own, own}, **lists[] = {words, words};
            int counts[] = {1, children};
            MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
            count = children + 1;
            MPI_Comm_spawn_multiple(2, commands, lists, counts, infos, at, MPI_COMM_WORLD, &inter, codes);
        } else {
            MPI_Comm_spawn(own, words, children, MPI_INFO_NULL, at, MPI_COMM_WORLD, &inter, codes);
        }
        int there;
        MPI_Comm_remote_size(inter, &there);
        need(there == count, "as many as were wanted");
        for (int i = 0; i < count; i++)
            need(codes[i] == MPI_SUCCESS, "each of them has begun");
        for (int step = 0; step < steps; step++) {
            long sum;
            for (int i = 0; i < LENGTH; i++)
                data[i] = mixed(result, i + step);
            MPI_Bcast(data, LENGTH, MPI_LONG, rank == 0 ? MPI_ROOT : MPI_PROC_NULL, inter);
            if (rank == step % size)
                MPI_Recv(&sum, 1, MPI_LONG, 0, step, inter, MPI_STATUS_IGNORE);
            MPI_Bcast(&sum, 1, MPI_LONG, step % size, MPI_COMM_WORLD);
            result = mixed(result + sum, step);
        }
        if (round % 2 == 1) {
            long sum;
            if (rank == 0)
                MPI_Recv(&sum, 1, MPI_LONG, 0, steps, inter, MPI_STATUS_IGNORE);
            MPI_Bcast(&sum, 1, MPI_LONG, 0, MPI_COMM_WORLD);
            result = mixed(result + sum, round);
        }
        MPI_Comm_disconnect(&inter);
        if (rank == 0) {
            printf("round %d: %ld\n", round, result);
            fflush(stdout);
        }
    }
    free(data);
    free(codes);
    MPI_Finalize();
    return 0;
}
