// The classes of MPI's C++ bindings (MPI-2.2), laid out as Open MPI's header has them: programs
// were compiled with that, call through these tables of virtual functions, and hold these objects.
//
// Kept true: each class is its table and one handle, virtual functions stand in the header's order,
// and names are those of the header. What is not virtual is in the program. (Compared with Open
// MPI's library by tests/ecosystem/openmpi.py.)
#ifndef EYRIE_CXX_CLASSES_H
#define EYRIE_CXX_CLASSES_H

#include "openmpi.h"

namespace MPI {

typedef MPI_Aint Aint;
typedef long long Offset;

class Comm;
class Intercomm;
class Intracomm;
class Cartcomm;
class Graphcomm;

// Construction, assignment, and what the object stands for.
#define HANDLE(Class, Handle, null)                          \
  protected:                                                 \
    Handle handle;                                           \
                                                             \
  public:                                                    \
    Class() : handle(OBJECT(Handle, null)) {}                \
    Class(Handle given) : handle(given) {}                   \
    Class(const Class &other) : handle(other.handle) {}      \
    virtual ~Class() {}                                      \
    Class &operator=(const Class &other)                     \
    {                                                        \
        handle = other.handle;                               \
        return *this;                                        \
    }                                                        \
    operator Handle() const { return handle; }               \
    Handle *place() { return &handle; }

class Status {
    ompi_status_public_t status;

  public:
    Status() : status() {}
    Status(const Status &other) : status(other.status) {}
    virtual ~Status() {}
    Status &operator=(const Status &other)
    {
        status = other.status;
        return *this;
    }
    MPI_Status *at() { return reinterpret_cast<MPI_Status *>(&status); }
    const MPI_Status *at() const { return reinterpret_cast<const MPI_Status *>(&status); }

    virtual int Get_count(const class Datatype &type) const;
    virtual bool Is_cancelled() const
    {
        int flag = 0;
        MPI_Test_cancelled(at(), &flag);
        return flag;
    }
    virtual int Get_elements(const class Datatype &type) const;
    virtual int Get_source() const { return status.source; }
    virtual void Set_source(int source) { status.source = source; }
    virtual int Get_tag() const { return status.tag; }
    virtual void Set_tag(int tag) { status.tag = tag; }
    virtual int Get_error() const { return status.error; }
    virtual void Set_error(int error) { status.error = error; }
    virtual void Set_elements(const class Datatype &type, int count);
    virtual void Set_cancelled(bool flag) { MPI_Status_set_cancelled(at(), flag); }
};

class Errhandler {
    HANDLE(Errhandler, MPI_Errhandler, mpi_errhandler_null)
    virtual void Free() { MPI_Errhandler_free(&handle); }
};

class Info {
    HANDLE(Info, MPI_Info, mpi_info_null)
    virtual void Delete(const char *key) { MPI_Info_delete(handle, key); }
    virtual Info Dup() const
    {
        MPI_Info made = handle;
        MPI_Info_dup(handle, &made);
        return made;
    }
    virtual void Free() { MPI_Info_free(&handle); }
    virtual bool Get(const char *key, int length, char *value) const
    {
        int flag = 0;
        MPI_Info_get(handle, key, length, value, &flag);
        return flag;
    }
    virtual int Get_nkeys() const
    {
        int count = 0;
        MPI_Info_get_nkeys(handle, &count);
        return count;
    }
    virtual void Get_nthkey(int n, char *key) const { MPI_Info_get_nthkey(handle, n, key); }
    virtual bool Get_valuelen(const char *key, int &length) const
    {
        int flag = 0;
        MPI_Info_get_valuelen(handle, key, &length, &flag);
        return flag;
    }
    virtual void Set(const char *key, const char *value) { MPI_Info_set(handle, key, value); }
};

class Group {
    HANDLE(Group, MPI_Group, mpi_group_null)
    virtual int Get_size() const
    {
        int size = 0;
        MPI_Group_size(handle, &size);
        return size;
    }
    virtual int Get_rank() const
    {
        int rank = 0;
        MPI_Group_rank(handle, &rank);
        return rank;
    }
    virtual Group Incl(int n, const int ranks[]) const
    {
        MPI_Group made = handle;
        MPI_Group_incl(handle, n, ranks, &made);
        return made;
    }
    virtual Group Excl(int n, const int ranks[]) const
    {
        MPI_Group made = handle;
        MPI_Group_excl(handle, n, ranks, &made);
        return made;
    }
    virtual Group Range_incl(int n, const int ranges[][3]) const
    {
        MPI_Group made = handle;
        MPI_Group_range_incl(handle, n, const_cast<int(*)[3]>(ranges), &made);
        return made;
    }
    virtual Group Range_excl(int n, const int ranges[][3]) const
    {
        MPI_Group made = handle;
        MPI_Group_range_excl(handle, n, const_cast<int(*)[3]>(ranges), &made);
        return made;
    }
    virtual void Free() { MPI_Group_free(&handle); }
};


class Request {
    HANDLE(Request, MPI_Request, request_null)
    virtual void Wait(Status &status) { MPI_Wait(&handle, status.at()); }
    virtual void Wait() { MPI_Wait(&handle, MPI_STATUS_IGNORE); }
    virtual bool Test(Status &status)
    {
        int flag = 0;
        MPI_Test(&handle, &flag, status.at());
        return flag;
    }
    virtual bool Test()
    {
        int flag = 0;
        MPI_Test(&handle, &flag, MPI_STATUS_IGNORE);
        return flag;
    }
    virtual void Free() { MPI_Request_free(&handle); }
    virtual void Cancel() const { MPI_Cancel(const_cast<MPI_Request *>(&handle)); }
    virtual bool Get_status(Status &status) const
    {
        int flag = 0;
        MPI_Request_get_status(handle, &flag, status.at());
        return flag;
    }
    virtual bool Get_status() const
    {
        int flag = 0;
        MPI_Request_get_status(handle, &flag, MPI_STATUS_IGNORE);
        return flag;
    }
};

class Prequest : public Request {
  public:
    Prequest() {}
    Prequest(const MPI_Request &given) : Request(given) {}
    virtual ~Prequest() {}
    virtual void Start() { MPI_Start(&handle); }
};

class Grequest : public Request {
  public:
    typedef int Query_function(void *, Status &);
    typedef int Free_function(void *);
    typedef int Cancel_function(void *, bool);
    // Made by the header's function in the program.
    struct Intercept_data_t {
        void *extra;
        Query_function *query;
        Free_function *free;
        Cancel_function *cancel;
    };
    Grequest() {}
    virtual ~Grequest() {}
    virtual void Complete();
};

class Datatype {
    HANDLE(Datatype, MPI_Datatype, mpi_datatype_null)
    typedef int Copy_attr_function(const Datatype &, int, void *, const void *, void *, bool &);
    typedef int Delete_attr_function(Datatype &, int, void *, void *);

    virtual Datatype Create_contiguous(int count) const
    {
        MPI_Datatype made = handle;
        MPI_Type_contiguous(count, handle, &made);
        return made;
    }
    virtual Datatype Create_vector(int count, int length, int stride) const
    {
        MPI_Datatype made = handle;
        MPI_Type_vector(count, length, stride, handle, &made);
        return made;
    }
    virtual Datatype Create_indexed(int count, const int lengths[], const int displs[]) const
    {
        MPI_Datatype made = handle;
        MPI_Type_indexed(count, lengths, displs, handle, &made);
        return made;
    }
    virtual Datatype Create_hindexed(int count, const int lengths[], const Aint displs[]) const
    {
        MPI_Datatype made = handle;
        MPI_Type_create_hindexed(count, lengths, displs, handle, &made);
        return made;
    }
    virtual Datatype Create_hvector(int count, int length, Aint stride) const
    {
        MPI_Datatype made = handle;
        MPI_Type_create_hvector(count, length, stride, handle, &made);
        return made;
    }
    virtual Datatype Create_indexed_block(int count, int length, const int displs[]) const
    {
        MPI_Datatype made = handle;
        MPI_Type_create_indexed_block(count, length, displs, handle, &made);
        return made;
    }
    virtual Datatype Create_resized(const Aint lb, const Aint extent) const
    {
        MPI_Datatype made = handle;
        MPI_Type_create_resized(handle, lb, extent, &made);
        return made;
    }
    virtual int Get_size() const
    {
        int size = 0;
        MPI_Type_size(handle, &size);
        return size;
    }
    virtual void Get_extent(Aint &lb, Aint &extent) const
    {
        MPI_Type_get_extent(handle, &lb, &extent);
    }
    virtual void Get_true_extent(Aint &lb, Aint &extent) const
    {
        MPI_Type_get_true_extent(handle, &lb, &extent);
    }
    virtual void Commit() { MPI_Type_commit(&handle); }
    virtual void Free();
    virtual void Pack(const void *in, int count, void *out, int size, int &position,
                      const Comm &comm) const;
    virtual void Unpack(const void *in, int size, void *out, int count, int &position,
                        const Comm &comm) const;
    virtual int Pack_size(int count, const Comm &comm) const;
    virtual void Pack_external(const char *datarep, const void *in, int count, void *out, Aint size,
                               Aint &position) const
    {
        MPI_Pack_external(datarep, in, count, handle, out, size, &position);
    }
    virtual Aint Pack_external_size(const char *datarep, int count) const
    {
        MPI_Aint size = 0;
        MPI_Pack_external_size(datarep, count, handle, &size);
        return size;
    }
    virtual void Unpack_external(const char *datarep, const void *in, Aint size, Aint &position,
                                 void *out, int count) const
    {
        MPI_Unpack_external(datarep, in, size, &position, out, count, handle);
    }
    virtual Datatype Create_subarray(int n, const int sizes[], const int subsizes[],
                                     const int starts[], int order) const
    {
        MPI_Datatype made = handle;
        MPI_Type_create_subarray(n, sizes, subsizes, starts, order, handle, &made);
        return made;
    }
    virtual Datatype Create_darray(int size, int rank, int n, const int gsizes[],
                                   const int distribs[], const int dargs[], const int psizes[],
                                   int order) const
    {
        MPI_Datatype made = handle;
        MPI_Type_create_darray(size, rank, n, gsizes, distribs, dargs, psizes, order, handle, &made);
        return made;
    }
    virtual Datatype Dup() const
    {
        MPI_Datatype made = handle;
        MPI_Type_dup(handle, &made);
        return made;
    }
    virtual void Delete_attr(int key) { MPI_Type_delete_attr(handle, key); }
    virtual bool Get_attr(int key, void *value) const
    {
        int flag = 0;
        MPI_Type_get_attr(handle, key, value, &flag);
        return flag;
    }
    virtual void Get_contents(int max_integers, int max_addresses, int max_types, int integers[],
                              Aint addresses[], Datatype types[]) const;
    virtual void Get_envelope(int &integers, int &addresses, int &types, int &combiner) const
    {
        MPI_Type_get_envelope(handle, &integers, &addresses, &types, &combiner);
    }
    virtual void Get_name(char *name, int &length) const { MPI_Type_get_name(handle, name, &length); }
    virtual void Set_attr(int key, const void *value)
    {
        MPI_Type_set_attr(handle, key, const_cast<void *>(value));
    }
    virtual void Set_name(const char *name) { MPI_Type_set_name(handle, name); }

  protected:
    static int do_create_keyval(MPI_Type_copy_attr_function *, MPI_Type_delete_attr_function *,
                                Copy_attr_function *, Delete_attr_function *, void *, int &);
};

class Op {
    HANDLE(Op, MPI_Op, mpi_op_null)
    typedef void User_function(const void *, void *, int, const Datatype &);
    virtual void Init(User_function *function, bool commute);
    virtual void Free() { MPI_Op_free(&handle); }
    virtual void Reduce_local(const void *in, void *inout, int count, const Datatype &type) const
    {
        MPI_Reduce_local(in, inout, count, type, handle);
    }
    virtual bool Is_commutative() const
    {
        int flag = 0;
        MPI_Op_commutative(handle, &flag);
        return flag;
    }
};

class Win {
    HANDLE(Win, MPI_Win, mpi_win_null)
    typedef int Copy_attr_function(const Win &, int, void *, void *, void *, bool &);
    typedef int Delete_attr_function(Win &, int, void *, void *);
    typedef void Errhandler_function(Win &, int *, ...);
    static Errhandler Create_errhandler(Errhandler_function *function);

    virtual void Set_errhandler(const Errhandler &handler) const
    {
        MPI_Win_set_errhandler(handle, handler);
    }
    virtual Errhandler Get_errhandler() const
    {
        MPI_Errhandler found = OBJECT(MPI_Errhandler, mpi_errhandler_null);
        MPI_Win_get_errhandler(handle, &found);
        return found;
    }
    virtual void Accumulate(const void *origin, int count, const Datatype &type, int rank, Aint disp,
                            int there, const Datatype &their, const Op &op) const
    {
        MPI_Accumulate(origin, count, type, rank, disp, there, their, op, handle);
    }
    virtual void Complete() const { MPI_Win_complete(handle); }
    virtual void Fence(int assert) const { MPI_Win_fence(assert, handle); }
    virtual void Free();
    virtual void Get(const void *origin, int count, const Datatype &type, int rank, Aint disp,
                     int there, const Datatype &their) const
    {
        MPI_Get(const_cast<void *>(origin), count, type, rank, disp, there, their, handle);
    }
    virtual Group Get_group() const
    {
        MPI_Group found = OBJECT(MPI_Group, mpi_group_null);
        MPI_Win_get_group(handle, &found);
        return found;
    }
    virtual void Lock(int kind, int rank, int assert) const
    {
        MPI_Win_lock(kind, rank, assert, handle);
    }
    virtual void Post(const Group &group, int assert) const { MPI_Win_post(group, assert, handle); }
    virtual void Put(const void *origin, int count, const Datatype &type, int rank, Aint disp,
                     int there, const Datatype &their) const
    {
        MPI_Put(origin, count, type, rank, disp, there, their, handle);
    }
    virtual void Start(const Group &group, int assert) const { MPI_Win_start(group, assert, handle); }
    virtual bool Test() const
    {
        int flag = 0;
        MPI_Win_test(handle, &flag);
        return flag;
    }
    virtual void Unlock(int rank) const { MPI_Win_unlock(rank, handle); }
    virtual void Wait() const { MPI_Win_wait(handle); }
    virtual void Call_errhandler(int code) const { MPI_Win_call_errhandler(handle, code); }
    virtual void Delete_attr(int key) { MPI_Win_delete_attr(handle, key); }
    virtual void Get_name(char *name, int &length) const { MPI_Win_get_name(handle, name, &length); }
    virtual void Set_attr(int key, const void *value)
    {
        MPI_Win_set_attr(handle, key, const_cast<void *>(value));
    }
    virtual void Set_name(const char *name) { MPI_Win_set_name(handle, name); }

  protected:
    static int do_create_keyval(MPI_Win_copy_attr_function *, MPI_Win_delete_attr_function *,
                                Copy_attr_function *, Delete_attr_function *, void *, int &);
};

class File {
    HANDLE(File, MPI_File, mpi_file_null)
    typedef void Errhandler_function(File &, int *, ...);
    static Errhandler Create_errhandler(Errhandler_function *function);
    void Close();
};

}  // namespace MPI

#include "communicators.h"

#endif
