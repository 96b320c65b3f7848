/* Shared file pointers: records of several sizes that all ranks write and read through one pointer, each
 * exactly once, whoever is killed; ordered ones in the order of ranks. Nothing that is read is written over
 * later, or deleted before the end: a rank that is killed reads it again. */
#include "check.h"
#include "folder.h"

#include <unistd.h>

enum { HEAD = 4, MOST_BODY = 40, ROUNDS = 12, MOST_FILES = 400, MAGIC = 0x7ec02d, DISP = 12 };

static int files;

static const char *name_of(int file)
{
    static char name[500];
    snprintf(name, sizeof name, "%s/%d", folder, file);
    return name;
}

static MPI_File opened(int file, int amode)
{
    MPI_File fh;
    OK(MPI_File_open(MPI_COMM_WORLD, name_of(file), amode, MPI_INFO_NULL, &fh));
    return fh;
}

static MPI_Offset position(MPI_File fh)
{
    MPI_Offset at = -1;
    OK(MPI_File_get_position_shared(fh, &at));
    return at;
}

static int body_of(int writer, int serial, int file)
{
    return (writer * 7 + serial * 5 + file * 3) % MOST_BODY;
}

/* A record: who wrote it, its number there, how much follows. Returns its ints. */
static int make(int *record, int serial, int file)
{
    int n = body_of(rank, serial, file);
    int head[HEAD] = {MAGIC, rank, serial, n};
    memcpy(record, head, sizeof head);
    for (int i = 0; i < n; i++)
        record[HEAD + i] = rank * 1000000 + serial * 1000 + i;
    return HEAD + n;
}

static void count_is(MPI_Status *status, int expected)
{
    int n = -1;
    OK(MPI_Get_count(status, MPI_INT, &n));
    CHECK(n == expected, "%d elements instead of %d", n, expected);
}

/* Work between calls, and messages among the ranks. */
static void between(int round)
{
    volatile double x = 1;
    for (int i = 0; i < 20000 * (1 + (rank + round) % 3); i++)
        x = x * 1.0000001 + 0.5;
    if (ranks > 1 && round % 3 == 0) {
        int out = round, in = -1;
        OK(MPI_Sendrecv(&out, 1, MPI_INT, (rank + 1) % ranks, 1, &in, 1, MPI_INT,
                        (rank + ranks - 1) % ranks, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        CHECK(in == round, "round %d", in);
    }
}

/* All records of a file, in any order but ordered ones: each once, and nothing else. */
static void check_records(const int *all, MPI_Offset n, int file, int serials)
{
    char *seen = calloc(ranks * serials, 1);
    MPI_Offset at = 0;
    int last_ordered = -1;
    while (at < n) {
        const int *record = all + at;
        CHECK(n - at >= HEAD && record[0] == MAGIC, "file %d: no record at %lld", file, (long long)at);
        int who = record[1], serial = record[2], len = record[3];
        CHECK(who >= 0 && who < ranks && serial >= 0 && serial < serials, "%d of %d", serial, who);
        CHECK(len == body_of(who, serial, file) && n - at >= HEAD + len, "length %d", len);
        for (int i = 0; i < len; i++)
            if (record[HEAD + i] != who * 1000000 + serial * 1000 + i)
                CHECK(0, "file %d: record %d of %d", file, serial, who);
        CHECK(!seen[who * serials + serial], "file %d: record %d of %d stands twice", file, serial, who);
        seen[who * serials + serial] = 1;
        if (serial % 4 == 3) {
            int order = serial * ranks + who;
            CHECK(order > last_ordered, "file %d: ordered record %d of %d", file, serial, who);
            last_ordered = order;
        }
        at += HEAD + len;
    }
    for (int i = 0; i < ranks * serials; i++)
        CHECK(seen[i], "file %d: record %d of rank %d is missing", file, i % serials, i / serials);
    free(seen);
}

/* Every kind of write. Of each four records one is ordered. */
static void written(int file)
{
    int record[HEAD + MOST_BODY], other[HEAD + MOST_BODY], n, m;
    MPI_Request requests[2];
    MPI_Status status;
    MPI_Offset ints = 0, all = 0, size;
    MPI_File fh = opened(file, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL);
    OK(MPI_File_set_view(fh, DISP, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    for (int round = 0; round < ROUNDS; round++) {
        ints += n = make(record, 4 * round, file);
        OK(MPI_File_write_shared(fh, record, n, MPI_INT, &status));
        count_is(&status, n);
        between(round);
        ints += n = make(record, 4 * round + 1, file);
        OK(MPI_File_iwrite_shared(fh, record, n, MPI_INT, &requests[0]));
        ints += m = make(other, 4 * round + 2, file);
        OK(MPI_File_iwrite_shared(fh, other, m, MPI_INT, &requests[1]));
        OK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE));
        ints += n = make(record, 4 * round + 3, file);
        if (round % 2) {
            OK(MPI_File_write_ordered(fh, record, n, MPI_INT, &status));
        } else {
            OK(MPI_File_write_ordered_begin(fh, record, n, MPI_INT));
            between(round);
            OK(MPI_File_write_ordered_end(fh, record, &status));
        }
        count_is(&status, n);
    }
    OK(MPI_File_sync(fh));
    OK(MPI_Allreduce(&ints, &all, 1, MPI_OFFSET, MPI_SUM, MPI_COMM_WORLD));
    CHECK(position(fh) == all, "%lld instead of %lld", (long long)position(fh), (long long)all);
    OK(MPI_File_get_size(fh, &size));
    CHECK(size == DISP + 4 * all, "%lld bytes", (long long)size);
    int *data = malloc(4 * all);
    OK(MPI_File_read_at(fh, 0, data, (int)all, MPI_INT, &status));
    count_is(&status, (int)all);
    check_records(data, all, file, 4 * ROUNDS);
    free(data);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_close(&fh));
}

/* Every kind of read: together the ranks read each int once. */
static void read_by_all(int file)
{
    int part[64], more = 1, rest = 0;
    long long sum = 0, all = 0, expected = 0;
    MPI_Offset size, end;
    MPI_Request request;
    MPI_Status status;
    MPI_File fh = opened(file, MPI_MODE_RDONLY);
    OK(MPI_File_set_view(fh, DISP, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_get_size(fh, &size));
    int n = (int)((size - DISP) / 4), *data = malloc(4 * n);
    OK(MPI_File_read_at_all(fh, 0, data, n, MPI_INT, MPI_STATUS_IGNORE));
    for (int i = 0; i < n; i++)
        expected += data[i];
    /* In order, some each, at first. */
    int mine = 1 + rank % 3, before = 0, together = 0;
    for (int r = 0; r < ranks; r++) {
        before += r < rank ? 1 + r % 3 : 0;
        together += 1 + r % 3;
    }
    OK(MPI_File_read_ordered(fh, part, mine, MPI_INT, &status));
    count_is(&status, mine);
    CHECK(!memcmp(part, data + before, 4 * mine), "ordered at %d", before);
    OK(MPI_File_seek_shared(fh, -together, MPI_SEEK_CUR));
    OK(MPI_File_read_ordered_begin(fh, part, mine, MPI_INT));
    OK(MPI_File_read_ordered_end(fh, part, &status));
    CHECK(!memcmp(part, data + before, 4 * mine), "ordered at %d", before);
    CHECK(position(fh) >= together, "behind what was read");
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_END));
    end = position(fh);
    CHECK(end == n, "the end is at %lld", (long long)end);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_seek_shared(fh, 0, MPI_SEEK_SET));
    for (int i = 0; more; i++) {
        int want = 20 + (rank + i) % 30;
        if (i % 2) {
            OK(MPI_File_read_shared(fh, part, want, MPI_INT, &status));
        } else {
            OK(MPI_File_iread_shared(fh, part, want, MPI_INT, &request));
            OK(MPI_Wait(&request, &status));
        }
        OK(MPI_Get_count(&status, MPI_INT, &rest));
        for (int k = 0; k < rest; k++)
            sum += part[k];
        more = rest == want;
    }
    OK(MPI_Allreduce(&sum, &all, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD));
    CHECK(all == expected, "%lld instead of %lld", all, expected);
    free(data);
    OK(MPI_File_close(&fh));
}

/* Files that are opened to be added to, and such as are accessed in sequence. */
static void modes(int file)
{
    int record[HEAD + MOST_BODY], value = -1;
    MPI_Offset size, at = -1;
    MPI_File fh = opened(file, MPI_MODE_WRONLY | MPI_MODE_APPEND);
    OK(MPI_File_get_size(fh, &size));
    CHECK(position(fh) == size, "appended at %lld", (long long)position(fh));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(class_of(MPI_File_read_shared(fh, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) == MPI_ERR_ACCESS, "read");
    OK(MPI_File_close(&fh));
    fh = opened(file, MPI_MODE_RDONLY | MPI_MODE_SEQUENTIAL);
    OK(MPI_File_set_view(fh, MPI_DISPLACEMENT_CURRENT, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL));
    if (rank == 0)
        OK(MPI_File_read_shared(fh, record, DISP, MPI_BYTE, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_File_set_view(fh, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL));
    OK(MPI_File_get_view(fh, &at, &(MPI_Datatype){0}, &(MPI_Datatype){0}, (char[MPI_MAX_DATAREP_STRING]){0}));
    CHECK(at == DISP, "a view from %lld", (long long)at);
    OK(MPI_File_read_ordered(fh, &value, rank == 0, MPI_INT, MPI_STATUS_IGNORE));
    CHECK(rank > 0 || value == MAGIC, "%x", value);
    CHECK(class_of(MPI_File_read_at(fh, 0, &value, 1, MPI_INT, MPI_STATUS_IGNORE)) ==
          MPI_ERR_UNSUPPORTED_OPERATION, "an offset");
    OK(MPI_File_close(&fh));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    begin_folder("sharedfp");
    int most = argc > 1 ? atoi(argv[1]) : 10;
    for (files = 0; files < most && files < MOST_FILES; files++) {
        written(files);
        read_by_all(files);
        modes(files);
    }
    OK(MPI_Barrier(MPI_COMM_WORLD));
    /* With a second argument the files stay: `eyrie verify` reads them again after the end. */
    for (int i = 0; rank == 0 && argc < 3 && i < files; i++)
        OK(MPI_File_delete(name_of(i), MPI_INFO_NULL));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (rank == 0 && argc < 3)
        rmdir(folder);
    return finish("sharedfp");
}
