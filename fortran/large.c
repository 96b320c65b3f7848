/*
 * Forms with counts of 64 bits that differ from C in more than how arguments are passed. The module
 * mpi_f08 alone calls them.
 */
#include "entry.h"

int eyrie_mpi_f08_buffer_detach_c(void **at, MPI_Count *size)
{
    return MPI_Buffer_detach_c(at, size);
}

int eyrie_mpi_f08_comm_detach_buffer_c(int comm, void **at, MPI_Count *size)
{
    return MPI_Comm_detach_buffer_c(MPI_Comm_fromint(comm), at, size);
}

int eyrie_mpi_f08_session_detach_buffer_c(int session, void **at, MPI_Count *size)
{
    return MPI_Session_detach_buffer_c(MPI_Session_fromint(session), at, size);
}

ENTRY(pmpi_op_create_c_, mpi_op_create_c_,
      (void (*function)(void), int *commute, int *op, int *ierror))
{
    MPI_Op c_op = MPI_OP_NULL;
    *ierror = MPI_Op_create_c((MPI_User_function_c *)function, *commute, &c_op);
    *op = MPI_Op_toint(c_op);
}

ENTRY(pmpi_type_get_contents_c_, mpi_type_get_contents_c_,
      (int *datatype, int64_t *max_integers, int64_t *max_addresses, int64_t *max_counts,
       int64_t *max_datatypes, int *integers, int64_t *addresses, int64_t *counts, int *datatypes,
       int *ierror))
{
    MPI_Datatype type = MPI_Type_fromint(*datatype);
    MPI_Datatype *list = room((int)*max_datatypes, sizeof *list);
    MPI_Count ni, na, nc, nd = 0;
    int combiner;
    *ierror = MPI_Type_get_envelope_c(type, &ni, &na, &nc, &nd, &combiner);
    if (*ierror == MPI_SUCCESS)
        *ierror = MPI_Type_get_contents_c(type, *max_integers, *max_addresses, *max_counts,
                                          *max_datatypes, integers, (MPI_Aint *)addresses,
                                          (MPI_Count *)counts, list);
    for (MPI_Count i = 0; *ierror == MPI_SUCCESS && i < nd; i++)
        datatypes[i] = MPI_Type_toint(list[i]);
    free(list);
}
