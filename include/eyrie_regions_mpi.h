/*
 * eyrie_regions.h for programs of MPI, whichever it is: the library itself knows none. All that is
 * asked of MPI goes over a duplicate of the communicator that is given, from within functions for
 * ALL, by the thread that calls these (MPI_THREAD_FUNNELED is enough).
 */
#ifndef EYRIE_REGIONS_MPI_H
#define EYRIE_REGIONS_MPI_H

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "eyrie_regions.h"

enum { EYRIE_TAG = 1 };

/* Bytes that are on their way. */
struct eyrie_sent {
    MPI_Request request;
    struct eyrie_sent *next;
    /* The bytes follow. */
};

struct eyrie_context {
    MPI_Comm comm;
    struct eyrie_sent *sent;
};

static inline int eyrie_most_mpi(void *context, int64_t *values, int count)
{
    struct eyrie_context *own = (struct eyrie_context *)context;
    return MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_MAX, own->comm);
}

static inline int eyrie_gather_mpi(void *context, const void *own, const int *counts,
                                   const int *places, void *all)
{
    MPI_Comm comm = ((struct eyrie_context *)context)->comm;
    int rank, code = MPI_Comm_rank(comm, &rank);
    return code ? code : MPI_Allgatherv(own, counts[rank], MPI_BYTE, all, counts, places,
                                        MPI_BYTE, comm);
}

/* Gives back what has arrived; `wait`: of all. */
static inline int eyrie_arrived_mpi(struct eyrie_context *own, int wait)
{
    struct eyrie_sent **at = &own->sent;
    while (*at) {
        struct eyrie_sent *sent = *at;
        int done = 1;
        int code = wait ? MPI_Wait(&sent->request, MPI_STATUS_IGNORE)
                        : MPI_Test(&sent->request, &done, MPI_STATUS_IGNORE);
        if (code)
            return code;
        if (done) {
            *at = sent->next;
            free(sent);
        } else {
            at = &sent->next;
        }
    }
    return 0;
}

static inline int eyrie_send_mpi(void *context, int to, const void *bytes, int count)
{
    struct eyrie_context *own = (struct eyrie_context *)context;
    int code = eyrie_arrived_mpi(own, to < 0);
    if (code || to < 0)
        return code;
    struct eyrie_sent *sent = (struct eyrie_sent *)malloc(sizeof *sent + (size_t)count);
    if (!sent)
        return MPI_ERR_NO_MEM;
    memcpy(sent + 1, bytes, (size_t)count);
    code = MPI_Isend(sent + 1, count, MPI_BYTE, to, EYRIE_TAG, own->comm, &sent->request);
    if (code) {
        free(sent);
        return code;
    }
    sent->next = own->sent;
    own->sent = sent;
    return 0;
}

static inline int eyrie_receive_mpi(void *context, void *bytes, int room, int *from, int *count)
{
    struct eyrie_context *own = (struct eyrie_context *)context;
    MPI_Status status;
    int code = MPI_Recv(bytes, room, MPI_BYTE, MPI_ANY_SOURCE, EYRIE_TAG, own->comm, &status);
    *from = status.MPI_SOURCE;
    return code ? code : MPI_Get_count(&status, MPI_BYTE, count);
}

/* What these functions need: a communicator of their own. It is never given back: a handle is
   opened once in a program's life. NULL: there is no memory. All of the communicator call it. */
static inline void *eyrie_context_mpi(MPI_Comm comm)
{
    struct eyrie_context *context = (struct eyrie_context *)calloc(1, sizeof *context);
    if (context && MPI_Comm_dup(comm, &context->comm)) {
        free(context);
        context = NULL;
    }
    return context;
}

/* ALL of the communicator. */
static inline int eyrie_regions_open_mpi(const char *options, MPI_Comm comm, eyrie_regions **out)
{
    int rank, size;
    void *context = eyrie_context_mpi(comm);
    if (!context || MPI_Comm_rank(comm, &rank) || MPI_Comm_size(comm, &size)) {
        free(context);
        *out = NULL;
        return EYRIE_FAILED;
    }
    return eyrie_regions_open_apart(options, rank, size, eyrie_most_mpi, eyrie_gather_mpi,
                                    eyrie_send_mpi, eyrie_receive_mpi, context, out);
}

#endif
