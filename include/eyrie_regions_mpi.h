/*
 * eyrie_regions.h for programs of MPI, whichever it is: the library itself knows none. All that is
 * asked of MPI is MPI_Allreduce on the communicator that is given, from within functions for ALL.
 */
#ifndef EYRIE_REGIONS_MPI_H
#define EYRIE_REGIONS_MPI_H

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "eyrie_regions.h"

static inline int eyrie_most_mpi(void *context, int64_t *values, int count)
{
    MPI_Comm comm;
    memcpy(&comm, context, sizeof comm);
    return MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_INT64_T, MPI_MAX, comm);
}

/* Where a communicator is kept for eyrie_most_mpi. It is never given back: a handle is opened once
   in a program's life. NULL: there is no memory. */
static inline void *eyrie_context_mpi(MPI_Comm comm)
{
    void *context = malloc(sizeof comm);
    if (context)
        memcpy(context, &comm, sizeof comm);
    return context;
}

/* ALL of the communicator, which stays until the handle is closed. */
static inline int eyrie_regions_open_mpi(const char *options, MPI_Comm comm, eyrie_regions **out)
{
    int rank, size;
    void *context = eyrie_context_mpi(comm);
    if (!context || MPI_Comm_rank(comm, &rank) || MPI_Comm_size(comm, &size)) {
        free(context);
        *out = NULL;
        return EYRIE_FAILED;
    }
    return eyrie_regions_open(options, rank, size, eyrie_most_mpi, context, out);
}

#endif
