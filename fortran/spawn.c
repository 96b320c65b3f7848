/*
 * Fortran routines that start programs: lists of strings end with a blank one, and count at the root
 * only.
 */
#include "entry.h"

#include <string.h>

extern int eyrie_mpi_errcodes_ignore_[1];
extern char eyrie_mpi_argv_null_[1];
extern char eyrie_mpi_argvs_null_[1];

/* The strings from `at` on, each `length` long and `step` strings behind the one before. */
static char **strings(const char *at, size_t length, size_t step)
{
    int count = 0;
    char **list, *text;
    for (;; count++) {
        text = name_in(at + (size_t)count * step * length, length);
        int last = !*text;
        free(text);
        if (last)
            break;
    }
    list = room(count + 1, sizeof *list);
    for (int i = 0; i < count; i++)
        list[i] = text_in(at + (size_t)i * step * length, length);
    return list;
}

static void free_strings(char **list)
{
    for (int i = 0; list && list[i]; i++)
        free(list[i]);
    free(list);
}

static int is_root(MPI_Comm comm, int root)
{
    int rank;
    return MPI_Comm_rank(comm, &rank) == MPI_SUCCESS && rank == root;
}

static int *codes_at(int *codes)
{
    return codes == eyrie_mpi_errcodes_ignore_ ? MPI_ERRCODES_IGNORE : codes;
}

ENTRY(pmpi_comm_spawn_, mpi_comm_spawn_,
      (const char *command, const char *argv, int *maxprocs, int *info, int *root, int *comm,
       int *intercomm, int *codes, int *ierror, size_t command_length, size_t argv_length))
{
    MPI_Comm parents = MPI_Comm_fromint(*comm), made = MPI_COMM_NULL;
    char *program = NULL, **list = NULL;
    MPI_Info hints = MPI_INFO_NULL;
    int most = 0;
    if (is_root(parents, *root)) {
        program = text_in(command, command_length);
        if (argv != eyrie_mpi_argv_null_)
            list = strings(argv, argv_length, 1);
        hints = MPI_Info_fromint(*info);
        most = *maxprocs;
    }
    *ierror = MPI_Comm_spawn(program, list, most, hints, *root, parents, &made, codes_at(codes));
    *intercomm = MPI_Comm_toint(made);
    free_strings(list);
    free(program);
}

ENTRY(pmpi_comm_spawn_multiple_, mpi_comm_spawn_multiple_,
      (int *count, const char *commands, const char *argvs, int *maxprocs, int *infos, int *root,
       int *comm, int *intercomm, int *codes, int *ierror, size_t command_length,
       size_t argv_length))
{
    MPI_Comm parents = MPI_Comm_fromint(*comm), made = MPI_COMM_NULL;
    int n = is_root(parents, *root) ? *count : 0;
    char **programs = room(n + 1, sizeof *programs), ***lists = NULL;
    MPI_Info *hints = room(n, sizeof *hints);
    if (n > 0 && argvs != eyrie_mpi_argvs_null_)
        lists = room(n, sizeof *lists);
    for (int i = 0; i < n; i++) {
        programs[i] = text_in(commands + (size_t)i * command_length, command_length);
        hints[i] = MPI_Info_fromint(infos[i]);
        if (lists)
            lists[i] = strings(argvs + (size_t)i * argv_length, argv_length, (size_t)n);
    }
    *ierror = MPI_Comm_spawn_multiple(n, programs, lists, maxprocs, hints, *root, parents, &made,
                                      codes_at(codes));
    *intercomm = MPI_Comm_toint(made);
    for (int i = 0; lists && i < n; i++)
        free_strings(lists[i]);
    free(lists);
    free(hints);
    free_strings(programs);
}
