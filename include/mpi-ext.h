/*
 * Failures that a program handles itself (ULFM): what the MPI standard has after 5.0, what is proposed for it, and
 * the names that other libraries have for it. A program that is started with `eyrie run --on-failure report` is told
 * of ranks that are lost by the error classes below.
 */
#ifndef EYRIE_MPI_EXT_H
#define EYRIE_MPI_EXT_H

#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* By these a program sees that the functions are there. */
#define MPIX_HAVE_ULFM                 1
#define OMPI_HAVE_MPI_EXT              1
#define OMPI_HAVE_MPI_EXT_FTMPI        1

/* The standard's ABI has no numbers for them yet; these are MPICH's. */
#define MPI_ERR_PROC_FAILED            101
#define MPI_ERR_PROC_FAILED_PENDING    102
#define MPI_ERR_REVOKED                103
#define MPIX_ERR_PROC_FAILED           MPI_ERR_PROC_FAILED
#define MPIX_ERR_PROC_FAILED_PENDING   MPI_ERR_PROC_FAILED_PENDING
#define MPIX_ERR_REVOKED               MPI_ERR_REVOKED

#define EYRIE_MPIX(name, arguments)    \
    int MPI_##name arguments;          \
    int PMPI_##name arguments;         \
    int MPIX_##name arguments;         \
    int PMPIX_##name arguments;

EYRIE_MPIX(Comm_revoke, (MPI_Comm comm))
EYRIE_MPIX(Comm_is_revoked, (MPI_Comm comm, int *flag))
EYRIE_MPIX(Comm_get_failed, (MPI_Comm comm, MPI_Group *failedgrp))
EYRIE_MPIX(Comm_ack_failed, (MPI_Comm comm, int num_to_ack, int *num_acked))
EYRIE_MPIX(Comm_failure_ack, (MPI_Comm comm))
EYRIE_MPIX(Comm_failure_get_acked, (MPI_Comm comm, MPI_Group *failedgrp))
EYRIE_MPIX(Comm_agree, (MPI_Comm comm, int *flag))
EYRIE_MPIX(Comm_iagree, (MPI_Comm comm, int *flag, MPI_Request *request))
EYRIE_MPIX(Comm_shrink, (MPI_Comm comm, MPI_Comm *newcomm))
EYRIE_MPIX(Comm_ishrink, (MPI_Comm comm, MPI_Comm *newcomm, MPI_Request *request))
EYRIE_MPIX(Comm_agree_failed, (MPI_Comm comm, MPI_Group *failedgrp))
EYRIE_MPIX(Comm_iagree_failed, (MPI_Comm comm, MPI_Group *failedgrp, MPI_Request *request))
EYRIE_MPIX(Win_revoke, (MPI_Win win))
EYRIE_MPIX(Win_is_revoked, (MPI_Win win, int *flag))
EYRIE_MPIX(Win_get_failed, (MPI_Win win, MPI_Group *failedgrp))
EYRIE_MPIX(File_revoke, (MPI_File file))
EYRIE_MPIX(File_is_revoked, (MPI_File file, int *flag))

#undef EYRIE_MPIX

#ifdef __cplusplus
}
#endif

#endif
