// What of the classes needs all of them, or is in Open MPI's library and not in the program.

#include "classes.h"

#include <vector>

namespace MPI {

// ---- types, windows, files, statuses

int Status::Get_count(const Datatype &type) const
{
    int count = 0;
    MPI_Get_count(at(), type, &count);
    return count;
}

int Status::Get_elements(const Datatype &type) const
{
    int count = 0;
    MPI_Get_elements(at(), type, &count);
    return count;
}

void Status::Set_elements(const Datatype &type, int count)
{
    MPI_Status_set_elements(at(), type, count);
}

void Datatype::Free() { MPI_Type_free(&handle); }

void Datatype::Pack(const void *in, int count, void *out, int size, int &position,
                    const Comm &comm) const
{
    MPI_Pack(in, count, handle, out, size, &position, comm);
}

void Datatype::Unpack(const void *in, int size, void *out, int count, int &position,
                      const Comm &comm) const
{
    MPI_Unpack(in, size, &position, out, count, handle, comm);
}

int Datatype::Pack_size(int count, const Comm &comm) const
{
    int size = 0;
    MPI_Pack_size(count, handle, comm, &size);
    return size;
}

void Datatype::Get_contents(int max_integers, int max_addresses, int max_types, int integers[],
                            Aint addresses[], Datatype types[]) const
{
    std::vector<MPI_Datatype> found(max_types, OBJECT(MPI_Datatype, mpi_datatype_null));
    MPI_Type_get_contents(handle, max_integers, max_addresses, max_types, integers, addresses,
                          found.data());
    for (int i = 0; i < max_types; i++)
        types[i] = found[i];
}

void Grequest::Complete() { MPI_Grequest_complete(handle); }

void Win::Free() { MPI_Win_free(&handle); }

void File::Close() { MPI_File_close(&handle); }

// ---- communicators

static bool initialized()
{
    int flag = 0;
    MPI_Initialized(&flag);
    return flag;
}

static std::vector<int> integers(int n, const bool flags[])
{
    return std::vector<int>(flags, flags + n);
}

Comm::Comm() {}

Comm::Comm(const Comm_Null &other) : Comm_Null(other) {}

Intracomm::Intracomm(MPI_Comm given) : Comm(given)
{
    int inter = 0;
    if (initialized() && given != OBJECT(MPI_Comm, mpi_comm_null))
        MPI_Comm_test_inter(given, &inter);
    if (inter)
        handle = OBJECT(MPI_Comm, mpi_comm_null);
}

// Whether a communicator may be one with a topology of this kind.
static bool may_be(MPI_Comm comm, int kind)
{
    int found = kind;
    if (initialized() && comm != OBJECT(MPI_Comm, mpi_comm_null))
        MPI_Topo_test(comm, &found);
    return found == kind;
}

Cartcomm::Cartcomm(const MPI_Comm &given)
{
    handle = may_be(given, MPI_CART) ? given : handle;
}

Graphcomm::Graphcomm(const MPI_Comm &given)
{
    handle = may_be(given, MPI_GRAPH) ? given : handle;
}

void Comm::Alltoallw(const void *out, const int counts[], const int displs[], const Datatype types[],
                     void *in, const int their_counts[], const int their_displs[],
                     const Datatype theirs[]) const
{
    int n = 0, inter = 0;
    MPI_Comm_test_inter(handle, &inter);
    if (inter)
        MPI_Comm_remote_size(handle, &n);
    else
        MPI_Comm_size(handle, &n);
    // Without types of its own where it sends what it receives into.
    const bool in_place = out == MPI_IN_PLACE;
    std::vector<MPI_Datatype> sent(types, in_place ? types : types + n), got(theirs, theirs + n);
    MPI_Alltoallw(out, counts, displs, in_place ? got.data() : sent.data(), in, their_counts,
                  their_displs, got.data(), handle);
}

Intracomm Intercomm::Merge(bool high) const
{
    return made([&](MPI_Comm *comm) { MPI_Intercomm_merge(handle, high, comm); });
}

Cartcomm Intracomm::Create_cart(int n, const int dims[], const bool periods[], bool reorder) const
{
    const std::vector<int> wraps = integers(n, periods);
    return made([&](MPI_Comm *comm) {
        MPI_Cart_create(handle, n, dims, wraps.data(), reorder, comm);
    });
}

Graphcomm Intracomm::Create_graph(int n, const int index[], const int edges[], bool reorder) const
{
    return made([&](MPI_Comm *comm) { MPI_Graph_create(handle, n, index, edges, reorder, comm); });
}

Intercomm Intracomm::Spawn_multiple(int count, const char *commands[], const char **argvs[],
                                    const int n[], const Info infos[], int root, int codes[])
{
    int rank = 0;
    MPI_Comm_rank(handle, &rank);
    // They count at the root alone.
    std::vector<MPI_Info> hints(infos, rank == root ? infos + count : infos);
    return made([&](MPI_Comm *comm) {
        MPI_Comm_spawn_multiple(count, const_cast<char **>(commands), const_cast<char ***>(argvs), n,
                                hints.data(), root, handle, comm, codes);
    });
}

void Cartcomm::Get_topo(int most, int dims[], bool periods[], int coords[]) const
{
    std::vector<int> wraps(most);
    MPI_Cart_get(handle, most, dims, wraps.data(), coords);
    for (int i = 0; i < most; i++)
        periods[i] = wraps[i];
}

Cartcomm Cartcomm::Sub(const bool remain[]) const
{
    const std::vector<int> kept = integers(Get_dim(), remain);
    return made([&](MPI_Comm *comm) { MPI_Cart_sub(handle, kept.data(), comm); });
}

int Cartcomm::Map(int n, const int dims[], const bool periods[]) const
{
    int rank = 0;
    const std::vector<int> wraps = integers(n, periods);
    MPI_Cart_map(handle, n, dims, wraps.data(), &rank);
    return rank;
}

}  // namespace MPI
