/*
 * Derived datatypes: each constructor's extent and size, what it sends (compared with a list of
 * places made by hand), pack and unpack, envelope and contents, receive with another type of the
 * same signature.
 */
#include "check.h"

enum { ROOM = 4096 };

/* Sends `count` of `type` from a numbered buffer to itself; the bytes that arrive must be those at
 * `places`. */
static void sends_places(const char *name, MPI_Datatype type, int count, const int *places,
                         int place_count)
{
    static int from[ROOM], packed[ROOM], back[ROOM];
    int size, position = 0, pack_bytes;
    MPI_Request request;
    for (int i = 0; i < ROOM; i++) {
        from[i] = i * 3 + 1;
        packed[i] = back[i] = -1;
    }
    OK(MPI_Type_size(type, &size));
    CHECK(size * count == place_count * (int)sizeof(int), "%s: size %d", name, size);
    OK(MPI_Isend(from, count, type, rank, 1, MPI_COMM_WORLD, &request));
    OK(MPI_Recv(packed, place_count, MPI_INT, rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    for (int i = 0; i < place_count; i++)
        CHECK(packed[i] == from[places[i]], "%s: element %d is %d", name, i, packed[i]);
    CHECK(packed[place_count] == -1, "%s: one too many", name);
    OK(MPI_Isend(packed, place_count, MPI_INT, rank, 2, MPI_COMM_WORLD, &request));
    OK(MPI_Recv(back, count, type, rank, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    int touched = 0;
    for (int i = 0; i < ROOM; i++)
        touched += back[i] != -1;
    for (int i = 0; i < place_count; i++)
        CHECK(back[places[i]] == from[places[i]], "%s: received element %d", name, i);
    CHECK(touched == place_count, "%s: %d places written", name, touched);
    /* The same by MPI_Pack and MPI_Unpack. */
    OK(MPI_Pack_size(count, type, MPI_COMM_WORLD, &pack_bytes));
    CHECK(pack_bytes >= size * count, "%s: pack size %d", name, pack_bytes);
    char *pack = malloc((size_t)pack_bytes);
    OK(MPI_Pack(from, count, type, pack, pack_bytes, &position, MPI_COMM_WORLD));
    int end = position;
    position = 0;
    memset(back, 0xff, sizeof back);
    OK(MPI_Unpack(pack, end, &position, back, count, type, MPI_COMM_WORLD));
    CHECK(position == end, "%s: unpacked %d of %d", name, position, end);
    for (int i = 0; i < place_count; i++)
        CHECK(back[places[i]] == from[places[i]], "%s: unpacked element %d", name, i);
    free(pack);
}

static void has_extent(const char *name, MPI_Datatype type, MPI_Aint lb, MPI_Aint extent)
{
    MPI_Aint got_lb, got;
    OK(MPI_Type_get_extent(type, &got_lb, &got));
    CHECK(got_lb == lb && got == extent, "%s: lower bound %ld extent %ld", name, (long)got_lb,
          (long)got);
}

#define I ((MPI_Aint)sizeof(int))

static void simple(void)
{
    MPI_Datatype t, u;
    OK(MPI_Type_contiguous(4, MPI_INT, &t));
    OK(MPI_Type_commit(&t));
    has_extent("contiguous", t, 0, 4 * I);
    sends_places("contiguous", t, 2, (int[]){0, 1, 2, 3, 4, 5, 6, 7}, 8);
    OK(MPI_Type_vector(2, 1, 3, t, &u));
    OK(MPI_Type_commit(&u));
    has_extent("vector of contiguous", u, 0, 16 * I);
    sends_places("vector of contiguous", u, 2,
                 (int[]){0, 1, 2, 3, 12, 13, 14, 15, 16, 17, 18, 19, 28, 29, 30, 31}, 16);
    OK(MPI_Type_free(&u));
    CHECK(u == MPI_DATATYPE_NULL, "a freed type is null");
    OK(MPI_Type_create_hvector(3, 2, 5 * I, MPI_INT, &u));
    OK(MPI_Type_commit(&u));
    has_extent("hvector", u, 0, 12 * I);
    sends_places("hvector", u, 1, (int[]){0, 1, 5, 6, 10, 11}, 6);
    OK(MPI_Type_free(&u));
    OK(MPI_Type_indexed(3, (int[]){2, 0, 1}, (int[]){5, 3, 0}, MPI_INT, &u));
    OK(MPI_Type_commit(&u));
    has_extent("indexed", u, 0, 7 * I);
    sends_places("indexed", u, 2, (int[]){5, 6, 0, 12, 13, 7}, 6);
    OK(MPI_Type_free(&u));
    OK(MPI_Type_create_hindexed(2, (int[]){1, 3}, (MPI_Aint[]){8 * I, 2 * I}, MPI_INT, &u));
    OK(MPI_Type_commit(&u));
    has_extent("hindexed", u, 2 * I, 7 * I);
    sends_places("hindexed", u, 1, (int[]){8, 2, 3, 4}, 4);
    OK(MPI_Type_free(&u));
    OK(MPI_Type_create_indexed_block(3, 2, (int[]){0, 4, 8}, MPI_INT, &u));
    OK(MPI_Type_commit(&u));
    sends_places("indexed_block", u, 1, (int[]){0, 1, 4, 5, 8, 9}, 6);
    OK(MPI_Type_free(&u));
    OK(MPI_Type_create_hindexed_block(2, 2, (MPI_Aint[]){3 * I, 9 * I}, MPI_INT, &u));
    OK(MPI_Type_commit(&u));
    sends_places("hindexed_block", u, 1, (int[]){3, 4, 9, 10}, 4);
    OK(MPI_Type_dup(u, &t));
    sends_places("dup", t, 1, (int[]){3, 4, 9, 10}, 4);
    OK(MPI_Type_free(&u));
    OK(MPI_Type_free(&t));
}

static void resized_and_bounds(void)
{
    MPI_Datatype column, narrow;
    MPI_Aint lb, extent;
    OK(MPI_Type_vector(4, 1, 10, MPI_INT, &column));
    OK(MPI_Type_create_resized(column, 0, I, &narrow));
    OK(MPI_Type_commit(&narrow));
    has_extent("resized", narrow, 0, I);
    sends_places("two columns", narrow, 2, (int[]){0, 10, 20, 30, 1, 11, 21, 31}, 8);
    OK(MPI_Type_get_true_extent(narrow, &lb, &extent));
    CHECK(lb == 0 && extent == 31 * I, "true extent %ld", (long)extent);
    OK(MPI_Type_free(&column));
    OK(MPI_Type_free(&narrow));
}

struct mixed {
    char tag;
    int number;
    double value;
    char name[5];
};

static void structures(void)
{
    struct mixed out[3], in[3];
    MPI_Datatype raw, type;
    MPI_Aint base, at[4];
    memset(out, 0, sizeof out);
    memset(in, 0xff, sizeof in);
    OK(MPI_Get_address(&out[0], &base));
    OK(MPI_Get_address(&out[0].tag, &at[0]));
    OK(MPI_Get_address(&out[0].number, &at[1]));
    OK(MPI_Get_address(&out[0].value, &at[2]));
    OK(MPI_Get_address(&out[0].name, &at[3]));
    for (int i = 0; i < 4; i++)
        at[i] = MPI_Aint_diff(at[i], base);
    CHECK(MPI_Aint_add(base, 4) - base == 4, "address arithmetic");
    OK(MPI_Type_create_struct(4, (int[]){1, 1, 1, 5}, at,
                              (MPI_Datatype[]){MPI_CHAR, MPI_INT, MPI_DOUBLE, MPI_CHAR}, &raw));
    OK(MPI_Type_create_resized(raw, 0, sizeof(struct mixed), &type));
    OK(MPI_Type_commit(&type));
    int size, count;
    OK(MPI_Type_size(type, &size));
    CHECK(size == 18, "size %d", size);
    for (int i = 0; i < 3; i++)
        out[i] = (struct mixed){(char)('a' + i), i * 7, i * 0.5, "wxyz"};
    MPI_Request request;
    MPI_Status status;
    OK(MPI_Isend(out, 3, type, (rank + 1) % ranks, 3, MPI_COMM_WORLD, &request));
    OK(MPI_Recv(in, 3, type, (rank + ranks - 1) % ranks, 3, MPI_COMM_WORLD, &status));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    OK(MPI_Get_count(&status, type, &count));
    CHECK(count == 3, "count %d", count);
    OK(MPI_Get_elements(&status, type, &count));
    CHECK(count == 24, "elements %d", count);
    for (int i = 0; i < 3; i++)
        CHECK(in[i].tag == 'a' + i && in[i].number == i * 7 && in[i].value == i * 0.5 &&
                  !strcmp(in[i].name, "wxyz"),
              "structure %d", i);
    OK(MPI_Type_free(&raw));
    OK(MPI_Type_free(&type));
    /* Absolute addresses with MPI_BOTTOM. */
    double value = rank + 0.25, got = 0;
    MPI_Aint where;
    OK(MPI_Get_address(&value, &where));
    OK(MPI_Type_create_hindexed(1, (int[]){1}, &where, MPI_DOUBLE, &type));
    OK(MPI_Type_commit(&type));
    OK(MPI_Isend(MPI_BOTTOM, 1, type, rank, 4, MPI_COMM_WORLD, &request));
    OK(MPI_Recv(&got, 1, MPI_DOUBLE, rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    CHECK(got == value, "bottom %g", got);
    OK(MPI_Type_free(&type));
}

static void arrays(void)
{
    MPI_Datatype t;
    int places[24], n = 0;
    OK(MPI_Type_create_subarray(3, (int[]){4, 5, 6}, (int[]){2, 3, 4}, (int[]){1, 2, 1},
                                MPI_ORDER_C, MPI_INT, &t));
    OK(MPI_Type_commit(&t));
    for (int i = 1; i < 3; i++)
        for (int j = 2; j < 5; j++)
            for (int k = 1; k < 5; k++)
                places[n++] = (i * 5 + j) * 6 + k;
    has_extent("subarray", t, 0, 120 * I);
    sends_places("subarray", t, 1, places, 24);
    OK(MPI_Type_free(&t));
    OK(MPI_Type_create_subarray(2, (int[]){6, 4}, (int[]){3, 2}, (int[]){2, 1}, MPI_ORDER_FORTRAN,
                                MPI_INT, &t));
    OK(MPI_Type_commit(&t));
    sends_places("Fortran subarray", t, 1, (int[]){8, 9, 10, 14, 15, 16}, 6);
    OK(MPI_Type_free(&t));
    /* A 7 x 6 array over a 2 x 2 grid: rows in blocks of 4, columns cyclic by 2. Process 3 has (1,
     * 1). */
    int grid[2] = {2, 2}, distribution[2] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC};
    OK(MPI_Type_create_darray(4, 3, 2, (int[]){7, 6}, distribution,
                              (int[]){MPI_DISTRIBUTE_DFLT_DARG, 2}, grid, MPI_ORDER_C, MPI_INT,
                              &t));
    OK(MPI_Type_commit(&t));
    has_extent("darray", t, 0, 42 * I);
    sends_places("darray", t, 1, (int[]){26, 27, 32, 33, 38, 39}, 6);
    OK(MPI_Type_free(&t));
}

static void envelopes(void)
{
    MPI_Datatype t, old;
    int integers, addresses, types, combiner, values[8];
    MPI_Aint places[4];
    OK(MPI_Type_get_envelope(MPI_INT, &integers, &addresses, &types, &combiner));
    CHECK(combiner == MPI_COMBINER_NAMED, "combiner %d", combiner);
    OK(MPI_Type_vector(2, 3, 4, MPI_DOUBLE, &t));
    OK(MPI_Type_get_envelope(t, &integers, &addresses, &types, &combiner));
    CHECK(combiner == MPI_COMBINER_VECTOR && integers == 3 && addresses == 0 && types == 1,
          "vector's envelope");
    OK(MPI_Type_get_contents(t, 3, 0, 1, values, places, &old));
    CHECK(values[0] == 2 && values[1] == 3 && values[2] == 4 && old == MPI_DOUBLE,
          "vector's contents");
    OK(MPI_Type_free(&t));
    OK(MPI_Type_create_hindexed(2, (int[]){1, 3}, (MPI_Aint[]){40, 8}, MPI_INT, &t));
    OK(MPI_Type_get_envelope(t, &integers, &addresses, &types, &combiner));
    CHECK(combiner == MPI_COMBINER_HINDEXED && integers == 3 && addresses == 2 && types == 1,
          "hindexed's envelope");
    OK(MPI_Type_get_contents(t, 3, 2, 1, values, places, &old));
    CHECK(values[0] == 2 && values[1] == 1 && values[2] == 3 && places[0] == 40 && places[1] == 8,
          "contents");
    OK(MPI_Type_free(&t));
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    OK(MPI_Type_get_name(MPI_DOUBLE, name, &length));
    CHECK(!strcmp(name, "MPI_DOUBLE") && length == 10, "name %s", name);
    OK(MPI_Type_contiguous(2, MPI_INT, &t));
    OK(MPI_Type_set_name(t, "two"));
    OK(MPI_Type_get_name(t, name, &length));
    CHECK(!strcmp(name, "two") && length == 3, "name %s", name);
    OK(MPI_Type_free(&t));
}

/* A type that was freed stays alive in those made of it and in messages under way. */
static void freed_early(void)
{
    MPI_Datatype inner, outer;
    int out[8] = {1, 2, 3, 4, 5, 6, 7, 8}, in[8] = {0};
    MPI_Request r[2];
    OK(MPI_Type_vector(2, 1, 2, MPI_INT, &inner));
    OK(MPI_Type_contiguous(2, inner, &outer));
    OK(MPI_Type_free(&inner));
    OK(MPI_Type_commit(&outer));
    OK(MPI_Irecv(in, 1, outer, rank, 6, MPI_COMM_WORLD, &r[0]));
    OK(MPI_Isend(out, 1, outer, rank, 6, MPI_COMM_WORLD, &r[1]));
    OK(MPI_Type_free(&outer));
    OK(MPI_Waitall(2, r, MPI_STATUSES_IGNORE));
    CHECK(in[0] == 1 && in[2] == 3 && in[3] == 4 && in[5] == 6 && in[1] == 0, "%d %d %d", in[0],
          in[2], in[3]);
}

/* A large strided message, longer than any buffer inside. */
static void large(void)
{
    enum { N = 400000 };
    int *out = calloc(2 * N, sizeof *out), *in = calloc(2 * N, sizeof *in);
    int to = (rank + 1) % ranks, from = (rank + ranks - 1) % ranks;
    MPI_Datatype t;
    MPI_Request r;
    for (int i = 0; i < 2 * N; i++)
        out[i] = rank * 7 + i;
    OK(MPI_Type_vector(N, 1, 2, MPI_INT, &t));
    OK(MPI_Type_commit(&t));
    OK(MPI_Isend(out, 1, t, to, 8, MPI_COMM_WORLD, &r));
    OK(MPI_Recv(in, 1, t, from, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    for (int i = 0; i < 2 * N; i++)
        CHECK(in[i] == (i % 2 ? 0 : from * 7 + i), "at %d: %d", i, in[i]);
    OK(MPI_Type_free(&t));
    free(out);
    free(in);
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    simple();
    resized_and_bounds();
    structures();
    arrays();
    envelopes();
    freed_early();
    large();
    char pack[64];
    int position = 0, bytes;
    double value = 0.5, got = 0;
    OK(MPI_Pack_external("external32", &value, 1, MPI_DOUBLE, pack, 64, &(MPI_Aint){0}));
    CHECK(pack[0] == 0x3f && (unsigned char)pack[1] == 0xe0, "external32 is big-endian");
    OK(MPI_Pack(&value, 1, MPI_DOUBLE, pack, 64, &position, MPI_COMM_WORLD));
    MPI_Request r;
    OK(MPI_Isend(pack, position, MPI_PACKED, rank, 9, MPI_COMM_WORLD, &r));
    OK(MPI_Recv(&got, 1, MPI_DOUBLE, rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    OK(MPI_Wait(&r, MPI_STATUS_IGNORE));
    OK(MPI_Pack_size(1, MPI_DOUBLE, MPI_COMM_WORLD, &bytes));
    CHECK(got == 0.5 && bytes >= 8, "packed data is received as what it was");
    return finish("types");
}
