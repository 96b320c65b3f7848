/* Files: arrays written in one distribution and read in another through every form of access, file
 * pointers, sizes, modes, views, error handlers. Nothing that is read is written over later, or deleted
 * before the end: a rank that is killed reads it again. */
#include "check.h"
#include "folder.h"

#include <unistd.h>

enum { N = 60, CELLS = N * N, FORMS = 8, ROUNDS = 24, MOST_FILES = 1000 };

static char made[MOST_FILES][500];
static int files;

/* The name of one more file, the same on all ranks; `own`: another on each. */
static const char *new_name(int own)
{
    char *name = made[files++];
    CHECK(files < MOST_FILES, "too many files");
    snprintf(name, sizeof made[0], "%s/%d.%d", folder, files, own ? rank : 0);
    return name;
}

static MPI_File opened(MPI_Comm comm, const char *name, int amode)
{
    MPI_File fh;
    OK(MPI_File_open(comm, name, amode, MPI_INFO_NULL, &fh));
    return fh;
}

#define FAILS(call, class)                                           \
    do {                                                             \
        int found_ = class_of(call);                                 \
        CHECK(found_ == (class), "%s: error class %d", #call, found_); \
    } while (0)

static void count_is(MPI_Status *status, int expected)
{
    int n = -1;
    OK(MPI_Get_count(status, MPI_INT, &n));
    CHECK(n == expected, "%d elements instead of %d", n, expected);
}

/* Rows in blocks, columns in turn, over a grid of ranks. */
static MPI_Datatype in_darray(void)
{
    int sizes[2] = {N, N}, kinds[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    int args[2] = {MPI_DISTRIBUTE_DFLT_DARG, 7}, grid[2] = {0, 0};
    MPI_Datatype type;
    OK(MPI_Dims_create(ranks, 2, grid));
    OK(MPI_Type_create_darray(ranks, rank, 2, sizes, kinds, args, grid, MPI_ORDER_C, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    return type;
}

/* Neighbouring columns. */
static MPI_Datatype in_columns(void)
{
    int sizes[2] = {N, N}, from = rank * N / ranks, to = (rank + 1) * N / ranks;
    int part[2] = {N, to - from}, starts[2] = {0, from};
    MPI_Datatype type;
    OK(MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_C, MPI_INT, &type));
    OK(MPI_Type_commit(&type));
    return type;
}

/* Of an array in this distribution, what is this rank's. */
static int part_of(MPI_Datatype type, int seed, int *part)
{
    static int all[CELLS];
    int size, position = 0;
    for (int i = 0; i < CELLS; i++)
        all[i] = seed * CELLS + i;
    OK(MPI_Type_size(type, &size));
    OK(MPI_Pack(all, 1, type, part, CELLS * 4, &position, MPI_COMM_WORLD));
    CHECK(position == size, "packed %d of %d bytes", position, size);
    return size / 4;
}

/* Writes all of a part by a form of access; the view begins with it. */
static void put_part(MPI_File fh, const int *data, int n, int form)
{
    int half = n / 2;
    MPI_Request requests[2];
    MPI_Status status;
    switch (form % FORMS) {
    case 0:
        OK(MPI_File_write_all(fh, data, n, MPI_INT, &status));
        break;
    case 1:
        OK(MPI_File_write_at(fh, half, data + half, n - half, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_write_at(fh, 0, data, half, MPI_INT, MPI_STATUS_IGNORE));
        return;
    case 2:
        OK(MPI_File_iwrite(fh, data, half, MPI_INT, &requests[0]));
        OK(MPI_File_iwrite(fh, data + half, n - half, MPI_INT, &requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        return;
    case 3:
        OK(MPI_File_write_at_all_begin(fh, 0, data, n, MPI_INT));
        OK(MPI_File_write_at_all_end(fh, data, &status));
        break;
    case 4:
        OK(MPI_File_iwrite_at_all(fh, 0, data, n, MPI_INT, &requests[0]));
        OK(MPI_Wait(&requests[0], &status));
        break;
    case 5:
        OK(MPI_File_write_all_begin(fh, data, n, MPI_INT));
        OK(MPI_File_write_all_end(fh, data, &status));
        break;
    case 6:
        OK(MPI_File_write(fh, data, half, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_iwrite_all(fh, data + half, n - half, MPI_INT, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        return;
    default:
        OK(MPI_File_iwrite_at(fh, half, data + half, n - half, MPI_INT, &requests[0]));
        OK(MPI_File_write_at_all(fh, 0, data, half, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        return;
    }
    count_is(&status, n);
}

static void get_part(MPI_File fh, int *data, int n, int form)
{
    int half = n / 2, flag = 0;
    MPI_Request requests[2];
    MPI_Status status;
    switch (form % FORMS) {
    case 0:
        OK(MPI_File_read_all(fh, data, n, MPI_INT, &status));
        break;
    case 1:
        OK(MPI_File_read_at(fh, half, data + half, n - half, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_read_at(fh, 0, data, half, MPI_INT, MPI_STATUS_IGNORE));
        return;
    case 2:
        OK(MPI_File_iread(fh, data, half, MPI_INT, &requests[0]));
        OK(MPI_File_iread(fh, data + half, n - half, MPI_INT, &requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        return;
    case 3:
        OK(MPI_File_read_at_all_begin(fh, 0, data, n, MPI_INT));
        OK(MPI_File_read_at_all_end(fh, data, &status));
        break;
    case 4:
        OK(MPI_File_iread_at_all(fh, 0, data, n, MPI_INT, &requests[0]));
        while (!flag)
            MPI_Test(&requests[0], &flag, &status);
        break;
    case 5:
        OK(MPI_File_read_all_begin(fh, data, n, MPI_INT));
        OK(MPI_File_read_all_end(fh, data, &status));
        break;
    case 6:
        OK(MPI_File_read(fh, data, half, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_File_iread_all(fh, data + half, n - half, MPI_INT, &requests[0]));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        return;
    default:
        OK(MPI_File_iread_at(fh, half, data + half, n - half, MPI_INT, &requests[0]));
        OK(MPI_File_read_at_all(fh, 0, data, half, MPI_INT, MPI_STATUS_IGNORE));
        OK(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
        return;
    }
    count_is(&status, n);
}

/* One array after the other, each written in one distribution and read in the other. */
static void arrays(int file)
{
    static int part[CELLS + 1], read[CELLS + 1];
    MPI_Datatype types[2] = {in_darray(), in_columns()};
    MPI_File fh = opened(MPI_COMM_WORLD, new_name(0), MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL);
    MPI_Offset where, size;
    /* Whether a form takes the file pointer along. */
    const int moves[FORMS] = {1, 0, 1, 0, 0, 1, 1, 0};
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Datatype type = types[round % 2];
        int n = part_of(type, file * ROUNDS + round, part);
        OK(MPI_File_set_view(fh, 4 * (MPI_Offset)CELLS * round, MPI_INT, type, "native",
                             MPI_INFO_NULL));
        put_part(fh, part, n, round + file);
        OK(MPI_File_get_position(fh, &where));
        CHECK(where == (moves[(round + file) % FORMS] ? n : 0), "at %lld", (long long)where);
    }
    OK(MPI_File_sync(fh));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_sync(fh));
    OK(MPI_File_get_size(fh, &size));
    CHECK(size == 4 * (MPI_Offset)CELLS * ROUNDS, "%lld bytes", (long long)size);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Datatype type = types[(round + 1) % 2];
        int n = part_of(type, file * ROUNDS + round, part);
        OK(MPI_File_set_view(fh, 4 * (MPI_Offset)CELLS * round, MPI_INT, type, "native",
                             MPI_INFO_NULL));
        memset(read, -1, sizeof read);
        get_part(fh, read, n, round + file);
        CHECK(!memcmp(part, read, 4 * n) && read[n] == -1, "round %d of file %d", round, file);
    }
    OK(MPI_File_close(&fh));
    CHECK(fh == MPI_FILE_NULL, "closed");
    for (int i = 0; i < 2; i++)
        OK(MPI_Type_free(&types[i]));
}

/* Memory with gaps, file pointers, where a view's data is, the end of the file. */
static void pointers(void)
{
    int data[8], read[8];
    MPI_Datatype pair, shape, every, etype, filetype;
    MPI_Offset at, disp;
    MPI_Status status;
    char datarep[MPI_MAX_DATAREP_STRING];
    MPI_File fh = opened(MPI_COMM_SELF, new_name(1), MPI_MODE_RDWR | MPI_MODE_CREATE);
    OK(MPI_Type_contiguous(2, MPI_INT, &pair));
    OK(MPI_Type_create_resized(pair, 0, 20, &shape));
    OK(MPI_Type_commit(&shape));
    OK(MPI_Type_vector(4, 1, 2, MPI_INT, &every));
    OK(MPI_Type_commit(&every));
    OK(MPI_File_set_view(fh, 8, MPI_INT, shape, "native", MPI_INFO_NULL));
    for (int i = 0; i < 5; i++) {
        OK(MPI_File_get_byte_offset(fh, i, &at));
        CHECK(at == 8 + i / 2 * 20 + i % 2 * 4, "offset %d at %lld", i, (long long)at);
    }
    for (int i = 0; i < 8; i++)
        data[i] = 100 * rank + i;
    OK(MPI_File_seek(fh, 1, MPI_SEEK_SET));
    OK(MPI_File_write(fh, data, 1, every, &status));
    count_is(&status, 4);
    OK(MPI_File_get_position(fh, &at));
    CHECK(at == 5, "position %lld", (long long)at);
    OK(MPI_File_get_size(fh, &at));
    CHECK(at == 8 + 40 + 4, "%lld bytes", (long long)at);
    OK(MPI_File_seek(fh, -4, MPI_SEEK_CUR));
    memset(read, -1, sizeof read);
    OK(MPI_File_read(fh, read, 1, every, &status));
    for (int i = 0; i < 8; i++)
        CHECK(read[i] == (i % 2 ? -1 : data[i]), "%d is %d", i, read[i]);
    OK(MPI_File_seek(fh, -2, MPI_SEEK_END));
    OK(MPI_File_get_position(fh, &at));
    CHECK(at == 3, "position %lld", (long long)at);
    OK(MPI_File_read(fh, read, 2, MPI_INT, &status));
    CHECK(read[0] == data[4] && read[1] == data[6], "%d and %d", read[0], read[1]);
    OK(MPI_File_get_view(fh, &disp, &etype, &filetype, datarep));
    CHECK(disp == 8 && etype == MPI_INT && !strcmp(datarep, "native"), "view");
    OK(MPI_Type_get_extent(filetype, &at, &disp));
    CHECK(at == 0 && disp == 20, "filetype");
    OK(MPI_Type_free(&filetype));
    /* (What MPICH says of a short read through a view with gaps is not so.) */
    OK(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_read_at(fh, 12, read, 8, MPI_INT, &status));
    count_is(&status, 1);
    CHECK(read[0] == data[6], "%d", read[0]);
    OK(MPI_File_read_at(fh, 1000, read, 8, MPI_INT, &status));
    count_is(&status, 0);
    OK(MPI_File_get_type_extent(fh, every, &disp));
    CHECK(disp == 28, "extent");
    OK(MPI_File_close(&fh));
    OK(MPI_Type_free(&pair));
    OK(MPI_Type_free(&shape));
    OK(MPI_Type_free(&every));
}

static void sizes_and_questions(void)
{
    int amode = MPI_MODE_RDWR | MPI_MODE_CREATE, found, flag, n, value = 7 + rank;
    const char *name = new_name(0);
    MPI_Offset size;
    MPI_Group group, world;
    MPI_Info info;
    MPI_File fh = opened(MPI_COMM_WORLD, name, amode);
    OK(MPI_File_get_amode(fh, &found));
    CHECK(found == amode, "mode %d", found);
    OK(MPI_File_get_group(fh, &group));
    OK(MPI_Comm_group(MPI_COMM_WORLD, &world));
    OK(MPI_Group_compare(group, world, &n));
    CHECK(n == MPI_IDENT, "group");
    OK(MPI_Group_free(&group));
    OK(MPI_Group_free(&world));
    OK(MPI_File_set_size(fh, 1000));
    OK(MPI_File_get_size(fh, &size));
    CHECK(size == 1000, "%lld bytes", (long long)size);
    OK(MPI_File_preallocate(fh, 5000));
    OK(MPI_File_get_size(fh, &size));
    CHECK(size == 5000, "%lld bytes", (long long)size);
    OK(MPI_File_get_info(fh, &info));
    OK(MPI_File_set_info(fh, info));
    OK(MPI_Info_free(&info));
    OK(MPI_File_get_atomicity(fh, &flag));
    CHECK(!flag, "atomic");
    OK(MPI_File_set_atomicity(fh, 1));
    OK(MPI_File_get_atomicity(fh, &flag));
    CHECK(flag, "not atomic");
    OK(MPI_File_write_at(fh, 5000 + 4 * rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    n = 0;
    OK(MPI_File_read_at(fh, 5000 + 4 * ((rank + 1) % ranks), &n, 1, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(n == 7 + (rank + 1) % ranks, "the next rank's number is %d", n);
    OK(MPI_File_close(&fh));
    fh = opened(MPI_COMM_WORLD, name, MPI_MODE_WRONLY | MPI_MODE_APPEND);
    OK(MPI_File_get_position(fh, &size));
    CHECK(size == 5000 + 4 * ranks, "appended at %lld", (long long)size);
    OK(MPI_File_close(&fh));
}

static MPI_File failed_file;
static int failed_class;

static void note(MPI_File *fh, int *code, ...)
{
    failed_file = *fh;
    failed_class = class_of(*code);
}

static void modes_and_errors(void)
{
    int value = 1;
    const char *name = new_name(0), *gone = new_name(0);
    MPI_File fh = MPI_FILE_NULL, other;
    MPI_Errhandler handler, found;
    MPI_Comm comm = MPI_COMM_WORLD;
    files--;
    OK(MPI_File_get_errhandler(MPI_FILE_NULL, &found));
    CHECK(found == MPI_ERRORS_RETURN, "default handler");
    FAILS(MPI_File_open(comm, name, MPI_MODE_RDONLY, MPI_INFO_NULL, &fh), MPI_ERR_NO_SUCH_FILE);
    FAILS(MPI_File_open(comm, name, MPI_MODE_RDONLY | MPI_MODE_WRONLY, MPI_INFO_NULL, &fh),
          MPI_ERR_AMODE);
    FAILS(MPI_File_open(comm, name, MPI_MODE_RDONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &fh),
          MPI_ERR_AMODE);
    OK(MPI_Barrier(comm));
    fh = opened(comm, name, MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_EXCL);
    FAILS(MPI_File_open(comm, name, MPI_MODE_WRONLY | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL,
                        &other), MPI_ERR_FILE_EXISTS);
    FAILS(MPI_File_read_at(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ACCESS);
    FAILS(MPI_File_write_at(fh, -1, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ARG);
    FAILS(MPI_File_set_view(fh, 0, MPI_INT, MPI_INT, "no such thing", MPI_INFO_NULL),
          MPI_ERR_UNSUPPORTED_DATAREP);
    OK(MPI_File_create_errhandler(note, &handler));
    OK(MPI_File_set_errhandler(fh, handler));
    failed_class = -1;
    MPI_File_seek(fh, -1, MPI_SEEK_SET);
    CHECK(failed_file == fh && failed_class == MPI_ERR_ARG, "class %d", failed_class);
    OK(MPI_File_call_errhandler(fh, MPI_ERR_IO));
    CHECK(failed_class == MPI_ERR_IO, "class %d", failed_class);
    OK(MPI_File_get_errhandler(fh, &found));
    CHECK(found == handler, "handler");
    OK(MPI_Errhandler_free(&found));
    OK(MPI_Errhandler_free(&handler));
    OK(MPI_File_close(&fh));
    fh = opened(comm, name, MPI_MODE_RDONLY);
    FAILS(MPI_File_write_at(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    CHECK(MPI_File_fromint(MPI_File_toint(fh)) == fh, "integer");
    OK(MPI_File_close(&fh));
    fh = opened(comm, gone, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_DELETE_ON_CLOSE);
    OK(MPI_File_write_at_all(fh, 4 * rank, &value, 1, MPI_INT, MPI_STATUS_IGNORE));
    OK(MPI_File_close(&fh));
    FAILS(MPI_File_open(comm, gone, MPI_MODE_RDWR, MPI_INFO_NULL, &fh), MPI_ERR_NO_SUCH_FILE);
    if (rank == 0)
        FAILS(MPI_File_delete(gone, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    begin_folder("mpifiles");
    int most = argc > 1 ? atoi(argv[1]) : 20;
    for (int file = 0; file < most; file++) {
        arrays(file);
        pointers();
        sizes_and_questions();
        modes_and_errors();
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    for (int i = 0; i < files; i++)
        if (rank == 0 || strcmp(strrchr(made[i], '.'), ".0"))
            OK(MPI_File_delete(made[i], MPI_INFO_NULL));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0)
        rmdir(folder);
    return finish("mpifiles");
}
