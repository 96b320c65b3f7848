// MPI in C as Open MPI's ABI has it, for the library of its C++ bindings: the names of types are in
// the names of functions, and predefined objects are variables of libmpi.so.40.
#ifndef EYRIE_CXX_OPENMPI_H
#define EYRIE_CXX_OPENMPI_H

#define MPI_ABI_Comm ompi_communicator_t
#define MPI_ABI_Datatype ompi_datatype_t
#define MPI_ABI_Errhandler ompi_errhandler_t
#define MPI_ABI_File ompi_file_t
#define MPI_ABI_Group ompi_group_t
#define MPI_ABI_Info ompi_info_t
#define MPI_ABI_Message ompi_message_t
#define MPI_ABI_Op ompi_op_t
#define MPI_ABI_Request ompi_request_t
#define MPI_ABI_Win ompi_win_t
#include <cstddef>

#include "mpi.h"

// Of Open MPI: the standard ABI's is longer.
struct ompi_status_public_t {
    int source, tag, error, cancelled;
    size_t bytes;
};

// What follows has other values, or none that may be used here.
#undef MPI_CART
#undef MPI_GRAPH
enum { MPI_CART = 1, MPI_GRAPH = 2 };

// A predefined object: `OBJECT(MPI_Comm, comm_world)`.
#define OBJECT(kind, name) (reinterpret_cast<kind>(ompi_##name))

extern "C" {
extern char ompi_mpi_comm_null[], ompi_mpi_datatype_null[], ompi_mpi_errhandler_null[];
extern char ompi_mpi_file_null[], ompi_mpi_group_null[], ompi_mpi_info_null[], ompi_mpi_op_null[];
extern char ompi_mpi_win_null[], ompi_request_null[];

// For this library alone (crates/abi/src/cxx.rs).
typedef void eyrie_reduction(void *in, void *inout, int *length, MPI_Datatype *type, void *function);
typedef void eyrie_handler(void *object, int *code, void *function);
void MPIX_Eyrie_cxx_reduction(eyrie_reduction *call);
int MPIX_Eyrie_cxx_errhandler(int kind, eyrie_handler *call, void *function, MPI_Errhandler *made);
}

#endif
