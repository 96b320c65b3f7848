/* Names that MPI-3 removed and old Fortran programs still use. Addresses are default integers. */
#include "entry.h"

static int fits(MPI_Aint value, int *out, int error)
{
    if (error != MPI_SUCCESS)
        return error;
    *out = (int)value;
    return value == *out ? MPI_SUCCESS : MPI_ERR_VALUE_TOO_LARGE;
}

ENTRY(pmpi_address_, mpi_address_, (void *location, int *at, int *ierror))
{
    MPI_Aint wide = 0;
    int error = MPI_Get_address(choice_at(location), &wide);
    *ierror = fits(wide, at, error);
}

ENTRY(pmpi_type_extent_, mpi_type_extent_, (int *datatype, int *extent, int *ierror))
{
    MPI_Aint lb = 0, wide = 0;
    int error = MPI_Type_get_extent(MPI_Type_fromint(*datatype), &lb, &wide);
    *ierror = fits(wide, extent, error);
}

ENTRY(pmpi_type_lb_, mpi_type_lb_, (int *datatype, int *lb, int *ierror))
{
    MPI_Aint wide = 0, extent = 0;
    int error = MPI_Type_get_extent(MPI_Type_fromint(*datatype), &wide, &extent);
    *ierror = fits(wide, lb, error);
}

ENTRY(pmpi_type_ub_, mpi_type_ub_, (int *datatype, int *ub, int *ierror))
{
    MPI_Aint lb = 0, extent = 0;
    int error = MPI_Type_get_extent(MPI_Type_fromint(*datatype), &lb, &extent);
    *ierror = fits(lb + extent, ub, error);
}

ENTRY(pmpi_type_hvector_, mpi_type_hvector_,
      (int *count, int *block, int *stride, int *old, int *new, int *ierror))
{
    MPI_Datatype made = MPI_DATATYPE_NULL;
    *ierror = MPI_Type_create_hvector(*count, *block, *stride, MPI_Type_fromint(*old), &made);
    *new = MPI_Type_toint(made);
}

ENTRY(pmpi_type_hindexed_, mpi_type_hindexed_,
      (int *count, int *blocks, int *displs, int *old, int *new, int *ierror))
{
    MPI_Datatype made = MPI_DATATYPE_NULL;
    MPI_Aint *wide = room(*count, sizeof *wide);
    for (int i = 0; i < *count; i++)
        wide[i] = displs[i];
    *ierror = MPI_Type_create_hindexed(*count, blocks, wide, MPI_Type_fromint(*old), &made);
    *new = MPI_Type_toint(made);
    free(wide);
}

ENTRY(pmpi_type_struct_, mpi_type_struct_,
      (int *count, int *blocks, int *displs, int *types, int *new, int *ierror))
{
    MPI_Datatype made = MPI_DATATYPE_NULL;
    MPI_Aint *wide = room(*count, sizeof *wide);
    MPI_Datatype *list = room(*count, sizeof *list);
    for (int i = 0; i < *count; i++) {
        wide[i] = displs[i];
        list[i] = MPI_Type_fromint(types[i]);
    }
    *ierror = MPI_Type_create_struct(*count, blocks, wide, list, &made);
    *new = MPI_Type_toint(made);
    free(wide);
    free(list);
}

ENTRY(pmpi_errhandler_create_, mpi_errhandler_create_,
      (void (*function)(void), int *errhandler, int *ierror))
{
    MPI_Errhandler made = MPI_ERRHANDLER_NULL;
    *ierror = MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)function, &made);
    *errhandler = MPI_Errhandler_toint(made);
}

ENTRY(pmpi_errhandler_set_, mpi_errhandler_set_, (int *comm, int *errhandler, int *ierror))
{
    *ierror = MPI_Comm_set_errhandler(MPI_Comm_fromint(*comm), MPI_Errhandler_fromint(*errhandler));
}

ENTRY(pmpi_errhandler_get_, mpi_errhandler_get_, (int *comm, int *errhandler, int *ierror))
{
    MPI_Errhandler found = MPI_ERRHANDLER_NULL;
    *ierror = MPI_Comm_get_errhandler(MPI_Comm_fromint(*comm), &found);
    *errhandler = MPI_Errhandler_toint(found);
}
