// As clocked.c, with what C++ has: its clocks, its random device, a stream of /dev/urandom.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mpi.h>
#include <random>

// As LAMMPS has it: when the program was loaded.
static const auto begun = std::chrono::steady_clock::now();

int main(int argc, char **argv)
{
    using namespace std::chrono;
    MPI_Init(&argc, &argv);
    int rank, ranks, steps = argc > 1 ? std::atoi(argv[1]) : 100;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    std::int64_t last = 0, sums[2] = {0, 0};
    for (int step = 0; step < steps; step++) {
        std::random_device device;
        std::ifstream file("/dev/urandom", std::ios::binary);
        std::int64_t told[6] = {}, theirs[6];
        told[0] = steady_clock::now().time_since_epoch().count();
        told[1] = system_clock::now().time_since_epoch().count();
        told[2] = (high_resolution_clock::now().time_since_epoch() - begun.time_since_epoch()).count();
        told[3] = device() ^ static_cast<std::int64_t>(device()) << 31;
        file.read(reinterpret_cast<char *>(&told[4]), sizeof told[4]);
        told[5] = file.gcount();
        if (told[0] < last || told[5] != 8)
            MPI_Abort(MPI_COMM_WORLD, 3);
        last = told[0];
        MPI_Sendrecv(told, 6, MPI_INT64_T, (rank + 1) % ranks, 1, theirs, 6, MPI_INT64_T,
                     (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 6; i++) {
            sums[0] += told[i] & 0xffff;
            sums[1] += theirs[i] & 0xffff;
        }
        while (steady_clock::now() - steady_clock::time_point(nanoseconds(last)) < microseconds(300))
            ;
    }
    std::int64_t all[2];
    MPI_Allreduce(sums, all, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        std::printf("clocked: %d steps%s\n", steps, all[0] == all[1] ? "" : ", differing");
    MPI_Finalize();
}
