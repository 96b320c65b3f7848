/*
 * Representations of data in files for Fortran: callbacks take everything by address.
 *
 * Kept true: C's extra state is a record of the Fortran callbacks. It lives as long as the process, as a
 * representation does.
 */
#include "entry.h"

/* CONVERSION_FN(USERBUF, DATATYPE, COUNT, FILEBUF, POSITION, EXTRA_STATE, IERROR) */
typedef void conversion_f(void *, int *, int *, void *, int64_t *, int64_t *, int *);
/* EXTENT_FN(DATATYPE, EXTENT, EXTRA_STATE, IERROR) */
typedef void extent_f(int *, int64_t *, int64_t *, int *);

struct datarep {
    conversion_f *read, *write;
    extent_f *extent;
    int64_t extra;
};

/* Only its address counts. */
void mpi_conversion_fn_null_(void *user, int *type, int *n, void *file, int64_t *at, int64_t *extra, int *ierror)
{
    (void)user, (void)type, (void)n, (void)file, (void)at, (void)extra;
    *ierror = MPI_ERR_CONVERSION;
}

static int converted(struct datarep *of, conversion_f *f, void *user, MPI_Datatype type, int n, void *file,
                     MPI_Offset at)
{
    int f_type = MPI_Type_toint(type), error = MPI_SUCCESS;
    int64_t position = at;
    f(user, &f_type, &n, file, &position, &of->extra, &error);
    return error;
}

static int read_converted(void *user, MPI_Datatype type, int n, void *file, MPI_Offset at, void *of)
{
    return converted(of, ((struct datarep *)of)->read, user, type, n, file, at);
}

static int write_converted(void *user, MPI_Datatype type, int n, void *file, MPI_Offset at, void *of)
{
    return converted(of, ((struct datarep *)of)->write, user, type, n, file, at);
}

static int file_extent(MPI_Datatype type, MPI_Aint *extent, void *of)
{
    struct datarep *rep = of;
    int f_type = MPI_Type_toint(type), error = MPI_SUCCESS;
    int64_t bytes = 0;
    rep->extent(&f_type, &bytes, &rep->extra, &error);
    *extent = bytes;
    return error;
}

ENTRY(pmpi_register_datarep_, mpi_register_datarep_,
      (const char *name, conversion_f *read_fn, conversion_f *write_fn, extent_f *extent_fn, int64_t *extra,
       int *ierror, size_t l_name))
{
    char *c_name = text_in(name, l_name);
    struct datarep *rep = room(1, sizeof *rep);
    *rep = (struct datarep){read_fn, write_fn, extent_fn, *extra};
    *ierror = MPI_Register_datarep(c_name,
                                   read_fn == mpi_conversion_fn_null_ ? MPI_CONVERSION_FN_NULL : read_converted,
                                   write_fn == mpi_conversion_fn_null_ ? MPI_CONVERSION_FN_NULL : write_converted,
                                   file_extent, rep);
    if (*ierror != MPI_SUCCESS)
        free(rep);
    free(c_name);
}
