/*
 * What logs.c does, in C++: argument 1 is the log, 2 how many lines a rank appends to a
 * std::ofstream, 4 a file that is waited for half-way.
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mpi.h>
#include <sstream>
#include <string>
#include <unistd.h>

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, size, count = std::atoi(argv[2]), came = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    std::ofstream log(argv[1], std::ios::app);
    std::uint64_t hash = 14695981039346656037u;
    for (int i = 0; i < count; i++) {
        while (argc > 4 && i == count / 2 && access(argv[4], F_OK) != 0) usleep(1000);
        std::ostringstream line;
        line << "rank " << rank << " line " << i << " came " << came << ' ' << std::string(i % 50, '.') << '\n';
        log << line.str() << std::flush;
        if (!log) MPI_Abort(MPI_COMM_WORLD, 9);
        for (unsigned char c : line.str()) hash = (hash ^ c) * 1099511628211u;
        int sent = (came * 3 + rank + i) % 99991;
        MPI_Sendrecv(&sent, 1, MPI_INT, (rank + 1) % size, 0, &came, 1, MPI_INT, (rank + size - 1) % size, 0,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    log.close();
    std::uint64_t all[64];
    MPI_Gather(&hash, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int r = 0; rank == 0 && r < size; r++)
        std::printf("%d %d %llu\n", r, count, static_cast<unsigned long long>(all[r]));
    std::fflush(stdout);
    MPI_Finalize();
    return 0;
}
