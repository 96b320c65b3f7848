/*
 * A program of sessions alone: no MPI_Init. Messages of communicators from process sets; several
 * sessions one after the other.
 */
#include "check.h"

enum { SESSIONS = 3, ROUNDS = 400 };

int main(void)
{
    long all = 0;
    for (int n = 0; n < SESSIONS; n++) {
        MPI_Session session;
        MPI_Group group;
        MPI_Comm comm;
        int started, level;
        MPI_Info asked;
        OK(MPI_Info_create(&asked));
        OK(MPI_Info_set(asked, "thread_level", "MPI_THREAD_FUNNELED"));
        OK(MPI_Session_init(asked, MPI_ERRORS_ARE_FATAL, &session));
        OK(MPI_Info_free(&asked));
        OK(MPI_Initialized(&started));
        CHECK(!started, "MPI_Init was not called");
        OK(MPI_Query_thread(&level));
        CHECK(level == MPI_THREAD_FUNNELED, "%d", level);
        OK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group));
        OK(MPI_Comm_create_from_group(group, "org.eyrie.test", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL,
                                      &comm));
        OK(MPI_Group_free(&group));
        MPI_Comm_rank(comm, &rank);
        MPI_Comm_size(comm, &ranks);
        int next = (rank + 1) % ranks, before = (rank + ranks - 1) % ranks;
        for (int round = 0; round < ROUNDS; round++) {
            int out = rank * 1000 + round, got = -1, sum;
            OK(MPI_Sendrecv(&out, 1, MPI_INT, next, 1, &got, 1, MPI_INT, before, 1, comm,
                            MPI_STATUS_IGNORE));
            CHECK(got == before * 1000 + round, "%d", got);
            OK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm));
            CHECK(sum == ranks * (ranks - 1) / 2, "%d", sum);
        }
        if (n == SESSIONS - 1)
            OK(MPI_Reduce(&checks, &all, 1, MPI_LONG, MPI_SUM, 0, comm));
        OK(MPI_Comm_free(&comm));
        OK(MPI_Session_finalize(&session));
    }
    if (rank == 0)
        printf("ok sessions %ld\n", all);
    return 0;
}
