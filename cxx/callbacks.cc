// Functions of the program in C++, which MPI calls by way of these.
//
// Kept true: what a key or a representation of data was made with lives as long as the process, for
// attributes may outlive their key. Where the C interface has no place for one more argument the
// library calls with it (crates/abi/src/cxx.rs).

#include "classes.h"

#include <cstdio>

extern "C" {
void ompi_op_set_cxx_callback(MPI_Op op, void *function);

void ompi_mpi_cxx_op_intercept(void *in, void *inout, int *length, MPI_Datatype *type, void *function)
{
    const MPI::Datatype of(*type);
    reinterpret_cast<MPI::Op::User_function *>(function)(in, inout, *length, of);
}

int ompi_mpi_cxx_grequest_query_fn_intercept(void *state, MPI_Status *status)
{
    auto *data = static_cast<MPI::Grequest::Intercept_data_t *>(state);
    MPI::Status told;
    auto *raw = reinterpret_cast<ompi_status_public_t *>(status);
    if (raw != nullptr)
        *reinterpret_cast<ompi_status_public_t *>(told.at()) = *raw;
    const int code = data->query(data->extra, told);
    if (raw != nullptr)
        *raw = *reinterpret_cast<ompi_status_public_t *>(told.at());
    return code;
}

int ompi_mpi_cxx_grequest_free_fn_intercept(void *state)
{
    auto *data = static_cast<MPI::Grequest::Intercept_data_t *>(state);
    const int code = data->free(data->extra);
    delete data;
    return code;
}

int ompi_mpi_cxx_grequest_cancel_fn_intercept(void *state, int complete)
{
    auto *data = static_cast<MPI::Grequest::Intercept_data_t *>(state);
    return data->cancel(data->extra, complete);
}
}

namespace {

const bool said = (MPIX_Eyrie_cxx_reduction(ompi_mpi_cxx_op_intercept), true);

// Calls with the communicator as an object of its kind.
template <typename Call> int with(MPI_Comm comm, Call call)
{
    int inter = 0, kind = 0;
    MPI_Comm_test_inter(comm, &inter);
    if (inter) {
        MPI::Intercomm object(comm);
        return call(object);
    }
    MPI_Topo_test(comm, &kind);
    if (kind == MPI_CART) {
        MPI::Cartcomm object(comm);
        return call(object);
    }
    if (kind == MPI_GRAPH) {
        MPI::Graphcomm object(comm);
        return call(object);
    }
    MPI::Intracomm object(comm);
    return call(object);
}

template <typename Call> int with(MPI_Datatype type, Call call)
{
    MPI::Datatype object(type);
    return call(object);
}

template <typename Call> int with(MPI_Win win, Call call)
{
    MPI::Win object(win);
    return call(object);
}

template <typename Call> int with(MPI_File file, Call call)
{
    MPI::File object(file);
    return call(object);
}

// What a key was made with: each function in C or in C++.
template <typename Object, typename Handle> struct Key {
    int (*c_copy)(Handle, int, void *, void *, void *, int *);
    int (*c_remove)(Handle, int, void *, void *);
    typename Object::Copy_attr_function *copy;
    typename Object::Delete_attr_function *remove;
    void *extra;

    static int copied(Handle of, int key, void *state, void *in, void *out, int *flag)
    {
        const auto *self = static_cast<Key *>(state);
        if (self->copy == nullptr)
            return self->c_copy(of, key, self->extra, in, out, flag);
        bool kept = false;
        const int code = with(of, [&](const Object &object) {
            return self->copy(object, key, self->extra, in, out, kept);
        });
        *flag = kept;
        return code;
    }
    static int removed(Handle of, int key, void *value, void *state)
    {
        const auto *self = static_cast<Key *>(state);
        if (self->remove == nullptr)
            return self->c_remove(of, key, value, self->extra);
        return with(of, [&](Object &object) { return self->remove(object, key, value, self->extra); });
    }
};

// The handler of the program, with the error's text as its last argument.
template <typename Object, typename Handle> void handled(void *of, int *code, void *function)
{
    char text[MPI_MAX_ERROR_STRING];
    int length = 0;
    MPI_Error_string(*code, text, &length);
    with(*static_cast<Handle *>(of), [&](Object &object) {
        reinterpret_cast<typename Object::Errhandler_function *>(function)(object, code, text);
        return 0;
    });
}

MPI::Errhandler handler_of(int kind, eyrie_handler *call, void *function)
{
    MPI_Errhandler made = OBJECT(MPI_Errhandler, mpi_errhandler_null);
    MPIX_Eyrie_cxx_errhandler(kind, call, function, &made);
    return made;
}

}  // namespace

namespace MPI {

extern int mpi_errno;
extern Errhandler ERRORS_THROW_EXCEPTIONS;

// As in an Open MPI that was built without exceptions, which is how packages have it.
static void not_thrown(void *, int *code, void *)
{
    std::fputs("MPI 2 C++ exception throwing is disabled, MPI::mpi_errno has the error code\n", stderr);
    mpi_errno = *code;
}

void InitializeIntercepts()
{
    if (ERRORS_THROW_EXCEPTIONS == OBJECT(MPI_Errhandler, mpi_errhandler_null))
        ERRORS_THROW_EXCEPTIONS = handler_of(3, not_thrown, nullptr);
}

void Op::Init(User_function *function, bool commute)
{
    auto *call = reinterpret_cast<MPI_User_function *>(ompi_mpi_cxx_op_intercept);
    MPI_Op_create(call, commute, &handle);
    ompi_op_set_cxx_callback(handle, reinterpret_cast<void *>(function));
}

Errhandler Comm::Create_errhandler(Errhandler_function *function)
{
    return handler_of(0, handled<Comm, MPI_Comm>, reinterpret_cast<void *>(function));
}

Errhandler Win::Create_errhandler(Errhandler_function *function)
{
    return handler_of(1, handled<Win, MPI_Win>, reinterpret_cast<void *>(function));
}

Errhandler File::Create_errhandler(Errhandler_function *function)
{
    return handler_of(2, handled<File, MPI_File>, reinterpret_cast<void *>(function));
}

int Comm::do_create_keyval(MPI_Comm_copy_attr_function *c_copy, MPI_Comm_delete_attr_function *c_remove,
                           Copy_attr_function *copy, Delete_attr_function *remove, void *extra,
                           int &key)
{
    typedef Key<Comm, MPI_Comm> Of;
    return MPI_Comm_create_keyval(Of::copied, Of::removed, &key,
                                  new Of{c_copy, c_remove, copy, remove, extra});
}

int Win::do_create_keyval(MPI_Win_copy_attr_function *c_copy, MPI_Win_delete_attr_function *c_remove,
                          Copy_attr_function *copy, Delete_attr_function *remove, void *extra, int &key)
{
    typedef Key<Win, MPI_Win> Of;
    return MPI_Win_create_keyval(Of::copied, Of::removed, &key,
                                 new Of{c_copy, c_remove, copy, remove, extra});
}

int Datatype::do_create_keyval(MPI_Type_copy_attr_function *c_copy,
                               MPI_Type_delete_attr_function *c_remove, Copy_attr_function *copy,
                               Delete_attr_function *remove, void *extra, int &key)
{
    typedef Key<Datatype, MPI_Datatype> Of;
    return MPI_Type_create_keyval(Of::copied, Of::removed, &key,
                                  new Of{c_copy, c_remove, copy, remove, extra});
}

// ---- representations of data

typedef void Conversion(void *, Datatype &, int, void *, Offset, void *);
typedef int ConversionInC(void *, MPI_Datatype, int, void *, Offset, void *);
typedef void Extent(const Datatype &, Aint &, void *);

namespace {
struct Representation {
    Conversion *read, *write;
    Extent *extent;
    void *extra;
};

int read_converted(void *user, MPI_Datatype type, int n, void *file, MPI_Offset at, void *state)
{
    const auto *of = static_cast<Representation *>(state);
    Datatype object(type);
    of->read(user, object, n, file, at, of->extra);
    return MPI_SUCCESS;
}

int write_converted(void *user, MPI_Datatype type, int n, void *file, MPI_Offset at, void *state)
{
    const auto *of = static_cast<Representation *>(state);
    Datatype object(type);
    of->write(user, object, n, file, at, of->extra);
    return MPI_SUCCESS;
}

int extent_in_file(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    const auto *of = static_cast<Representation *>(state);
    of->extent(Datatype(type), *extent, of->extra);
    return MPI_SUCCESS;
}

void registered(const char *name, Representation of, ConversionInC *read, ConversionInC *write)
{
    auto in_c = [](ConversionInC *f) { return reinterpret_cast<MPI_Datarep_conversion_function *>(f); };
    MPI_Register_datarep(name, of.read ? read_converted : in_c(read),
                         of.write ? write_converted : in_c(write), extent_in_file,
                         new Representation(of));
}
}  // namespace

void Register_datarep(const char *name, Conversion *read, Conversion *write, Extent *extent, void *extra)
{
    registered(name, {read, write, extent, extra}, nullptr, nullptr);
}

void Register_datarep(const char *name, ConversionInC *read, Conversion *write, Extent *extent,
                      void *extra)
{
    registered(name, {nullptr, write, extent, extra}, read, nullptr);
}

void Register_datarep(const char *name, Conversion *read, ConversionInC *write, Extent *extent,
                      void *extra)
{
    registered(name, {read, nullptr, extent, extra}, nullptr, write);
}

void Register_datarep(const char *name, ConversionInC *read, ConversionInC *write, Extent *extent,
                      void *extra)
{
    registered(name, {nullptr, nullptr, extent, extra}, read, write);
}

}  // namespace MPI
