/*
 * Heat on a square plate: a five-point stencil, the grid cut in blocks over all ranks, halos
 * exchanged with non-blocking messages (or MPI_Sendrecv), columns as a derived vector datatype, and
 * the residual by MPI_Allreduce.
 *
 * The result does not depend on the number of ranks: each cell's arithmetic is the same everywhere,
 * the residual is a maximum, and the checksum is a sum of per-cell hashes.
 */
#include "common.h"

static const char USAGE[] =
    "usage: heat [options]\n"
    "  --size N       global grid of N x N cells (default 512)\n"
    "  --mib M        instead of --size: about M MiB of grid on each rank\n"
    "  --steps S      time steps (default 4000; about a second on two cores)\n"
    "  --every K      residual (and progress) every K steps (default 100)\n"
    "  --sendrecv     halo exchange with MPI_Sendrecv instead of Isend/Irecv/Waitall\n"
    "  --progress     print the residual every K steps\n"
    "  --help         this text\n";

struct options {
    long size, mib, steps, every;
    int sendrecv, progress;
};

struct block {
    int rank, ranks;
    int px, py, x, y;             /* process grid and own place in it */
    int north, south, west, east; /* neighbours or MPI_PROC_NULL */
    long row0, col0;              /* global place of the first own cell */
    long rows, cols, stride;      /* own cells; stride of a stored row with its two halo cells */
    double *now, *next;
    MPI_Datatype column;
};

static struct options parse(int argc, char **argv, int rank)
{
    struct options o = {512, 0, 4000, 100, 0, 0};
    struct args a = {argc, argv, 1};
    for (; a.at < argc; a.at++) {
        if (arg_flag(&a, "--help"))
            usage_and_exit(rank, USAGE);
        else if (arg_flag(&a, "--sendrecv"))
            o.sendrecv = 1;
        else if (arg_flag(&a, "--progress"))
            o.progress = 1;
        else if (!arg_long(&a, "--size", 4, 1L << 20, &o.size) &&
                 !arg_long(&a, "--mib", 1, 1L << 20, &o.mib) &&
                 !arg_long(&a, "--steps", 1, 1L << 40, &o.steps) &&
                 !arg_long(&a, "--every", 1, 1L << 40, &o.every))
            fail("unknown option '%s' (--help lists them)", argv[a.at]);
    }
    return o;
}

/* First cell of part `index` when `total` cells are cut in `parts` nearly equal parts. */
static long part_start(long total, int parts, int index)
{
    return total / parts * index + (index < total % parts ? index : total % parts);
}

static long root_of(long square)
{
    long root = 1;
    while ((root + 1) * (root + 1) <= square)
        root++;
    return root;
}

static double *at(const struct block *b, double *field, long row, long col)
{
    return field + (row + 1) * b->stride + col + 1;
}

static struct block make_block(const struct options *o)
{
    struct block b;
    MPI_Comm_rank(MPI_COMM_WORLD, &b.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &b.ranks);
    b.py = 1;
    for (int d = 1; d * d <= b.ranks; d++)
        if (b.ranks % d == 0)
            b.py = d;
    b.px = b.ranks / b.py;
    b.x = b.rank % b.px;
    b.y = b.rank / b.px;
    b.north = b.y > 0 ? b.rank - b.px : MPI_PROC_NULL;
    b.south = b.y + 1 < b.py ? b.rank + b.px : MPI_PROC_NULL;
    b.west = b.x > 0 ? b.rank - 1 : MPI_PROC_NULL;
    b.east = b.x + 1 < b.px ? b.rank + 1 : MPI_PROC_NULL;

    /* Two fields of eight bytes a cell: 65536 cells make a MiB. */
    long size = o->mib ? root_of(o->mib * 65536 * b.ranks) : o->size;
    if (size < b.px)
        fail("a grid of %ld x %ld is too small for %d ranks", size, size, b.ranks);
    b.row0 = part_start(size, b.py, b.y);
    b.col0 = part_start(size, b.px, b.x);
    b.rows = part_start(size, b.py, b.y + 1) - b.row0;
    b.cols = part_start(size, b.px, b.x + 1) - b.col0;
    b.stride = b.cols + 2;
    b.now = must_alloc((size_t)((b.rows + 2) * b.stride), sizeof *b.now);
    b.next = must_alloc((size_t)((b.rows + 2) * b.stride), sizeof *b.next);
    MPI_Type_vector((int)b.rows, 1, (int)b.stride, MPI_DOUBLE, &b.column);
    MPI_Type_commit(&b.column);

    /* Cold plate with a warm pattern; the rim outside of the plate stays at zero. */
    for (long i = 0; i < b.rows; i++)
        for (long j = 0; j < b.cols; j++) {
            uint64_t place = (uint64_t)((b.row0 + i) * size + b.col0 + j);
            *at(&b, b.now, i, j) = (double)(mix64(place + 1) >> 40) * 0x1p-24;
        }
    return b;
}

static void exchange_nonblocking(const struct block *b, double *f)
{
    MPI_Request r[8];
    MPI_Irecv(at(b, f, -1, 0), (int)b->cols, MPI_DOUBLE, b->north, 1, MPI_COMM_WORLD, &r[0]);
    MPI_Irecv(at(b, f, b->rows, 0), (int)b->cols, MPI_DOUBLE, b->south, 2, MPI_COMM_WORLD, &r[1]);
    MPI_Irecv(at(b, f, 0, -1), 1, b->column, b->west, 3, MPI_COMM_WORLD, &r[2]);
    MPI_Irecv(at(b, f, 0, b->cols), 1, b->column, b->east, 4, MPI_COMM_WORLD, &r[3]);
    MPI_Isend(at(b, f, b->rows - 1, 0), (int)b->cols, MPI_DOUBLE, b->south, 1, MPI_COMM_WORLD,
              &r[4]);
    MPI_Isend(at(b, f, 0, 0), (int)b->cols, MPI_DOUBLE, b->north, 2, MPI_COMM_WORLD, &r[5]);
    MPI_Isend(at(b, f, 0, b->cols - 1), 1, b->column, b->east, 3, MPI_COMM_WORLD, &r[6]);
    MPI_Isend(at(b, f, 0, 0), 1, b->column, b->west, 4, MPI_COMM_WORLD, &r[7]);
    MPI_Waitall(8, r, MPI_STATUSES_IGNORE);
}

static void exchange_sendrecv(const struct block *b, double *f)
{
    MPI_Sendrecv(at(b, f, b->rows - 1, 0), (int)b->cols, MPI_DOUBLE, b->south, 1, at(b, f, -1, 0),
                 (int)b->cols, MPI_DOUBLE, b->north, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(at(b, f, 0, 0), (int)b->cols, MPI_DOUBLE, b->north, 2, at(b, f, b->rows, 0),
                 (int)b->cols, MPI_DOUBLE, b->south, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(at(b, f, 0, b->cols - 1), 1, b->column, b->east, 3, at(b, f, 0, -1), 1, b->column,
                 b->west, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(at(b, f, 0, 0), 1, b->column, b->west, 4, at(b, f, 0, b->cols), 1, b->column,
                 b->east, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* One step from `now` to `next`. */
static void relax(const struct block *b)
{
    const double k = 0.2;
    for (long i = 0; i < b->rows; i++) {
        const double *c = at(b, b->now, i, 0), *n = c - b->stride, *s = c + b->stride;
        double *out = at(b, b->next, i, 0);
        for (long j = 0; j < b->cols; j++)
            out[j] = c[j] + k * (n[j] + s[j] + c[j - 1] + c[j + 1] - 4.0 * c[j]);
    }
}

static double largest_change(const struct block *b)
{
    double most = 0;
    for (long i = 0; i < b->rows; i++) {
        const double *old = at(b, b->now, i, 0), *new = at(b, b->next, i, 0);
        for (long j = 0; j < b->cols; j++) {
            double change = new[j] > old[j] ? new[j] - old[j] : old[j] - new[j];
            most = change > most ? change : most;
        }
    }
    return most;
}

static void report(const struct block *b, long size, long steps, double residual)
{
    uint64_t hash = 0, total = 0;
    double heat = 0, all_heat = 0;
    for (long i = 0; i < b->rows; i++)
        for (long j = 0; j < b->cols; j++) {
            double cell = *at(b, b->now, i, j);
            hash += place_hash((uint64_t)((b->row0 + i) * size + b->col0 + j), bits_of(cell));
            heat += cell;
        }
    MPI_Reduce(&hash, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    MPI_Reduce(&heat, &all_heat, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (b->rank == 0) {
        printf("heat: grid %ld x %ld, %ld steps, %d ranks\n", size, size, steps, b->ranks);
        printf("heat: residual %a heat %a\n", residual, all_heat);
        printf("heat: checksum %016" PRIx64 "\n", total);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct options o = parse(argc, argv, rank);
    struct block b = make_block(&o);
    long size = o.mib ? root_of(o.mib * 65536 * b.ranks) : o.size;
    double residual = 0;
    for (long step = 1; step <= o.steps; step++) {
        if (o.sendrecv)
            exchange_sendrecv(&b, b.now);
        else
            exchange_nonblocking(&b, b.now);
        relax(&b);
        if (step % o.every == 0 || step == o.steps) {
            double mine = largest_change(&b);
            MPI_Allreduce(&mine, &residual, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            if (o.progress && rank == 0) {
                printf("heat: step %ld residual %a\n", step, residual);
                fflush(stdout);
            }
        }
        double *old = b.now;
        b.now = b.next;
        b.next = old;
    }
    report(&b, size, o.steps, residual);
    MPI_Type_free(&b.column);
    free(b.now);
    free(b.next);
    MPI_Finalize();
    return 0;
}
