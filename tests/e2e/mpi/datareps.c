/* Representations of data in files: external32, with types that are narrower there than in memory, and one
 * that the program registers. Arrays are written in columns and read in rows. (MPICH has no functions for
 * conversion, and does not follow the sizes of external32 in views.) */
#include "check.h"
#include "folder.h"

#include <unistd.h>

enum { N = 24, ROUNDS = 40 };

static const char *name_of(int file)
{
    static char name[500];
    snprintf(name, sizeof name, "%s/%d", folder, file);
    return name;
}

/* This rank's columns, or rows, of an array. */
static MPI_Datatype part_of(MPI_Datatype type, int columns, int *elements)
{
    int from = rank * N / ranks, n = (rank + 1) * N / ranks - from;
    int sizes[2] = {N, N}, part[2] = {columns ? N : n, columns ? n : N};
    int starts[2] = {columns ? 0 : from, columns ? from : 0};
    MPI_Datatype made;
    OK(MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_C, type, &made));
    OK(MPI_Type_commit(&made));
    *elements = N * n;
    return made;
}

/* The number in row i and column k. */
static long value_of(int round, int i, int k) { return (long)(i - 5) * 1000 + k * 17 - round; }

static void fill_part(long *data, int round, int columns)
{
    int from = rank * N / ranks, to = (rank + 1) * N / ranks;
    for (int i = columns ? 0 : from; i < (columns ? N : to); i++)
        for (int k = columns ? from : 0; k < (columns ? to : N); k++)
            *data++ = value_of(round, i, k);
}

/* Longs, which the file has in four bytes, or in `bytes`; views are from 16 on. */
static void arrays(MPI_File fh, const char *datarep, int bytes, int round)
{
    long data[N * N], read[N * N];
    int n;
    MPI_Aint extent;
    MPI_Offset size, at;
    MPI_Status status;
    MPI_Offset disp = 16 + (MPI_Offset)bytes * N * N * round;
    MPI_Datatype columns = part_of(MPI_LONG, 1, &n);
    OK(MPI_File_set_view(fh, disp, MPI_LONG, columns, datarep, MPI_INFO_NULL));
    OK(MPI_File_get_type_extent(fh, MPI_LONG, &extent));
    CHECK(extent == bytes, "a long takes %d bytes", (int)extent);
    fill_part(data, round, 1);
    OK(MPI_File_write_all(fh, data, n, MPI_LONG, &status));
    int found = -1;
    OK(MPI_Get_count(&status, MPI_LONG, &found));
    CHECK(found == n, "%d of %d", found, n);
    OK(MPI_File_get_position(fh, &at));
    CHECK(at == n, "at %lld", (long long)at);
    OK(MPI_File_sync(fh));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_get_size(fh, &size));
    CHECK(size == disp + (MPI_Offset)bytes * N * N, "%lld bytes", (long long)size);
    OK(MPI_Type_free(&columns));
    MPI_Datatype rows = part_of(MPI_LONG, 0, &n);
    OK(MPI_File_set_view(fh, disp, MPI_LONG, rows, datarep, MPI_INFO_NULL));
    fill_part(data, round, 0);
    memset(read, 0, sizeof read);
    OK(MPI_File_read_at(fh, 0, read, n, MPI_LONG, &status));
    CHECK(!memcmp(read, data, n * sizeof *data), "%s, round %d", datarep, round);
    OK(MPI_Type_free(&rows));
    OK(MPI_Barrier(MPI_COMM_WORLD));
}

/* Big-endian numbers of three bytes, with as much added as the extra state says. */
static int to_file(void *user, MPI_Datatype type, int n, void *file, MPI_Offset position, void *state)
{
    const long *from = user;
    unsigned char *to = file;
    for (int i = 0; i < n; i++) {
        long v = from[i] + *(int *)state;
        to[3 * i] = v >> 16 & 255, to[3 * i + 1] = v >> 8 & 255, to[3 * i + 2] = v & 255;
    }
    return type != MPI_LONG || position != 0;
}

static int from_file(void *user, MPI_Datatype type, int n, void *file, MPI_Offset position, void *state)
{
    long *to = user;
    const signed char *from = file;
    for (int i = 0; i < n; i++)
        to[i] = (long)from[3 * i] * 65536 + (from[3 * i + 1] & 255) * 256 + (from[3 * i + 2] & 255) - *(int *)state;
    return type != MPI_LONG || position != 0;
}

static int in_file(MPI_Datatype type, MPI_Aint *extent, void *state)
{
    *extent = 3;
    return type != MPI_LONG || *(int *)state != 1;
}

static void known_bytes(void)
{
    unsigned char bytes[16] = {0};
    long wide[2] = {-2, 258};
    double one = 1;
    MPI_File fh;
    MPI_Status status;
    if (rank == 0) {
        OK(MPI_File_open(MPI_COMM_SELF, name_of(1000), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &fh));
        OK(MPI_File_set_view(fh, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL));
        OK(MPI_File_write(fh, wide, 2, MPI_LONG, &status));
        OK(MPI_File_set_view(fh, 8, MPI_DOUBLE, MPI_DOUBLE, "external32", MPI_INFO_NULL));
        OK(MPI_File_write_shared(fh, &one, 1, MPI_DOUBLE, &status));
        OK(MPI_File_set_view(fh, 0, MPI_BYTE, MPI_BYTE, "internal", MPI_INFO_NULL));
        OK(MPI_File_read(fh, bytes, 16, MPI_BYTE, &status));
        const unsigned char expected[16] = {255, 255, 255, 254, 0, 0, 1, 2, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0};
        CHECK(!memcmp(bytes, expected, 16), "bytes of external32");
        OK(MPI_File_close(&fh));
        OK(MPI_File_delete(name_of(1000), MPI_INFO_NULL));
    }
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    begin_folder("datareps");
    int most = argc > 1 ? atoi(argv[1]) : ROUNDS, more = 1;
    OK(MPI_Register_datarep("three bytes", from_file, to_file, in_file, &more));
    CHECK(class_of(MPI_Register_datarep("three bytes", from_file, to_file, in_file, &more)) ==
          MPI_ERR_DUP_DATAREP, "a second one of that name");
    const char *names[] = {"external32", "three bytes", "native", "internal"};
    const int bytes[] = {4, 3, 8, 8};
    known_bytes();
    for (int file = 0; file < 4; file++) {
        MPI_File fh;
        OK(MPI_File_open(MPI_COMM_WORLD, name_of(file), MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &fh));
        for (int round = 0; round < most; round++)
            arrays(fh, names[file], bytes[file], round);
        if (!strcmp(names[file], "three bytes"))
            CHECK(class_of(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "three bytes", MPI_INFO_NULL)) ==
                  MPI_ERR_CONVERSION, "an int has no size there");
        OK(MPI_File_close(&fh));
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int file = 0; rank == 0 && file < 4; file++)
        OK(MPI_File_delete(name_of(file), MPI_INFO_NULL));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0)
        rmdir(folder);
    return finish("datareps");
}
