/*
 * The values of Open MPI's ABI in the place of those of mpi.h, for libmpi_mpifh.so.40: its programs'
 * Fortran has other integers for handles, which the library's own functions translate.
 */
#ifndef EYRIE_FORTRAN_OPENMPI_H
#define EYRIE_FORTRAN_OPENMPI_H

#include "mpi.h"

#undef MPI_COMM_WORLD
#undef MPI_DATATYPE_NULL
#undef MPI_ERRHANDLER_NULL
#undef MPI_INFO_NULL
#undef MPI_OP_NULL
#undef MPI_REQUEST_NULL
#define MPI_COMM_WORLD MPI_Comm_fromint(0)
#define MPI_DATATYPE_NULL MPI_Type_fromint(0)
#define MPI_ERRHANDLER_NULL MPI_Errhandler_fromint(0)
#define MPI_INFO_NULL MPI_Info_fromint(0)
#define MPI_OP_NULL MPI_Op_fromint(0)
#define MPI_REQUEST_NULL MPI_Request_fromint(0)

#undef MPI_UNWEIGHTED
#undef MPI_WEIGHTS_EMPTY
#define MPI_UNWEIGHTED ((int *)2)
#define MPI_WEIGHTS_EMPTY ((int *)3)

#undef MPI_CART
#undef MPI_DIST_GRAPH
#undef MPI_GRAPH
#define MPI_CART 1
#define MPI_GRAPH 2
#define MPI_DIST_GRAPH 3

#undef MPI_ERR_IN_STATUS
#undef MPI_ERR_VALUE_TOO_LARGE
#define MPI_ERR_IN_STATUS 18
#define MPI_ERR_VALUE_TOO_LARGE 79

#undef MPI_MAX_LIBRARY_VERSION_STRING
#define MPI_MAX_LIBRARY_VERSION_STRING 256

#undef MPI_TAG_UB
#undef MPI_UNIVERSE_SIZE
#define MPI_TAG_UB 0
#define MPI_UNIVERSE_SIZE 6

/* Functions of the program get handles as Fortran has them. */
void MPIX_Eyrie_fortran(int is);
static inline int eyrie_given(int error)
{
    MPIX_Eyrie_fortran(0);
    return error;
}
#define EYRIE_GIVEN(call) (MPIX_Eyrie_fortran(1), eyrie_given(call))
#define MPI_Op_create(...) EYRIE_GIVEN(MPI_Op_create(__VA_ARGS__))
#define MPI_Op_create_c(...) EYRIE_GIVEN(MPI_Op_create_c(__VA_ARGS__))
#define MPI_Comm_create_errhandler(...) EYRIE_GIVEN(MPI_Comm_create_errhandler(__VA_ARGS__))
#define MPI_Win_create_errhandler(...) EYRIE_GIVEN(MPI_Win_create_errhandler(__VA_ARGS__))
#define MPI_File_create_errhandler(...) EYRIE_GIVEN(MPI_File_create_errhandler(__VA_ARGS__))
#define MPI_Session_create_errhandler(...) EYRIE_GIVEN(MPI_Session_create_errhandler(__VA_ARGS__))

/* Its common blocks. */
#define eyrie_mpi_bottom_ mpi_fortran_bottom_
#define eyrie_mpi_in_place_ mpi_fortran_in_place_
#define eyrie_mpi_status_ignore_ mpi_fortran_status_ignore_
#define eyrie_mpi_statuses_ignore_ mpi_fortran_statuses_ignore_
#define eyrie_mpi_unweighted_ mpi_fortran_unweighted_
#define eyrie_mpi_weights_empty_ mpi_fortran_weights_empty_
#define eyrie_mpi_argv_null_ mpi_fortran_argv_null_
#define eyrie_mpi_argvs_null_ mpi_fortran_argvs_null_
#define eyrie_mpi_errcodes_ignore_ mpi_fortran_errcodes_ignore_

#endif
