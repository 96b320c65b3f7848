/*
 * What the Fortran entry points share. Fortran passes everything by address, handles as INTEGER,
 * strings with a hidden length at the end; MPI's special addresses are common blocks.
 */
#ifndef EYRIE_FORTRAN_ENTRY_H
#define EYRIE_FORTRAN_ENTRY_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "mpi.h"

/* A routine under its profiling name, and a weak one under its plain name. */
#define ENTRY(name, plain, parameters)                              \
    void name parameters;                                          \
    void plain parameters __attribute__((weak, alias(#name)));     \
    void name parameters

/* The common blocks of mpif.h. */
extern int eyrie_mpi_bottom_;
extern int eyrie_mpi_in_place_;
extern int eyrie_mpi_status_ignore_[8];
extern int eyrie_mpi_statuses_ignore_[8];
/* Variables of the module mpi_f08. */
extern int eyrie_mpi_f08_status_ignore[8];
extern int eyrie_mpi_f08_statuses_ignore[8];
extern int eyrie_mpi_unweighted_[1];
extern int eyrie_mpi_weights_empty_[1];

/* The C address for a choice buffer. */
static inline void *choice_at(void *at)
{
    if (at == &eyrie_mpi_bottom_)
        return MPI_BOTTOM;
    if (at == &eyrie_mpi_in_place_)
        return MPI_IN_PLACE;
    return at;
}

/* The C address for weights of edges. */
static inline int *weights_at(int *at)
{
    if (at == eyrie_mpi_unweighted_)
        return MPI_UNWEIGHTED;
    if (at == eyrie_mpi_weights_empty_)
        return MPI_WEIGHTS_EMPTY;
    return at;
}

/* A Fortran status is the C status as an array of INTEGER. */
static inline MPI_Status *status_at(void *at)
{
    int none = at == eyrie_mpi_status_ignore_ || at == eyrie_mpi_f08_status_ignore;
    return none ? MPI_STATUS_IGNORE : at;
}

static inline MPI_Status *statuses_at(void *at)
{
    int none = at == eyrie_mpi_statuses_ignore_ || at == eyrie_mpi_f08_statuses_ignore;
    return none ? MPI_STATUSES_IGNORE : at;
}

/* In text.c. What they return the caller frees; they end the job if there is no memory. */
void *room(int count, size_t size);
char *name_in(const char *text, size_t length);
char *text_in(const char *text, size_t length);
char *text_room(size_t length);
void text_out(char *from, char *to, size_t length, int error);
int comm_size(int comm);
/* How many neighbours a rank receives from and sends to; none where there is no topology. */
int sources(int comm);
int destinations(int comm);

#endif
