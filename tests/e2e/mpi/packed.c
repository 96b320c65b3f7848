/* Random derived datatypes of up to four levels: extents, packed bytes and unpacked memory, against digests of
 * what MPICH 5 gave. `packed FIRST LAST` prints the figures of each type with a number from FIRST on and below
 * LAST, for a comparison with another MPI, which this file can be built with, too. */
#include "check.h"

#define ROOM (1 << 16)
#define MIDDLE (ROOM / 2)
#define MOST_DEPTH 3
/* Types that share a digest. */
#define GROUP 125

static unsigned char from[ROOM], packed[ROOM], to[ROOM];
static uint64_t state, digest;
static const uint64_t expected[] = {
    0x19629e605328d8cbu, 0x68fb82441f1fb859u, 0x67846c2f636c1d24u, 0xfec102e22047abafu,
    0xa9dff5965c9658a6u, 0x69a15dfdfc4a1381u, 0x1d7d70d0e8b224d4u, 0x9193718813135d6au,
    0x81243b49e69742ecu, 0x2183a7737b781dbfu, 0x4f05ad6d7569deb2u, 0x8dd7f9cf4a73e8f6u,
    0x1ecde216a48606a9u, 0x209a197e76a290afu, 0xddc739e68acef18bu, 0x1ce907b1d369e704u,
    0xca3727334f3675e5u, 0x0387ccc3c3990ecbu, 0x1c49ec062f53f641u, 0x5536aef5363c24eau,
    0x270f44046b39b658u, 0xfad2077669071c0fu, 0x3fc06377c47d0edeu, 0xf41cc63e36edc0b3u,
    0xa86a567663e73f43u, 0xc3ca507473d8dd0fu, 0x19b7c2b9daec8dc0u, 0x7c267e7c3649981du,
    0x891b8cd474fd0441u, 0xd99eef4a31d5d5acu, 0x305e3f2bc9feeb4du, 0x6785d5de4577ac61u,
    0xb3a31a595f0dbb80u, 0x7719b7e006d27439u, 0x170ab2c940798473u, 0x5fffb95281756851u,
    0x57b2c86b4f68a231u, 0x4eee8e1d35ff6829u, 0x250df55ddf44a14cu, 0x0d0eef700dd7f623u,
    0x5ab73c6f9f82d04au, 0x49aef4ff1222f903u, 0x25660232939c82acu, 0x24217a05a74a526cu,
    0x6d8f27df607468b8u, 0x6abc53b93fe4d768u, 0xde08b9f049b6b87cu, 0x04acb2a178f3172du,
};

static unsigned below(unsigned most)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % most;
}

static void mix(uint64_t word)
{
    digest = (digest ^ word) * 0x100000001b3u;
    digest ^= digest >> 29;
}

/* Seldom none. */
static int few(void)
{
    return below(12) ? 1 + (int)below(3) : 0;
}

static MPI_Datatype basic(void)
{
    MPI_Datatype all[] = { MPI_CHAR, MPI_SHORT, MPI_INT, MPI_LONG_LONG, MPI_FLOAT, MPI_DOUBLE,
                           MPI_BYTE, MPI_UNSIGNED, MPI_DOUBLE_INT, MPI_SHORT_INT, MPI_2INT,
                           MPI_C_DOUBLE_COMPLEX };
    return all[below(sizeof all / sizeof *all)];
}

static MPI_Datatype any(int depth);

/* One with data: MPI_Pack of MPICH 5.0.2 divides by zero in some that are built of others. */
static MPI_Datatype some(int depth)
{
    MPI_Datatype type = any(depth);
    int size;
    OK(MPI_Type_size(type, &size));
    return size > 0 ? type : MPI_SHORT;
}

/* Of an old type: those that repeat it in a regular manner. */
static MPI_Datatype repeated(int depth, unsigned kind)
{
    MPI_Datatype old = some(depth), new;
    MPI_Aint lb, extent;
    int count = few(), block = few();
    MPI_Type_get_extent(old, &lb, &extent);
    switch (kind) {
    case 0:
        OK(MPI_Type_contiguous(count, old, &new));
        break;
    case 1:
        OK(MPI_Type_vector(count, block, (int)below(9) - 3, old, &new));
        break;
    case 2:
        OK(MPI_Type_create_hvector(count, block, (MPI_Aint)below(80) - 20, old, &new));
        break;
    case 3:
        OK(MPI_Type_create_resized(old, (MPI_Aint)below(9) - 4, extent + (MPI_Aint)below(24), &new));
        break;
    default:
        OK(MPI_Type_dup(old, &new));
    }
    return new;
}

/* Those with places of their own. */
static MPI_Datatype placed(int depth, unsigned kind)
{
    MPI_Datatype old[4], new;
    int count = kind == 4 ? 2 + (int)below(3) : few(), blocks[4], places[4];
    MPI_Aint bytes[4];
    for (int i = 0; i < 4; i++) {
        blocks[i] = kind == 4 ? 1 + (int)below(3) : few();
        places[i] = (int)below(13) - 4;
        bytes[i] = (MPI_Aint)below(160) - 40;
        old[i] = i == 0 || (kind == 4 && i < count) ? some(depth) : MPI_INT;
    }
    /* Of one type alone the ABIs pad differently. */
    old[kind == 4 ? below((unsigned)count) : 0] = kind == 4 ? MPI_CHAR : old[0];
    switch (kind) {
    case 0:
        OK(MPI_Type_indexed(count, blocks, places, old[0], &new));
        break;
    case 1:
        OK(MPI_Type_create_hindexed(count, blocks, bytes, old[0], &new));
        break;
    case 2:
        OK(MPI_Type_create_indexed_block(count, blocks[0], places, old[0], &new));
        break;
    case 3:
        OK(MPI_Type_create_hindexed_block(count, blocks[0], bytes, old[0], &new));
        break;
    default:
        OK(MPI_Type_create_struct(count, blocks, bytes, old, &new));
    }
    return new;
}

/* Parts of arrays. */
static MPI_Datatype part(int depth, unsigned kind)
{
    MPI_Datatype old = some(depth), new;
    int dims = 1 + (int)below(3), sizes[3], parts[3], starts[3], how[3], args[3], grid[3], all = 1;
    int order = below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    for (int i = 0; i < dims; i++) {
        sizes[i] = 1 + (int)below(4);
        parts[i] = 1 + (int)below((unsigned)sizes[i]);
        starts[i] = (int)below((unsigned)(sizes[i] - parts[i] + 1));
        how[i] = below(2) ? MPI_DISTRIBUTE_BLOCK : MPI_DISTRIBUTE_CYCLIC;
        args[i] = MPI_DISTRIBUTE_DFLT_DARG;
        grid[i] = 1 + (int)below(2);
        all *= grid[i];
    }
    if (kind == 0)
        OK(MPI_Type_create_subarray(dims, sizes, parts, starts, order, old, &new));
    else
        OK(MPI_Type_create_darray(all, (int)below((unsigned)all), dims, sizes, how, args, grid,
                                  order, old, &new));
    return new;
}

static MPI_Datatype any(int depth)
{
    if (depth >= MOST_DEPTH || below(5) == 0)
        return basic();
    /* Those with bounds of their own are not within others, where the two ABIs differ. */
    switch (below(depth ? 8 : 12)) {
    case 0:
    case 1:
    case 2:
        return repeated(depth + 1, below(3));
    case 3:
        return repeated(depth + 1, 4);
    case 4:
    case 5:
    case 6:
    case 7:
        return placed(depth + 1, below(5));
    case 8:
        return repeated(depth + 1, 3);
    default:
        return part(depth + 1, below(2));
    }
}

/* Whether elements lie where there is room for them. */
static int fits(MPI_Datatype type, int count)
{
    MPI_Aint lb, extent, true_lb, true_extent;
    int size;
    OK(MPI_Type_get_extent(type, &lb, &extent));
    OK(MPI_Type_get_true_extent(type, &true_lb, &true_extent));
    OK(MPI_Type_size(type, &size));
    MPI_Aint last = extent * (count - 1), first = last < 0 ? last : 0;
    last = last > 0 ? last : 0;
    return MIDDLE + true_lb + first >= 0 && MIDDLE + true_lb + true_extent + last <= ROOM
           && (int64_t)size * count <= ROOM;
}

/* Whether a byte of memory comes twice in what is packed: it may not be received into then. */
static int overlaps(MPI_Datatype type, int count)
{
    static unsigned char low[ROOM], met[ROOM];
    int bytes = 0, again = 0;
    for (int i = 0; i < ROOM; i++)
        from[i] = (unsigned char)i;
    OK(MPI_Pack(from + MIDDLE, count, type, low, ROOM, &bytes, MPI_COMM_SELF));
    for (int i = 0; i < ROOM; i++)
        from[i] = (unsigned char)(i >> 8);
    bytes = 0;
    OK(MPI_Pack(from + MIDDLE, count, type, packed, ROOM, &bytes, MPI_COMM_SELF));
    memset(met, 0, ROOM);
    for (int i = 0; i < bytes; i++)
        again |= met[packed[i] << 8 | low[i]]++;
    return again;
}

static void look_at(unsigned number, int prints)
{
    state = number * 0x9e3779b97f4a7c15u + 1;
    MPI_Datatype type = any(0), copy;
    /* Basic ones may not be freed, and are committed. */
    OK(MPI_Type_dup(type, &copy));
    OK(MPI_Type_commit(&copy));
    MPI_Aint lb, extent, true_lb, true_extent;
    int size, count = 1 + (int)below(3), bytes = 0, twice = 2;
    OK(MPI_Type_get_extent(copy, &lb, &extent));
    OK(MPI_Type_get_true_extent(copy, &true_lb, &true_extent));
    OK(MPI_Type_size(copy, &size));
    uint64_t before = digest;
    digest = 0xcbf29ce484222325u;
    if (fits(copy, count)) {
        twice = overlaps(copy, count);
        fill(from, ROOM, number);
        OK(MPI_Pack(from + MIDDLE, count, copy, packed, ROOM, &bytes, MPI_COMM_SELF));
        for (int i = 0; i < bytes; i++)
            mix(packed[i]);
        memset(to, 0x5a, ROOM);
        int at = 0;
        if (!twice)
            OK(MPI_Unpack(packed, bytes, &at, to + MIDDLE, count, copy, MPI_COMM_SELF));
        for (int i = 0; i < ROOM; i++)
            if (to[i] != 0x5a)
                mix((uint64_t)i << 8 | to[i]);
    }
    if (prints)
        printf("%u: size %d lb %ld extent %ld true %ld %ld count %d bytes %d twice %d data %016llx\n",
               number, size, (long)lb, (long)extent, (long)true_lb, (long)true_extent, count, bytes,
               twice, (unsigned long long)digest);
    uint64_t data = digest;
    digest = before;
    mix((uint64_t)size), mix((uint64_t)bytes);
    /* Of blocks without data MPICH counts the places, the standard nothing. */
    if (size > 0)
        mix((uint64_t)lb), mix((uint64_t)extent), mix((uint64_t)true_lb), mix((uint64_t)true_extent);
    mix((uint64_t)twice), mix(data);
    OK(MPI_Type_free(&copy));
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    unsigned groups = sizeof expected / sizeof *expected;
    if (argc > 2) {
        for (unsigned i = (unsigned)atoi(argv[1]); i < (unsigned)atoi(argv[2]); i++) {
            digest = i % GROUP ? digest : 0;
            look_at(i, 1);
            if (i % GROUP == GROUP - 1)
                printf("0x%016llxu,\n", (unsigned long long)digest);
        }
        return finish("packed");
    }
    for (unsigned group = (unsigned)rank; group < groups; group += (unsigned)ranks) {
        digest = 0;
        for (unsigned i = 0; i < GROUP; i++)
            look_at(group * GROUP + i, 0);
        CHECK(digest == expected[group], "types %u to %u: 0x%016llx", group * GROUP,
              (group + 1) * GROUP - 1, (unsigned long long)digest);
    }
    return finish("packed");
}
