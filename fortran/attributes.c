/*
 * Attributes for Fortran: values are integers, callbacks take everything by address.
 *
 * Kept true: a key made here carries a record of its Fortran callbacks as C's extra state. The
 * record lives as long as the process, for attributes may outlive their key. A value that Fortran
 * sets lies in a box, and C gets the address of that (MPI 5.0 section 19.3.7); a value that C sets
 * is C's pointer, and Fortran gets the number of that.
 */
#include "entry.h"

#include <string.h>

/* COPY_FN(OLD, KEYVAL, EXTRA_STATE, VALUE_IN, VALUE_OUT, FLAG, IERROR), with wide integers. */
typedef void copy_f(int *, int *, int64_t *, int64_t *, int64_t *, int *, int *);
/* DELETE_FN(OBJECT, KEYVAL, VALUE, EXTRA_STATE, IERROR) */
typedef void delete_f(int *, int *, int64_t *, int64_t *, int *);
/* The same in the form of MPI-1, with default integers. */
typedef void old_copy_f(int *, int *, int *, int *, int *, int *, int *);
typedef void old_delete_f(int *, int *, int *, int *, int *);

struct record {
    void (*copy)(void);
    void (*delete)(void);
    int64_t extra;
    int old_extra;
};

/* The predefined functions: only their addresses count, but they may also be called. */
#define NULL_COPY(name)                                                                       \
    void name(int *o, int *k, int64_t *e, int64_t *in, int64_t *out, int *flag, int *ierror)  \
    {                                                                                         \
        (void)o, (void)k, (void)e, (void)in, (void)out;                                       \
        *flag = 0;                                                                            \
        *ierror = MPI_SUCCESS;                                                                \
    }
#define DUP(name)                                                                             \
    void name(int *o, int *k, int64_t *e, int64_t *in, int64_t *out, int *flag, int *ierror)  \
    {                                                                                         \
        (void)o, (void)k, (void)e;                                                            \
        *out = *in;                                                                           \
        *flag = 1;                                                                            \
        *ierror = MPI_SUCCESS;                                                                \
    }
#define NULL_DELETE(name)                                                                     \
    void name(int *o, int *k, int64_t *v, int64_t *e, int *ierror)                            \
    {                                                                                         \
        (void)o, (void)k, (void)v, (void)e;                                                   \
        *ierror = MPI_SUCCESS;                                                                \
    }

NULL_COPY(mpi_comm_null_copy_fn_)
NULL_COPY(mpi_type_null_copy_fn_)
NULL_COPY(mpi_win_null_copy_fn_)
NULL_COPY(mpi_null_copy_fn_)
DUP(mpi_comm_dup_fn_)
DUP(mpi_type_dup_fn_)
DUP(mpi_win_dup_fn_)
NULL_DELETE(mpi_comm_null_delete_fn_)
NULL_DELETE(mpi_type_null_delete_fn_)
NULL_DELETE(mpi_win_null_delete_fn_)
NULL_DELETE(mpi_null_delete_fn_)

void mpi_dup_fn_(int *o, int *k, int *e, int *in, int *out, int *flag, int *ierror)
{
    (void)o, (void)k, (void)e;
    *out = *in;
    *flag = 1;
    *ierror = MPI_SUCCESS;
}

/* Boxes of values; a free one holds the address of the next. An attribute of a key that C made keeps its
 * box when it is deleted, as C's function does not give it back. */
enum { BOXES = 255 };
static struct shelf {
    struct shelf *next;
    int64_t box[BOXES];
} *shelves;
static int64_t *free_box;

static int is_box(const void *at)
{
    for (struct shelf *s = shelves; s; s = s->next)
        if ((const int64_t *)at >= s->box && (const int64_t *)at < s->box + BOXES)
            return 1;
    return 0;
}

static void empty(void *at)
{
    if (!is_box(at))
        return;
    *(int64_t *)at = (int64_t)(intptr_t)free_box;
    free_box = at;
}

static void *boxed(int64_t value)
{
    if (!free_box) {
        struct shelf *s = room(1, sizeof *s);
        s->next = shelves;
        shelves = s;
        for (int i = BOXES; i-- > 0;)
            empty(&s->box[i]);
    }
    int64_t *at = free_box;
    free_box = (int64_t *)(intptr_t)*at;
    *at = value;
    return at;
}

static int64_t value_of(const void *found)
{
    return is_box(found) ? *(const int64_t *)found : (int64_t)(intptr_t)found;
}

/* What a copy function gave, in the form that the original has. */
static void *copied(const void *from, int64_t to)
{
    return is_box(from) ? boxed(to) : (void *)(intptr_t)to;
}

static struct record *record_of(void (*copy)(void), void (*delete)(void), int64_t extra)
{
    struct record *r = room(1, sizeof *r);
    r->copy = copy;
    r->delete = delete;
    r->extra = extra;
    r->old_extra = (int)extra;
    return r;
}

/* The functions for one kind of object: C's name, handle, its conversions, Fortran's name. */
#define KIND(Name, Handle, Toint, Fromint, name)                                              \
    static int name##_copy(Handle object, int key, void *extra, void *in, void *out, int *flag) \
    {                                                                                         \
        struct record *r = extra;                                                             \
        int h = Toint(object), error = MPI_SUCCESS;                                           \
        int64_t from = value_of(in), to = 0;                                                  \
        ((copy_f *)r->copy)(&h, &key, &r->extra, &from, &to, flag, &error);                   \
        if (error == MPI_SUCCESS && *flag)                                                    \
            *(void **)out = copied(in, to);                                                   \
        return error;                                                                         \
    }                                                                                         \
    static int name##_delete(Handle object, int key, void *value, void *extra)                \
    {                                                                                         \
        struct record *r = extra;                                                             \
        int h = Toint(object), error = MPI_SUCCESS;                                           \
        int64_t v = value_of(value);                                                          \
        ((delete_f *)r->delete)(&h, &key, &v, &r->extra, &error);                             \
        if (error == MPI_SUCCESS)                                                             \
            empty(value);                                                                     \
        return error;                                                                         \
    }                                                                                         \
    ENTRY(pmpi_##name##_create_keyval_, mpi_##name##_create_keyval_,                          \
          (void (*copy)(void), void (*delete)(void), int *keyval, int64_t *extra, int *ierror)) \
    {                                                                                         \
        MPI_##Name##_copy_attr_function *c = name##_copy;                                     \
        if (copy == (void (*)(void))mpi_##name##_null_copy_fn_)                               \
            c = NULL;                                                                         \
        *ierror = MPI_##Name##_create_keyval(c, name##_delete, keyval,                        \
                                             record_of(copy, delete, *extra));                \
    }                                                                                         \
    ENTRY(pmpi_##name##_set_attr_, mpi_##name##_set_attr_,                                    \
          (int *object, int *keyval, int64_t *value, int *ierror))                            \
    {                                                                                         \
        *ierror = MPI_##Name##_set_attr(Fromint(*object), *keyval, boxed(*value));            \
    }                                                                                         \
    ENTRY(pmpi_##name##_get_attr_, mpi_##name##_get_attr_,                                    \
          (int *object, int *keyval, int64_t *value, int *flag, int *ierror))                 \
    {                                                                                         \
        void *found = NULL;                                                                   \
        *ierror = MPI_##Name##_get_attr(Fromint(*object), *keyval, &found, flag);             \
        if (*ierror == MPI_SUCCESS && *flag)                                                  \
            *value = number(*keyval, found);                                                  \
    }

/* Predefined attributes of communicators are addresses of an int in C, numbers in Fortran. */
static int64_t number(int keyval, void *found)
{
    if (keyval >= MPI_TAG_UB && keyval <= MPI_UNIVERSE_SIZE)
        return *(int *)found;
    return value_of(found);
}

KIND(Comm, MPI_Comm, MPI_Comm_toint, MPI_Comm_fromint, comm)
KIND(Type, MPI_Datatype, MPI_Type_toint, MPI_Type_fromint, type)
KIND(Win, MPI_Win, MPI_Win_toint, MPI_Win_fromint, win)

/* ---- the names of MPI-1, with default integers */

static int old_copy(MPI_Comm comm, int key, void *extra, void *in, void *out, int *flag)
{
    struct record *r = extra;
    int h = MPI_Comm_toint(comm), error = MPI_SUCCESS, from = (int)value_of(in), to = 0;
    ((old_copy_f *)r->copy)(&h, &key, &r->old_extra, &from, &to, flag, &error);
    if (error == MPI_SUCCESS && *flag)
        *(void **)out = copied(in, to);
    return error;
}

static int old_delete(MPI_Comm comm, int key, void *value, void *extra)
{
    struct record *r = extra;
    int h = MPI_Comm_toint(comm), error = MPI_SUCCESS, v = (int)value_of(value);
    ((old_delete_f *)r->delete)(&h, &key, &v, &r->old_extra, &error);
    if (error == MPI_SUCCESS)
        empty(value);
    return error;
}

ENTRY(pmpi_keyval_create_, mpi_keyval_create_,
      (void (*copy)(void), void (*delete)(void), int *keyval, int *extra, int *ierror))
{
    MPI_Comm_copy_attr_function *c = old_copy;
    if (copy == (void (*)(void))mpi_null_copy_fn_)
        c = NULL;
    *ierror = MPI_Comm_create_keyval(c, old_delete, keyval, record_of(copy, delete, *extra));
}

ENTRY(pmpi_attr_put_, mpi_attr_put_, (int *comm, int *keyval, int *value, int *ierror))
{
    *ierror = MPI_Comm_set_attr(MPI_Comm_fromint(*comm), *keyval, boxed(*value));
}

ENTRY(pmpi_attr_get_, mpi_attr_get_, (int *comm, int *keyval, int *value, int *flag, int *ierror))
{
    void *found = NULL;
    *ierror = MPI_Comm_get_attr(MPI_Comm_fromint(*comm), *keyval, &found, flag);
    if (*ierror == MPI_SUCCESS && *flag)
        *value = (int)number(*keyval, found);
}
