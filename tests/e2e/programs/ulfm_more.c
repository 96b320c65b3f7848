/*
 * What goes with failures that the program handles (ULFM): spare ranks, how far errors are told, places that are
 * filled by programs that ranks start.
 *
 *   ulfm_more spares|group|universe|create|coll|spawn
 */
#include <mpi-ext.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "../mpi/check.h"

enum { VICTIM = 1 };

static void die(void)
{
    kill(getpid(), SIGKILL);
    pause();
}

static MPI_Comm returning(MPI_Comm comm)
{
    OK(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN));
    return comm;
}

static MPI_Comm with_hint(const char *key, const char *value)
{
    MPI_Info info, told;
    MPI_Comm comm;
    char text[64];
    int length = sizeof text, found;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, key, value));
    OK(MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &comm));
    OK(MPI_Comm_get_info(comm, &told));
    OK(MPI_Info_get_string(told, key, &length, text, &found));
    CHECK(found && !strcmp(text, value), "%s is %s", key, found ? text : "not there");
    /* Nobody knows this one, so nothing changes. */
    OK(MPI_Info_set(info, key, "elsewhere"));
    OK(MPI_Comm_set_info(comm, info));
    MPI_Info_free(&info);
    MPI_Info_free(&told);
    return returning(comm);
}

/* All of a process set, and whether this rank is in it. */
static void test_spares(void)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm node, made;
    MPI_Info info;
    char text[64];
    int number, size, own, found, there, length = sizeof text;
    OK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session));
    OK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &number));
    CHECK(number == 3, "%d sets", number);
    OK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 2, &length, text));
    CHECK(!strcmp(text, "mpi://spares"), "%s", text);
    OK(MPI_Group_from_session_pset(session, "mpi://spares", &group));
    OK(MPI_Group_size(group, &size));
    OK(MPI_Group_rank(group, &own));
    MPI_Group_free(&group);
    OK(MPI_Session_finalize(&session));
    CHECK((own != MPI_UNDEFINED) == (rank >= ranks - size), "rank %d has %d of %d", rank, own, size);
    length = sizeof text;
    OK(MPI_Info_get_string(MPI_INFO_ENV, "eyrie_spare", &length, text, &found));
    CHECK(found && !strcmp(text, own == MPI_UNDEFINED ? "false" : "true"), "eyrie_spare: %s", found ? text : "none");
    length = sizeof text;
    OK(MPI_Info_get_string(MPI_INFO_ENV, "eyrie_spare_ranks", &length, text, &found));
    CHECK(found && atoi(text) == size, "eyrie_spare_ranks: %s", found ? text : "none");
    /* By a communicator of the set, too. */
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_pset_name", "mpi://spares"));
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, &made));
    MPI_Info_free(&info);
    CHECK((made != MPI_COMM_NULL) == (own != MPI_UNDEFINED), "a communicator of spares");
    OK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Comm_size(node, &there));
    if (rank == ranks - 1)
        printf("%d spares of %d, %d on the last one's node\n", size, ranks, there);
}

/* Who waits for one that lives hears of the loss of another. */
static void test_range(const char *range)
{
    MPI_Comm comm = with_hint("mpi_error_range", range), part;
    int flag, buffer = 0, universe = !strcmp(range, "universe");
    OK(MPI_Comm_split(comm, rank == VICTIM, rank, &part));
    MPI_Info info;
    OK(MPI_Info_create(&info));
    OK(MPI_Info_set(info, "mpi_error_range", range));
    OK(MPI_Comm_set_info(part, info));
    MPI_Info_free(&info);
    returning(part);
    MPI_Comm waits = universe ? part : comm;
    flag = 1;
    OK(MPI_Comm_agree(comm, &flag));
    if (rank == VICTIM)
        die();
    int peer = rank == 0 ? ranks - 1 : 0, size;
    if (universe) {
        OK(MPI_Comm_rank(part, &peer));
        OK(MPI_Comm_size(part, &size));
        peer = (peer + 1) % size;
    }
    int class = class_of(MPI_Recv(&buffer, 1, MPI_INT, peer, 5, waits, MPI_STATUS_IGNORE));
    CHECK(class == MPI_ERR_REVOKED, "class %d", class);
    OK(MPI_Comm_is_revoked(waits, &flag));
    CHECK(flag, "it is not revoked");
    if (!universe) {
        /* That of the others has nothing to do with it. */
        OK(MPI_Comm_is_revoked(part, &flag));
        CHECK(!flag, "the part is revoked");
        OK(MPI_Barrier(part));
    }
}

static int one_call(MPI_Comm comm, int creates)
{
    static char data[1 << 16];
    MPI_Comm made = MPI_COMM_NULL;
    if (!creates)
        return MPI_Bcast(data, sizeof data, MPI_CHAR, 0, comm);
    int error = MPI_Comm_split(comm, 0, rank, &made);
    CHECK((made == MPI_COMM_NULL) == (error != MPI_SUCCESS), "error %d and a communicator", error);
    if (made != MPI_COMM_NULL)
        MPI_Comm_free(&made);
    return error;
}

/* The call that is the first to fail is the same on all. */
static void test_uniform(const char *uniform)
{
    MPI_Comm comm = with_hint("mpi_error_uniform", uniform), left;
    int error = MPI_SUCCESS, count = 0, both[2], all[2];
    if (rank == VICTIM) {
        srand((unsigned)getpid());
        struct itimerval after = {{0, 0}, {0, 20000 + rand() % 20000}};
        setitimer(ITIMER_REAL, &after, NULL);
    }
    for (; error == MPI_SUCCESS; count++)
        error = one_call(comm, !strcmp(uniform, "create"));
    int class = class_of(error);
    CHECK(class == MPI_ERR_PROC_FAILED, "class %d", class);
    OK(MPI_Comm_shrink(comm, &left));
    both[0] = count, both[1] = -count;
    OK(MPI_Allreduce(both, all, 2, MPI_INT, MPI_MAX, left));
    CHECK(all[0] == count && all[1] == -count, "call %d here, %d to %d", count, -all[1], all[0]);
    OK(MPI_Comm_free(&left));
}

/* A program that ranks start takes the place of who is lost. */
static void test_spawn(char *program)
{
    MPI_Comm parent, left, between, merged, again;
    int own, size, sum, one = 1, flag = 1;
    OK(MPI_Comm_get_parent(&parent));
    if (parent == MPI_COMM_NULL) {
        OK(MPI_Comm_agree(MPI_COMM_WORLD, &flag));
        if (rank == VICTIM)
            die();
        int class = class_of(MPI_Recv(&own, 1, MPI_INT, VICTIM, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(class == MPI_ERR_PROC_FAILED, "class %d", class);
        OK(MPI_Comm_shrink(MPI_COMM_WORLD, &left));
        char *words[] = {"spawn", NULL};
        OK(MPI_Comm_spawn(program, words, 1, MPI_INFO_NULL, 0, left, &between, MPI_ERRCODES_IGNORE));
        OK(MPI_Intercomm_merge(between, 0, &merged));
    } else {
        between = parent;
        OK(MPI_Intercomm_merge(parent, 1, &merged));
    }
    /* Under the same rank. */
    OK(MPI_Comm_split(merged, 0, parent == MPI_COMM_NULL ? rank : VICTIM, &again));
    OK(MPI_Comm_rank(again, &own));
    OK(MPI_Comm_size(again, &size));
    OK(MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, again));
    CHECK(sum == size && own == (parent == MPI_COMM_NULL ? rank : VICTIM), "rank %d of %d, %d take part", own, size, sum);
    MPI_Comm node;
    OK(MPI_Comm_split_type(again, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node));
    OK(MPI_Comm_size(node, &sum));
    if (parent != MPI_COMM_NULL) {
        printf("rank %d of %d is there again, %d on its node\n", own, size, sum);
        fflush(stdout);
    }
    OK(MPI_Barrier(again));
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    returning(MPI_COMM_WORLD);
    const char *what = argv[1];
    if (!strcmp(what, "spares"))
        test_spares();
    else if (!strcmp(what, "group") || !strcmp(what, "universe"))
        test_range(what);
    else if (!strcmp(what, "create") || !strcmp(what, "coll"))
        test_uniform(what);
    else
        test_spawn(argv[0]);
    if (rank == 0)
        printf("ok %s\n", what);
    MPI_Finalize();
    return 0;
}
