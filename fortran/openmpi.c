/*
 * Names that libmpi_mpifh.so.40 alone has: the forms of its module mpi whose address is a C pointer,
 * and statuses from one form to the other, which are the same bytes here.
 */
#include "entry.h"

#include <string.h>

/* Open MPI's functions of the same name without _cptr, whose address is an integer of the same size. */
void pmpi_alloc_mem_(int64_t *size, int *info, void *at, int *ierror);
void pmpi_win_allocate_(int64_t *size, int *unit, int *info, int *comm, void *at, int *win, int *ierror);
void pmpi_win_allocate_shared_(int64_t *size, int *unit, int *info, int *comm, void *at, int *win,
                               int *ierror);
void pmpi_win_shared_query_(int *win, int *rank, int64_t *size, int *unit, void *at, int *ierror);

ENTRY(pmpi_alloc_mem_cptr_, mpi_alloc_mem_cptr_, (int64_t *size, int *info, void *at, int *ierror))
{
    pmpi_alloc_mem_(size, info, at, ierror);
}

ENTRY(pmpi_win_allocate_cptr_, mpi_win_allocate_cptr_,
      (int64_t *size, int *unit, int *info, int *comm, void *at, int *win, int *ierror))
{
    pmpi_win_allocate_(size, unit, info, comm, at, win, ierror);
}

ENTRY(pmpi_win_allocate_shared_cptr_, mpi_win_allocate_shared_cptr_,
      (int64_t *size, int *unit, int *info, int *comm, void *at, int *win, int *ierror))
{
    pmpi_win_allocate_shared_(size, unit, info, comm, at, win, ierror);
}

ENTRY(pmpi_win_shared_query_cptr_, mpi_win_shared_query_cptr_,
      (int *win, int *rank, int64_t *size, int *unit, void *at, int *ierror))
{
    pmpi_win_shared_query_(win, rank, size, unit, at, ierror);
}

/* Of MPI_Status in Open MPI: four integers and a size_t. */
#define STATUS_BYTES (4 * sizeof(int) + sizeof(size_t))

static void copied(void *to, const void *from, int *ierror)
{
    memcpy(to, from, STATUS_BYTES);
    if (ierror)
        *ierror = MPI_SUCCESS;
}

ENTRY(pmpi_status_f082f_, mpi_status_f082f_, (void *f08_status, void *f_status, int *ierror))
{
    copied(f_status, f08_status, ierror);
}

ENTRY(pmpi_status_f2f08_, mpi_status_f2f08_, (void *f_status, void *f08_status, int *ierror))
{
    copied(f08_status, f_status, ierror);
}
