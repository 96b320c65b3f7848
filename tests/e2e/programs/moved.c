/*
 * Writes half of FOLDER/part through MPI, says so by a file FOLDER/half.RANK, waits for FOLDER/go, and
 * writes the rest. `moved`: then rank 0 renames the file to FOLDER/whole. `gone`: all ranks read what
 * the next one wrote, and the file is deleted when they close it.
 *
 * usage: moved FOLDER moved|gone
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELLS = 1000 };

static int cells[CELLS], rank, ranks;
static char name[4096];

static const char *in(const char *folder, const char *what, int number)
{
    snprintf(name, sizeof name, number < 0 ? "%s/%s" : "%s/%s.%d", folder, what, number);
    return name;
}

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "rank %d: %s\n", rank, what);
        MPI_Abort(MPI_COMM_WORLD, 97);
    }
}

int main(int argc, char **argv)
{
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    check(argc == 3, "usage");
    int gone = !strcmp(argv[2], "gone"), mode = MPI_MODE_RDWR | MPI_MODE_CREATE;
    const char *folder = argv[1];
    if (gone)
        mode |= MPI_MODE_DELETE_ON_CLOSE;
    check(!MPI_File_open(MPI_COMM_WORLD, in(folder, "part", -1), mode, MPI_INFO_NULL, &file), "open");
    for (int i = 0; i < CELLS; i++)
        cells[i] = rank * CELLS + i;
    MPI_Offset at = 4 * (MPI_Offset)CELLS * rank;
    MPI_File_write_at(file, at, cells, CELLS / 2, MPI_INT, MPI_STATUS_IGNORE);
    fclose(fopen(in(folder, "half", rank), "w"));
    while (access(in(folder, "go", -1), F_OK) != 0)
        usleep(1000);
    MPI_File_write_at(file, at + 2 * CELLS, cells + CELLS / 2, CELLS / 2, MPI_INT, MPI_STATUS_IGNORE);
    MPI_File_sync(file);
    if (gone) {
        int next = (rank + 1) % ranks;
        at = 4 * (MPI_Offset)CELLS * next;
        MPI_File_read_at(file, at, cells, CELLS, MPI_INT, MPI_STATUS_IGNORE);
        check(cells[7] == next * CELLS + 7, "another number was read");
    }
    MPI_File_close(&file);
    if (rank == 0 && !gone) {
        static char whole[4096];
        strcpy(whole, in(folder, "whole", -1));
        check(!rename(in(folder, "part", -1), whole) || access(whole, F_OK) == 0, "rename");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    fclose(fopen(in(folder, "done", rank), "w"));
    MPI_Finalize();
    return 0;
}
