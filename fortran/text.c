/* Memory and strings of the Fortran entry points; the common blocks of mpif.h. */
#include "entry.h"

#include <stdio.h>
#include <string.h>

int eyrie_mpi_bottom_;
int eyrie_mpi_in_place_;
int eyrie_mpi_status_ignore_[8];
int eyrie_mpi_statuses_ignore_[8];
int eyrie_mpi_f08_status_ignore[8];
int eyrie_mpi_f08_statuses_ignore[8];
int eyrie_mpi_errcodes_ignore_[1];
int eyrie_mpi_unweighted_[1];
int eyrie_mpi_weights_empty_[1];
char eyrie_mpi_argv_null_[1];
char eyrie_mpi_argvs_null_[1];

void *room(int count, size_t size)
{
    void *at = calloc(count > 0 ? (size_t)count : 1, size);
    if (!at) {
        fprintf(stderr, "eyrie: no memory for an argument of a Fortran call\n");
        MPI_Abort(MPI_COMM_WORLD, MPI_ERR_NO_MEM);
        abort();
    }
    return at;
}

/* A C string of a Fortran one: blanks at its end do not count. */
char *name_in(const char *text, size_t length)
{
    while (length > 0 && text[length - 1] == ' ')
        length--;
    char *copy = room((int)length + 1, 1);
    memcpy(copy, text, length);
    return copy;
}

/* The same where blanks in front do not count either. */
char *text_in(const char *text, size_t length)
{
    while (length > 0 && *text == ' ') {
        text++;
        length--;
    }
    return name_in(text, length);
}

/* Room for what the library writes, whatever the program's string holds. */
char *text_room(size_t length)
{
    size_t most = MPI_MAX_LIBRARY_VERSION_STRING;
    return room((int)(length + 1 > most ? length + 1 : most), 1);
}

/* Copies to the program's string and fills it up with blanks; frees `from`. */
void text_out(char *from, char *to, size_t length, int error)
{
    if (error == MPI_SUCCESS) {
        size_t have = strlen(from);
        if (have > length)
            have = length;
        memcpy(to, from, have);
        memset(to + have, ' ', length - have);
    }
    free(from);
}

int comm_size(int comm)
{
    int size = 0;
    MPI_Comm_size(MPI_Comm_fromint(comm), &size);
    return size;
}

/* An error is left to the routine itself, which finds the same. */
static int neighbours(int comm, int which)
{
    MPI_Comm c = MPI_Comm_fromint(comm);
    int topology = MPI_UNDEFINED, count[3] = {0, 0, 0}, rank = 0;
    if (MPI_Topo_test(c, &topology) != MPI_SUCCESS)
        return 0;
    if (topology == MPI_CART && MPI_Cartdim_get(c, &count[0]) == MPI_SUCCESS)
        return 2 * count[0];
    if (topology == MPI_GRAPH && MPI_Comm_rank(c, &rank) == MPI_SUCCESS &&
        MPI_Graph_neighbors_count(c, rank, &count[0]) == MPI_SUCCESS)
        return count[0];
    if (topology == MPI_DIST_GRAPH &&
        MPI_Dist_graph_neighbors_count(c, &count[0], &count[1], &count[2]) == MPI_SUCCESS)
        return count[which];
    return 0;
}

int sources(int comm)
{
    return neighbours(comm, 0);
}

int destinations(int comm)
{
    return neighbours(comm, 1);
}

/* C's names for the addresses that mean "no status", which are Fortran's variables. */
__attribute__((constructor)) static void name_ignored(void)
{
    MPI_F_STATUS_IGNORE = eyrie_mpi_status_ignore_;
    MPI_F_STATUSES_IGNORE = eyrie_mpi_statuses_ignore_;
    MPI_F08_STATUS_IGNORE = (MPI_F08_status *)eyrie_mpi_f08_status_ignore;
    MPI_F08_STATUSES_IGNORE = (MPI_F08_status *)eyrie_mpi_f08_statuses_ignore;
}
