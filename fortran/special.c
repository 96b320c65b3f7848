/*
 * Fortran routines that differ from C in more than how arguments are passed: indices from 1,
 * callbacks, addresses that are given back.
 */
#include "entry.h"

#include <string.h>

ENTRY(pmpi_init_, mpi_init_, (int *ierror))
{
    *ierror = MPI_Init(NULL, NULL);
}

ENTRY(pmpi_init_thread_, mpi_init_thread_, (int *required, int *provided, int *ierror))
{
    *ierror = MPI_Init_thread(NULL, NULL, *required, provided);
}

ENTRY(pmpi_pcontrol_, mpi_pcontrol_, (int *level))
{
    MPI_Pcontrol(*level);
}

/* To a compiler this call may read and write the buffer; that is all it is for. */
ENTRY(pmpi_f_sync_reg_, mpi_f_sync_reg_, (void *buffer))
{
    (void)buffer;
}

ENTRY(pmpi_info_create_env_, mpi_info_create_env_, (int *info, int *ierror))
{
    MPI_Info c_info = MPI_INFO_NULL;
    *ierror = MPI_Info_create_env(0, NULL, &c_info);
    *info = MPI_Info_toint(c_info);
}

/* ---- the functions */

double pmpi_wtime_(void) { return MPI_Wtime(); }
double mpi_wtime_(void) __attribute__((weak, alias("pmpi_wtime_")));
double pmpi_wtick_(void) { return MPI_Wtick(); }
double mpi_wtick_(void) __attribute__((weak, alias("pmpi_wtick_")));

int64_t pmpi_aint_add_(int64_t *base, int64_t *disp) { return MPI_Aint_add(*base, *disp); }
int64_t mpi_aint_add_(int64_t *, int64_t *) __attribute__((weak, alias("pmpi_aint_add_")));
int64_t pmpi_aint_diff_(int64_t *a, int64_t *b) { return MPI_Aint_diff(*a, *b); }
int64_t mpi_aint_diff_(int64_t *, int64_t *) __attribute__((weak, alias("pmpi_aint_diff_")));

/* ---- indices count from 1 */

static MPI_Request *requests_in(int n, const int *requests)
{
    MPI_Request *list = room(n, sizeof *list);
    for (int i = 0; i < n; i++)
        list[i] = MPI_Request_fromint(requests[i]);
    return list;
}

static void requests_out(int n, MPI_Request *list, int *requests)
{
    for (int i = 0; i < n; i++)
        requests[i] = MPI_Request_toint(list[i]);
    free(list);
}

ENTRY(pmpi_waitany_, mpi_waitany_, (int *count, int *requests, int *index, void *status, int *ierror))
{
    MPI_Request *list = requests_in(*count, requests);
    *ierror = MPI_Waitany(*count, list, index, status_at(status));
    requests_out(*count, list, requests);
    if (*ierror == MPI_SUCCESS && *index != MPI_UNDEFINED)
        ++*index;
}

ENTRY(pmpi_testany_, mpi_testany_,
      (int *count, int *requests, int *index, int *flag, void *status, int *ierror))
{
    MPI_Request *list = requests_in(*count, requests);
    *ierror = MPI_Testany(*count, list, index, flag, status_at(status));
    requests_out(*count, list, requests);
    if (*ierror == MPI_SUCCESS && *index != MPI_UNDEFINED)
        ++*index;
}

static void count_from_one(int error, int n, int *indices)
{
    if ((error == MPI_SUCCESS || error == MPI_ERR_IN_STATUS) && n != MPI_UNDEFINED)
        for (int i = 0; i < n; i++)
            ++indices[i];
}

ENTRY(pmpi_waitsome_, mpi_waitsome_,
      (int *incount, int *requests, int *outcount, int *indices, void *statuses, int *ierror))
{
    MPI_Request *list = requests_in(*incount, requests);
    *ierror = MPI_Waitsome(*incount, list, outcount, indices, statuses_at(statuses));
    requests_out(*incount, list, requests);
    count_from_one(*ierror, *outcount, indices);
}

ENTRY(pmpi_testsome_, mpi_testsome_,
      (int *incount, int *requests, int *outcount, int *indices, void *statuses, int *ierror))
{
    MPI_Request *list = requests_in(*incount, requests);
    *ierror = MPI_Testsome(*incount, list, outcount, indices, statuses_at(statuses));
    requests_out(*incount, list, requests);
    count_from_one(*ierror, *outcount, indices);
}

ENTRY(pmpi_request_get_status_any_, mpi_request_get_status_any_,
      (int *count, int *requests, int *index, int *flag, void *status, int *ierror))
{
    MPI_Request *list = requests_in(*count, requests);
    *ierror = MPI_Request_get_status_any(*count, list, index, flag, status_at(status));
    free(list);
    if (*ierror == MPI_SUCCESS && *flag && *index != MPI_UNDEFINED)
        ++*index;
}

ENTRY(pmpi_request_get_status_some_, mpi_request_get_status_some_,
      (int *incount, int *requests, int *outcount, int *indices, void *statuses, int *ierror))
{
    MPI_Request *list = requests_in(*incount, requests);
    *ierror = MPI_Request_get_status_some(*incount, list, outcount, indices, statuses_at(statuses));
    free(list);
    count_from_one(*ierror, *outcount, indices);
}

/*
 * ---- buffers: in mpif.h and in the module mpi programs do not get the address back. The module
 * mpi_f08 has a variable for it.
 */

int eyrie_mpi_f08_buffer_detach(void **at, int *size)
{
    return MPI_Buffer_detach(at, size);
}

int eyrie_mpi_f08_comm_detach_buffer(int comm, void **at, int *size)
{
    return MPI_Comm_detach_buffer(MPI_Comm_fromint(comm), at, size);
}

int eyrie_mpi_f08_session_detach_buffer(int session, void **at, int *size)
{
    return MPI_Session_detach_buffer(MPI_Session_fromint(session), at, size);
}

ENTRY(pmpi_buffer_detach_, mpi_buffer_detach_, (void *buffer, int *size, int *ierror))
{
    void *at = NULL;
    (void)buffer;
    *ierror = MPI_Buffer_detach(&at, size);
}

ENTRY(pmpi_comm_detach_buffer_, mpi_comm_detach_buffer_,
      (int *comm, void *buffer, int *size, int *ierror))
{
    void *at = NULL;
    (void)buffer;
    *ierror = MPI_Comm_detach_buffer(MPI_Comm_fromint(*comm), &at, size);
}

ENTRY(pmpi_session_detach_buffer_, mpi_session_detach_buffer_,
      (int *session, void *buffer, int *size, int *ierror))
{
    void *at = NULL;
    (void)buffer;
    *ierror = MPI_Session_detach_buffer(MPI_Session_fromint(*session), &at, size);
}

/* ---- sessions: a length of 0 asks for the length, which has no zero at its end here */

ENTRY(pmpi_session_get_nth_pset_, mpi_session_get_nth_pset_,
      (int *session, int *info, int *n, int *length, char *name, int *ierror, size_t l_name))
{
    MPI_Session of = MPI_Session_fromint(*session);
    MPI_Info hints = MPI_Info_fromint(*info);
    int asked = *length, have = 0;
    *ierror = MPI_Session_get_nth_pset(of, hints, *n, &have, NULL);
    *length = have > 0 ? have - 1 : 0;
    if (*ierror != MPI_SUCCESS || asked == 0)
        return;
    char *text = room(have, 1);
    *ierror = MPI_Session_get_nth_pset(of, hints, *n, &have, text);
    text_out(text, name, (size_t)asked < l_name ? (size_t)asked : l_name, *ierror);
}

/* ---- generalised requests: what the program's three functions are called with */

struct generalised {
    void (*query)(int64_t *extra, void *status, int *ierror);
    void (*free)(int64_t *extra, int *ierror);
    void (*cancel)(int64_t *extra, int *complete, int *ierror);
    int64_t extra;
};

static int query_generalised(void *of, MPI_Status *status)
{
    struct generalised *g = of;
    int error = MPI_SUCCESS;
    g->query(&g->extra, status, &error);
    return error;
}

static int free_generalised(void *of)
{
    struct generalised *g = of;
    int error = MPI_SUCCESS;
    g->free(&g->extra, &error);
    free(g);
    return error;
}

static int cancel_generalised(void *of, int complete)
{
    struct generalised *g = of;
    int error = MPI_SUCCESS;
    g->cancel(&g->extra, &complete, &error);
    return error;
}

ENTRY(pmpi_grequest_start_, mpi_grequest_start_,
      (void (*query)(int64_t *, void *, int *), void (*free_fn)(int64_t *, int *),
       void (*cancel)(int64_t *, int *, int *), int64_t *extra, int *request, int *ierror))
{
    struct generalised *g = room(1, sizeof *g);
    MPI_Request made = MPI_REQUEST_NULL;
    *g = (struct generalised){query, free_fn, cancel, *extra};
    *ierror = MPI_Grequest_start(query_generalised, free_generalised, cancel_generalised, g, &made);
    *request = MPI_Request_toint(made);
}

/* ---- datatypes */

ENTRY(pmpi_type_get_contents_, mpi_type_get_contents_,
      (int *datatype, int *max_integers, int *max_addresses, int *max_datatypes, int *integers,
       int64_t *addresses, int *datatypes, int *ierror))
{
    MPI_Datatype type = MPI_Type_fromint(*datatype);
    MPI_Datatype *list = room(*max_datatypes, sizeof *list);
    int ni, na, nd = 0, combiner;
    *ierror = MPI_Type_get_envelope(type, &ni, &na, &nd, &combiner);
    if (*ierror == MPI_SUCCESS)
        *ierror = MPI_Type_get_contents(type, *max_integers, *max_addresses, *max_datatypes,
                                        integers, (MPI_Aint *)addresses, list);
    for (int i = 0; *ierror == MPI_SUCCESS && i < nd; i++)
        datatypes[i] = MPI_Type_toint(list[i]);
    free(list);
}

/* ---- info: the length of the value is that of the program's string at most */

ENTRY(pmpi_info_get_, mpi_info_get_,
      (int *info, char *key, int *valuelen, char *value, int *flag, int *ierror, size_t l_key,
       size_t l_value))
{
    char *c_key = text_in(key, l_key);
    char *c_value = text_room(l_value);
    int most = *valuelen < (int)l_value ? *valuelen : (int)l_value;
    *ierror = MPI_Info_get(MPI_Info_fromint(*info), c_key, most, c_value, flag);
    text_out(c_value, value, l_value, *flag ? *ierror : MPI_ERR_OTHER);
    free(c_key);
}

ENTRY(pmpi_info_get_string_, mpi_info_get_string_,
      (int *info, char *key, int *buflen, char *value, int *flag, int *ierror, size_t l_key,
       size_t l_value))
{
    char *c_key = text_in(key, l_key);
    char *c_value = text_room(l_value);
    int most = *buflen < (int)l_value ? *buflen : (int)l_value;
    int length = *buflen > 0 ? most + 1 : 0;
    *ierror = MPI_Info_get_string(MPI_Info_fromint(*info), c_key, &length, c_value, flag);
    if (*ierror == MPI_SUCCESS && *flag) {
        if (*buflen > 0)
            text_out(c_value, value, l_value, *ierror);
        else
            free(c_value);
        *buflen = length - 1;
    } else {
        free(c_value);
    }
    free(c_key);
}

/*
 * ---- callbacks
 * A C handle holds its INTEGER in its low half, so that on a little-endian machine the address of
 * a C handle is the address of the Fortran one: operations and error handlers need no wrapper.
 */

ENTRY(pmpi_op_create_, mpi_op_create_, (void (*function)(void), int *commute, int *op, int *ierror))
{
    MPI_Op c_op = MPI_OP_NULL;
    *ierror = MPI_Op_create((MPI_User_function *)function, *commute, &c_op);
    *op = MPI_Op_toint(c_op);
}

ENTRY(pmpi_comm_create_errhandler_, mpi_comm_create_errhandler_,
      (void (*function)(void), int *errhandler, int *ierror))
{
    MPI_Errhandler c_handler = MPI_ERRHANDLER_NULL;
    *ierror = MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)function, &c_handler);
    *errhandler = MPI_Errhandler_toint(c_handler);
}

ENTRY(pmpi_win_create_errhandler_, mpi_win_create_errhandler_,
      (void (*function)(void), int *errhandler, int *ierror))
{
    MPI_Errhandler c_handler = MPI_ERRHANDLER_NULL;
    *ierror = MPI_Win_create_errhandler((MPI_Win_errhandler_function *)function, &c_handler);
    *errhandler = MPI_Errhandler_toint(c_handler);
}

ENTRY(pmpi_session_create_errhandler_, mpi_session_create_errhandler_,
      (void (*function)(void), int *errhandler, int *ierror))
{
    MPI_Errhandler c_handler = MPI_ERRHANDLER_NULL;
    *ierror = MPI_Session_create_errhandler((MPI_Session_errhandler_function *)function, &c_handler);
    *errhandler = MPI_Errhandler_toint(c_handler);
}

ENTRY(pmpi_file_create_errhandler_, mpi_file_create_errhandler_,
      (void (*function)(void), int *errhandler, int *ierror))
{
    MPI_Errhandler c_handler = MPI_ERRHANDLER_NULL;
    *ierror = MPI_File_create_errhandler((MPI_File_errhandler_function *)function, &c_handler);
    *errhandler = MPI_Errhandler_toint(c_handler);
}
