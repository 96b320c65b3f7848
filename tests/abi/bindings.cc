// MPI's C++ bindings as Open MPI's header has them: objects, virtual functions, functions of the program
// that MPI calls. Compiled with that header. A job of any number of ranks; rank 0 prints.
#include <mpi.h>

#include <cstdio>
#include <cstring>

static int good, bad;

static void check(bool ok, const char *what)
{
    ok ? good++ : bad++;
    if (!ok)
        std::printf("bindings.cc: not so: %s\n", what);
}

// What is called through the table of virtual functions, whichever library has it.
static int rank_of(const MPI::Comm &comm) { return comm.Get_rank(); }

static void add(const void *in, void *inout, int n, const MPI::Datatype &type)
{
    check(type.Get_size() == (int)sizeof(int), "the type of an operation");
    for (int i = 0; i < n; i++)
        static_cast<int *>(inout)[i] += static_cast<const int *>(in)[i];
}

static int heeded;

static void heed(MPI::Comm &comm, int *code, ...)
{
    heeded += comm.Get_size() > 0 && *code != MPI_SUCCESS;
}

static int copied(const MPI::Comm &comm, int, void *extra, void *in, void *out, bool &flag)
{
    *static_cast<void **>(out) = static_cast<char *>(in) + *static_cast<int *>(extra);
    flag = comm.Get_size() > 0;
    return MPI_SUCCESS;
}

static int deleted(MPI::Comm &, int, void *, void *extra)
{
    ++*static_cast<int *>(extra);
    return MPI_SUCCESS;
}

static int asked(void *extra, MPI::Status &status)
{
    status.Set_elements(MPI::INT, 3);
    status.Set_cancelled(false);
    status.Set_tag(*static_cast<int *>(extra));
    return MPI_SUCCESS;
}

static int freed(void *extra) { return *static_cast<int *>(extra) = 0; }

static int cancelled(void *, bool) { return MPI_SUCCESS; }

static void messages(int rank, int size)
{
    const int right = (rank + 1) % size, left = (rank + size - 1) % size;
    int out[4] = {rank, 1, 2, 3}, in[4] = {0};
    MPI::Status status;
    MPI::COMM_WORLD.Sendrecv(out, 4, MPI::INT, right, 5, in, 4, MPI::INT, left, 5, status);
    check(in[0] == left && status.Get_source() == left && status.Get_tag() == 5, "Sendrecv");
    check(status.Get_count(MPI::INT) == 4 && status.Get_elements(MPI::INT) == 4, "a count");
    MPI::Request requests[2];
    requests[0] = MPI::COMM_WORLD.Irecv(in, 2, MPI::INT, left, 6);
    requests[1] = MPI::COMM_WORLD.Isend(out + 2, 2, MPI::INT, right, 6);
    MPI::Request::Waitall(2, requests);
    check(in[0] == 2 && in[1] == 3 && requests[0] == MPI::REQUEST_NULL, "Waitall");
    MPI::Prequest again = MPI::COMM_WORLD.Send_init(out, 1, MPI::INT, right, 7);
    again.Start();
    MPI::COMM_WORLD.Recv(in, 1, MPI::INT, left, 7);
    again.Wait();
    again.Free();
    check(in[0] == left, "a persistent request");
    MPI::Datatype pairs = MPI::INT.Create_vector(2, 1, 2);
    pairs.Commit();
    MPI::COMM_WORLD.Sendrecv(out, 1, pairs, right, 8, in, 2, MPI::INT, left, 8);
    check(in[0] == left && in[1] == 2 && pairs.Get_size() == 8, "a type");
    pairs.Free();
    check(pairs == MPI::DATATYPE_NULL, "a type that was freed");
}

static void collectives(int rank, int size)
{
    int sum = 0, mine = rank + 1;
    MPI::COMM_WORLD.Allreduce(&mine, &sum, 1, MPI::INT, MPI::SUM);
    check(sum == size * (size + 1) / 2, "Allreduce");
    MPI::Op op;
    op.Init(add, true);
    sum = 0;
    MPI::COMM_WORLD.Allreduce(&mine, &sum, 1, MPI::INT, op);
    check(sum == size * (size + 1) / 2 && op.Is_commutative(), "an operation of the program");
    op.Free();
    MPI::COMM_WORLD.Scan(&mine, &sum, 1, MPI::INT, MPI::MAX);
    check(sum == mine, "Scan");
    double value = rank == 0 ? 0.5 : 0;
    MPI::COMM_WORLD.Bcast(&value, 1, MPI::DOUBLE, 0);
    check(value == 0.5, "Bcast");
}

static void communicators(int rank, int size)
{
    const int dims[1] = {size};
    const bool periods[1] = {true};
    MPI::Cartcomm ring = MPI::COMM_WORLD.Create_cart(1, dims, periods, false);
    int source, dest, where[1], wide[1];
    bool wraps[1];
    ring.Shift(0, 1, source, dest);
    ring.Get_topo(1, wide, wraps, where);
    check(dest == (rank + 1) % size && wraps[0] && wide[0] == size && where[0] == rank, "a ring");
    check(ring.Get_topology() == MPI::CART && ring.Get_dim() == 1, "a topology");
    MPI::Comm &other = ring.Clone();
    check(rank_of(other) == rank && other.Get_topology() == MPI::CART, "a clone");
    other.Free();
    delete &other;
    ring.Free();
    MPI::Intracomm half = MPI::COMM_WORLD.Split(rank % 2, rank);
    check(half.Get_rank() == rank / 2 && rank_of(MPI::COMM_SELF) == 0, "Split");
    MPI::Group group = half.Get_group();
    check(group.Get_rank() == half.Get_rank(), "a group");
    group.Free();
    half.Free();
    check(half == MPI::COMM_NULL, "a communicator that was freed");
    MPI::Info info = MPI::Info::Create();
    char text[8];
    info.Set("key", "value");
    check(info.Get("key", 7, text) && std::strcmp(text, "value") == 0 && info.Get_nkeys() == 1, "info");
    info.Free();
}

static void functions()
{
    MPI::Intracomm comm = MPI::COMM_WORLD.Dup();
    MPI::Errhandler handler = MPI::Comm::Create_errhandler(heed);
    comm.Set_errhandler(handler);
    comm.Send(&good, 1, MPI::INT, comm.Get_size() + 7, 0);
    check(heeded == 1, "an error handler");
    handler.Free();
    comm.Set_errhandler(MPI::ERRORS_THROW_EXCEPTIONS);
    comm.Send(&good, 1, MPI::INT, comm.Get_size() + 7, 0);
    check(MPI::mpi_errno == MPI::ERR_RANK, "an error without exceptions");
    static int extra = 8;
    const int key = MPI::Comm::Create_keyval(copied, deleted, &extra);
    comm.Set_attr(key, nullptr);
    MPI::Intracomm copy = comm.Dup();
    void *value = nullptr;
    check(copy.Get_attr(key, &value) && value == (void *)8, "an attribute");
    copy.Free();
    comm.Free();
    check(extra == 10, "attributes that were deleted");
    int state = 9;
    MPI::Grequest request = MPI::Grequest::Start(asked, freed, cancelled, &state);
    request.Complete();
    MPI::Status status;
    request.Wait(status);
    check(status.Get_tag() == 9 && status.Get_elements(MPI::INT) == 3 && state == 0, "a generalised request");
}

static void windows_and_files(int rank, int size)
{
    int cell = -1, back = 0;
    MPI::Win win = MPI::Win::Create(&cell, sizeof cell, sizeof cell, MPI::INFO_NULL, MPI::COMM_WORLD);
    win.Fence(0);
    win.Put(&rank, 1, MPI::INT, (rank + 1) % size, 0, 1, MPI::INT);
    win.Fence(0);
    check(cell == (rank + size - 1) % size, "a window");
    win.Free();
    MPI::File file = MPI::File::Open(MPI::COMM_WORLD, "bindings.data",
                                     MPI::MODE_CREATE | MPI::MODE_RDWR | MPI::MODE_DELETE_ON_CLOSE, MPI::INFO_NULL);
    file.Write_at(rank * (MPI::Offset)sizeof(int), &rank, 1, MPI::INT);
    file.Read_at(rank * (MPI::Offset)sizeof(int), &back, 1, MPI::INT);
    check(back == rank, "a file");
    file.Close();
    check(file == MPI::FILE_NULL, "a file that was closed");
}

int main(int argc, char **argv)
{
    MPI::Init(argc, argv);
    const int rank = rank_of(MPI::COMM_WORLD), size = MPI::COMM_WORLD.Get_size();
    messages(rank, size);
    collectives(rank, size);
    communicators(rank, size);
    functions();
    windows_and_files(rank, size);
    int all = 0;
    MPI::COMM_WORLD.Reduce(&bad, &all, 1, MPI::INT, MPI::SUM, 0);
    if (rank == 0)
        std::printf("bindings: %d passed, %d failed\n", good, all);
    MPI::Finalize();
    return bad != 0;
}
