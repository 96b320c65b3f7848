// The communicators of the C++ bindings (classes.h).
#ifndef EYRIE_CXX_COMMUNICATORS_H
#define EYRIE_CXX_COMMUNICATORS_H

#include "classes.h"

namespace MPI {

class Comm_Null {
  protected:
    MPI_Comm handle;

  public:
    Comm_Null() : handle(OBJECT(MPI_Comm, mpi_comm_null)) {}
    Comm_Null(const Comm_Null &other) : handle(other.handle) {}
    Comm_Null(MPI_Comm given) : handle(given) {}
    virtual ~Comm_Null() {}
    operator MPI_Comm() const { return handle; }
};

class Comm : public Comm_Null {
  public:
    typedef void Errhandler_function(Comm &, int *, ...);
    typedef int Copy_attr_function(const Comm &, int, void *, void *, void *, bool &);
    typedef int Delete_attr_function(Comm &, int, void *, void *);

    Comm();
    Comm(const Comm_Null &other);
    Comm(const Comm &other) : Comm_Null(other.handle) {}
    Comm(MPI_Comm given) : Comm_Null(given) {}

    virtual void Send(const void *buf, int count, const Datatype &type, int dest, int tag) const
    {
        MPI_Send(buf, count, type, dest, tag, handle);
    }
    virtual void Recv(void *buf, int count, const Datatype &type, int source, int tag,
                      Status &status) const
    {
        MPI_Recv(buf, count, type, source, tag, handle, status.at());
    }
    virtual void Recv(void *buf, int count, const Datatype &type, int source, int tag) const
    {
        MPI_Recv(buf, count, type, source, tag, handle, MPI_STATUS_IGNORE);
    }
    virtual void Bsend(const void *buf, int count, const Datatype &type, int dest, int tag) const
    {
        MPI_Bsend(buf, count, type, dest, tag, handle);
    }
    virtual void Ssend(const void *buf, int count, const Datatype &type, int dest, int tag) const
    {
        MPI_Ssend(buf, count, type, dest, tag, handle);
    }
    virtual void Rsend(const void *buf, int count, const Datatype &type, int dest, int tag) const
    {
        MPI_Rsend(buf, count, type, dest, tag, handle);
    }

// One that begins an operation, and gives back its request.
#define BEGINS(Kind, name, buffer, peer)                                                           \
    virtual Kind name(buffer, int count, const Datatype &type, int peer, int tag) const            \
    {                                                                                              \
        MPI_Request made = OBJECT(MPI_Request, request_null);                                      \
        MPI_##name(buf, count, type, peer, tag, handle, &made);                                    \
        return made;                                                                               \
    }
    BEGINS(Request, Isend, const void *buf, dest)
    BEGINS(Request, Ibsend, const void *buf, dest)
    BEGINS(Request, Issend, const void *buf, dest)
    BEGINS(Request, Irsend, const void *buf, dest)
    BEGINS(Request, Irecv, void *buf, source)

    virtual bool Iprobe(int source, int tag, Status &status) const
    {
        int flag = 0;
        MPI_Iprobe(source, tag, handle, &flag, status.at());
        return flag;
    }
    virtual bool Iprobe(int source, int tag) const
    {
        int flag = 0;
        MPI_Iprobe(source, tag, handle, &flag, MPI_STATUS_IGNORE);
        return flag;
    }
    virtual void Probe(int source, int tag, Status &status) const
    {
        MPI_Probe(source, tag, handle, status.at());
    }
    virtual void Probe(int source, int tag) const { MPI_Probe(source, tag, handle, MPI_STATUS_IGNORE); }

    BEGINS(Prequest, Send_init, const void *buf, dest)
    BEGINS(Prequest, Bsend_init, const void *buf, dest)
    BEGINS(Prequest, Ssend_init, const void *buf, dest)
    BEGINS(Prequest, Rsend_init, const void *buf, dest)
    BEGINS(Prequest, Recv_init, void *buf, source)

    virtual void Sendrecv(const void *out, int n, const Datatype &type, int dest, int tag, void *in,
                          int m, const Datatype &their, int source, int their_tag,
                          Status &status) const
    {
        MPI_Sendrecv(out, n, type, dest, tag, in, m, their, source, their_tag, handle, status.at());
    }
    virtual void Sendrecv(const void *out, int n, const Datatype &type, int dest, int tag, void *in,
                          int m, const Datatype &their, int source, int their_tag) const
    {
        MPI_Sendrecv(out, n, type, dest, tag, in, m, their, source, their_tag, handle,
                     MPI_STATUS_IGNORE);
    }
    virtual void Sendrecv_replace(void *buf, int count, const Datatype &type, int dest, int tag,
                                  int source, int their_tag, Status &status) const
    {
        MPI_Sendrecv_replace(buf, count, type, dest, tag, source, their_tag, handle, status.at());
    }
    virtual void Sendrecv_replace(void *buf, int count, const Datatype &type, int dest, int tag,
                                  int source, int their_tag) const
    {
        MPI_Sendrecv_replace(buf, count, type, dest, tag, source, their_tag, handle,
                             MPI_STATUS_IGNORE);
    }

    virtual Group Get_group() const
    {
        MPI_Group found = OBJECT(MPI_Group, mpi_group_null);
        MPI_Comm_group(handle, &found);
        return found;
    }
    virtual int Get_size() const
    {
        int size = 0;
        MPI_Comm_size(handle, &size);
        return size;
    }
    virtual int Get_rank() const
    {
        int rank = 0;
        MPI_Comm_rank(handle, &rank);
        return rank;
    }
    virtual Comm &Clone() const = 0;
    virtual void Free() { MPI_Comm_free(&handle); }
    virtual bool Is_inter() const
    {
        int flag = 0;
        MPI_Comm_test_inter(handle, &flag);
        return flag;
    }

    virtual void Barrier() const { MPI_Barrier(handle); }
    virtual void Bcast(void *buf, int count, const Datatype &type, int root) const
    {
        MPI_Bcast(buf, count, type, root, handle);
    }
    virtual void Gather(const void *out, int n, const Datatype &type, void *in, int m,
                        const Datatype &their, int root) const
    {
        MPI_Gather(out, n, type, in, m, their, root, handle);
    }
    virtual void Gatherv(const void *out, int n, const Datatype &type, void *in, const int counts[],
                         const int displs[], const Datatype &their, int root) const
    {
        MPI_Gatherv(out, n, type, in, counts, displs, their, root, handle);
    }
    virtual void Scatter(const void *out, int n, const Datatype &type, void *in, int m,
                         const Datatype &their, int root) const
    {
        MPI_Scatter(out, n, type, in, m, their, root, handle);
    }
    virtual void Scatterv(const void *out, const int counts[], const int displs[],
                          const Datatype &type, void *in, int m, const Datatype &their,
                          int root) const
    {
        MPI_Scatterv(out, counts, displs, type, in, m, their, root, handle);
    }
    virtual void Allgather(const void *out, int n, const Datatype &type, void *in, int m,
                           const Datatype &their) const
    {
        MPI_Allgather(out, n, type, in, m, their, handle);
    }
    virtual void Allgatherv(const void *out, int n, const Datatype &type, void *in,
                            const int counts[], const int displs[], const Datatype &their) const
    {
        MPI_Allgatherv(out, n, type, in, counts, displs, their, handle);
    }
    virtual void Alltoall(const void *out, int n, const Datatype &type, void *in, int m,
                          const Datatype &their) const
    {
        MPI_Alltoall(out, n, type, in, m, their, handle);
    }
    virtual void Alltoallv(const void *out, const int counts[], const int displs[],
                           const Datatype &type, void *in, const int their_counts[],
                           const int their_displs[], const Datatype &their) const
    {
        MPI_Alltoallv(out, counts, displs, type, in, their_counts, their_displs, their, handle);
    }
    virtual void Alltoallw(const void *out, const int counts[], const int displs[],
                           const Datatype types[], void *in, const int their_counts[],
                           const int their_displs[], const Datatype theirs[]) const;
    virtual void Reduce(const void *out, void *in, int count, const Datatype &type, const Op &op,
                        int root) const
    {
        MPI_Reduce(out, in, count, type, op, root, handle);
    }
    virtual void Allreduce(const void *out, void *in, int count, const Datatype &type,
                           const Op &op) const
    {
        MPI_Allreduce(out, in, count, type, op, handle);
    }
    virtual void Reduce_scatter(const void *out, void *in, int counts[], const Datatype &type,
                                const Op &op) const
    {
        MPI_Reduce_scatter(out, in, counts, type, op, handle);
    }

    virtual void Disconnect() { MPI_Comm_disconnect(&handle); }
    virtual void Get_name(char *name, int &length) const { MPI_Comm_get_name(handle, name, &length); }
    virtual void Set_name(const char *name) { MPI_Comm_set_name(handle, name); }
    virtual int Get_topology() const
    {
        int kind = 0;
        MPI_Topo_test(handle, &kind);
        return kind;
    }
    virtual void Abort(int code) { MPI_Abort(handle, code); }
    static Errhandler Create_errhandler(Errhandler_function *function);
    virtual void Set_errhandler(const Errhandler &handler) { MPI_Comm_set_errhandler(handle, handler); }
    virtual Errhandler Get_errhandler() const
    {
        MPI_Errhandler found = OBJECT(MPI_Errhandler, mpi_errhandler_null);
        MPI_Comm_get_errhandler(handle, &found);
        return found;
    }
    virtual void Set_attr(int key, const void *value) const
    {
        MPI_Comm_set_attr(handle, key, const_cast<void *>(value));
    }
    virtual bool Get_attr(int key, void *value) const
    {
        int flag = 0;
        MPI_Comm_get_attr(handle, key, value, &flag);
        return flag;
    }
    virtual void Delete_attr(int key) { MPI_Comm_delete_attr(handle, key); }

  protected:
    static int do_create_keyval(MPI_Comm_copy_attr_function *, MPI_Comm_delete_attr_function *,
                                Copy_attr_function *, Delete_attr_function *, void *, int &);
    // A communicator that a function of MPI has made.
    template <typename Function> MPI_Comm made(Function function) const
    {
        MPI_Comm result = OBJECT(MPI_Comm, mpi_comm_null);
        function(&result);
        return result;
    }
    MPI_Comm copy() const
    {
        return made([this](MPI_Comm *comm) { MPI_Comm_dup(handle, comm); });
    }
};

class Intercomm : public Comm {
  public:
    Intercomm() {}
    Intercomm(MPI_Comm given) : Comm(given) {}
    Intercomm(const Intercomm &other) : Comm(other.handle) {}
    virtual Intercomm &Clone() const { return *new Intercomm(copy()); }
    virtual int Get_remote_size() const
    {
        int size = 0;
        MPI_Comm_remote_size(handle, &size);
        return size;
    }
    virtual Group Get_remote_group() const
    {
        MPI_Group found = OBJECT(MPI_Group, mpi_group_null);
        MPI_Comm_remote_group(handle, &found);
        return found;
    }
    virtual Intracomm Merge(bool high) const;
    virtual Intercomm Create(const Group &group) const
    {
        return made([&](MPI_Comm *comm) { MPI_Comm_create(handle, group, comm); });
    }
    virtual Intercomm Split(int color, int key) const
    {
        return made([&](MPI_Comm *comm) { MPI_Comm_split(handle, color, key, comm); });
    }
};

class Intracomm : public Comm {
  public:
    Intracomm() {}
    Intracomm(const Intracomm &other) : Comm(other.handle) {}
    // What is of another kind is none.
    Intracomm(MPI_Comm given);
    virtual void Scan(const void *out, void *in, int count, const Datatype &type, const Op &op) const
    {
        MPI_Scan(out, in, count, type, op, handle);
    }
    virtual void Exscan(const void *out, void *in, int count, const Datatype &type,
                        const Op &op) const
    {
        MPI_Exscan(out, in, count, type, op, handle);
    }
    virtual Intracomm &Clone() const { return *new Intracomm(copy()); }
    virtual Intracomm Create(const Group &group) const
    {
        return made([&](MPI_Comm *comm) { MPI_Comm_create(handle, group, comm); });
    }
    virtual Intracomm Split(int color, int key) const
    {
        return made([&](MPI_Comm *comm) { MPI_Comm_split(handle, color, key, comm); });
    }
    virtual Intercomm Create_intercomm(int leader, const Comm &peers, int remote, int tag) const
    {
        return made([&](MPI_Comm *comm) {
            MPI_Intercomm_create(handle, leader, peers, remote, tag, comm);
        });
    }
    virtual Cartcomm Create_cart(int n, const int dims[], const bool periods[], bool reorder) const;
    virtual Graphcomm Create_graph(int n, const int index[], const int edges[], bool reorder) const;
    virtual Intercomm Accept(const char *port, const Info &info, int root) const
    {
        return made([&](MPI_Comm *comm) { MPI_Comm_accept(port, info, root, handle, comm); });
    }
    virtual Intercomm Connect(const char *port, const Info &info, int root) const
    {
        return made([&](MPI_Comm *comm) { MPI_Comm_connect(port, info, root, handle, comm); });
    }
    virtual Intercomm Spawn(const char *command, const char *argv[], int n, const Info &info,
                            int root) const
    {
        return Spawn(command, argv, n, info, root, MPI_ERRCODES_IGNORE);
    }
    virtual Intercomm Spawn(const char *command, const char *argv[], int n, const Info &info,
                            int root, int codes[]) const
    {
        char **words = const_cast<char **>(argv);
        return made([&](MPI_Comm *comm) {
            MPI_Comm_spawn(command, words, n, info, root, handle, comm, codes);
        });
    }
    virtual Intercomm Spawn_multiple(int count, const char *commands[], const char **argvs[],
                                     const int n[], const Info infos[], int root)
    {
        return Spawn_multiple(count, commands, argvs, n, infos, root, MPI_ERRCODES_IGNORE);
    }
    virtual Intercomm Spawn_multiple(int count, const char *commands[], const char **argvs[],
                                     const int n[], const Info infos[], int root, int codes[]);
};

class Cartcomm : public Intracomm {
  public:
    Cartcomm() {}
    Cartcomm(const MPI_Comm &given);
    Cartcomm(const Cartcomm &other) : Intracomm(other.handle) {}
    virtual Cartcomm &Clone() const { return *new Cartcomm(copy()); }
    virtual int Get_dim() const
    {
        int n = 0;
        MPI_Cartdim_get(handle, &n);
        return n;
    }
    virtual void Get_topo(int most, int dims[], bool periods[], int coords[]) const;
    virtual int Get_cart_rank(const int coords[]) const
    {
        int rank = 0;
        MPI_Cart_rank(handle, coords, &rank);
        return rank;
    }
    virtual void Get_coords(int rank, int most, int coords[]) const
    {
        MPI_Cart_coords(handle, rank, most, coords);
    }
    virtual void Shift(int direction, int by, int &source, int &dest) const
    {
        MPI_Cart_shift(handle, direction, by, &source, &dest);
    }
    virtual Cartcomm Sub(const bool remain[]) const;
    virtual int Map(int n, const int dims[], const bool periods[]) const;
};

class Graphcomm : public Intracomm {
  public:
    Graphcomm() {}
    Graphcomm(const MPI_Comm &given);
    Graphcomm(const Graphcomm &other) : Intracomm(other.handle) {}
    virtual Graphcomm &Clone() const { return *new Graphcomm(copy()); }
    virtual void Get_dims(int nodes[], int edges[]) const { MPI_Graphdims_get(handle, nodes, edges); }
    virtual void Get_topo(int most_index, int most_edges, int index[], int edges[]) const
    {
        MPI_Graph_get(handle, most_index, most_edges, index, edges);
    }
    virtual int Get_neighbors_count(int rank) const
    {
        int count = 0;
        MPI_Graph_neighbors_count(handle, rank, &count);
        return count;
    }
    virtual void Get_neighbors(int rank, int most, int neighbors[]) const
    {
        MPI_Graph_neighbors(handle, rank, most, neighbors);
    }
    virtual int Map(int n, const int index[], const int edges[]) const
    {
        int rank = 0;
        MPI_Graph_map(handle, n, index, edges, &rank);
        return rank;
    }
};

}  // namespace MPI

#endif
