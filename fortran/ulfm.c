/*
 * Functions for failures that write a handle when their request is complete: into an INTEGER, which
 * is smaller than a handle of C.
 */
#include "entry.h"

#include "mpi-ext.h"

/* As MPI_Comm_ishrink and MPI_Comm_iagree_failed. */
int PMPIX_Comm_ishrink_toint(MPI_Comm comm, int *newcomm, MPI_Request *request);
int PMPIX_Comm_iagree_failed_toint(MPI_Comm comm, int *failedgrp, MPI_Request *request);

ENTRY(pmpi_comm_ishrink_, mpi_comm_ishrink_, (int *comm, int *newcomm, int *request, int *ierror))
{
    MPI_Request made = MPI_REQUEST_NULL;
    *ierror = PMPIX_Comm_ishrink_toint(MPI_Comm_fromint(*comm), newcomm, &made);
    if (*ierror == MPI_SUCCESS)
        *request = MPI_Request_toint(made);
}

ENTRY(pmpi_comm_iagree_failed_, mpi_comm_iagree_failed_,
      (int *comm, int *failedgrp, int *request, int *ierror))
{
    MPI_Request made = MPI_REQUEST_NULL;
    *ierror = PMPIX_Comm_iagree_failed_toint(MPI_Comm_fromint(*comm), failedgrp, &made);
    if (*ierror == MPI_SUCCESS)
        *request = MPI_Request_toint(made);
}

/* The same under their other names. */
ENTRY(pmpix_comm_ishrink_, mpix_comm_ishrink_, (int *comm, int *newcomm, int *request, int *ierror))
{
    pmpi_comm_ishrink_(comm, newcomm, request, ierror);
}

ENTRY(pmpix_comm_iagree_failed_, mpix_comm_iagree_failed_,
      (int *comm, int *failedgrp, int *request, int *ierror))
{
    pmpi_comm_iagree_failed_(comm, failedgrp, request, ierror);
}
