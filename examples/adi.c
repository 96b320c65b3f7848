/*
 * Implicit diffusion of five coupled fields in a cube, one direction at a time (ADI): the pattern of
 * the NAS benchmarks SP (default: the fields of a cell are solved one by one) and BT (`--block`: as
 * a block of 5 x 5). The cube is cut in slabs along z; a step exchanges their faces, solves the
 * lines along x and y without messages, and those along z in a pipeline up and down through the
 * ranks.
 *
 * The result does not depend on the number of ranks: each line is solved in the same order
 * everywhere, the residual is a maximum, and the checksum is a sum of per-cell hashes.
 */
#include "common.h"

static const char USAGE[] =
    "usage: adi [options]\n"
    "  --size N       cube of N x N x N cells (default 32)\n"
    "  --steps S      time steps (default 60; about a second on two cores)\n"
    "  --block        blocks of 5 x 5 instead of five scalars\n"
    "  --chunks C     parts of the pipeline along z (default 8)\n"
    "  --every K      residual every K steps (default 10)\n"
    "  --progress     print the residual every K steps\n"
    "  --help         this text\n";

enum { F = 5 }; /* fields */

static const double K = 0.3; /* conductivity times time step */

struct options {
    long size, steps, chunks, every;
    int block, progress;
};

struct slab {
    int rank, ranks, below, above;
    long n, z0, nz; /* cells a side; first own plane and number of them */
    long plane;     /* cells of a plane */
    int width;      /* doubles of a cell's coefficients: F, or F x F */
    double *u;      /* fields, with a plane before and behind the own ones */
    double *r, *c;  /* right side, which becomes the change; coefficients of the elimination */
    double *carry;  /* what a line hands to the next slab: coefficients and right side */
};

static struct options parse(int argc, char **argv, int rank)
{
    struct options o = {32, 60, 8, 10, 0, 0};
    struct args a = {argc, argv, 1};
    for (; a.at < argc; a.at++) {
        if (arg_flag(&a, "--help"))
            usage_and_exit(rank, USAGE);
        else if (arg_flag(&a, "--block"))
            o.block = 1;
        else if (arg_flag(&a, "--progress"))
            o.progress = 1;
        else if (!arg_long(&a, "--size", 2, 1024, &o.size) &&
                 !arg_long(&a, "--steps", 1, 1L << 40, &o.steps) &&
                 !arg_long(&a, "--chunks", 1, 1024, &o.chunks) &&
                 !arg_long(&a, "--every", 1, 1L << 40, &o.every))
            fail("unknown option '%s' (--help lists them)", argv[a.at]);
    }
    if (o.chunks > o.size)
        o.chunks = o.size;
    return o;
}

static struct slab make_slab(const struct options *o)
{
    struct slab s = {.n = o->size, .width = o->block ? F * F : F};
    MPI_Comm_rank(MPI_COMM_WORLD, &s.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &s.ranks);
    if (s.n < s.ranks)
        fail("a cube of %ld planes is too small for %d ranks", s.n, s.ranks);
    s.below = s.rank ? s.rank - 1 : MPI_PROC_NULL;
    s.above = s.rank + 1 < s.ranks ? s.rank + 1 : MPI_PROC_NULL;
    s.z0 = s.n * s.rank / s.ranks;
    s.nz = s.n * (s.rank + 1) / s.ranks - s.z0;
    s.plane = s.n * s.n;
    s.u = (double *)must_alloc((size_t)(s.plane * (s.nz + 2)) * F, sizeof(double)) + s.plane * F;
    s.r = must_alloc((size_t)(s.plane * s.nz) * F, sizeof(double));
    s.c = must_alloc((size_t)(s.plane * s.nz * s.width), sizeof(double));
    s.carry = must_alloc((size_t)(s.plane * (s.width + F)), sizeof(double));
    for (long i = 0; i < s.plane * s.nz * F; i++)
        s.u[i] = (double)(mix64((uint64_t)(s.z0 * s.plane * F + i) + 1) >> 40) * 0x1p-24;
    return s;
}

static void exchange_faces(const struct slab *s)
{
    int count = (int)s->plane * F;
    double *u = s->u;
    MPI_Request r[4];
    MPI_Irecv(u - count, count, MPI_DOUBLE, s->below, 1, MPI_COMM_WORLD, &r[0]);
    MPI_Irecv(u + s->nz * count, count, MPI_DOUBLE, s->above, 2, MPI_COMM_WORLD, &r[1]);
    MPI_Isend(u + (s->nz - 1) * count, count, MPI_DOUBLE, s->above, 1, MPI_COMM_WORLD, &r[2]);
    MPI_Isend(u, count, MPI_DOUBLE, s->below, 2, MPI_COMM_WORLD, &r[3]);
    MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
}

/* The explicit part of a step: what flows into each cell. */
static void right_side(const struct slab *s)
{
    const long n = s->n;
    for (long z = 0; z < s->nz; z++)
        for (long y = 0; y < n; y++)
            for (long x = 0; x < n; x++)
                for (long f = 0; f < F; f++) {
                    long i = (z * s->plane + y * n + x) * F + f;
                    const double *c = s->u + i;
                    double in = c[-s->plane * F] + c[s->plane * F] - 6.0 * c[0];
                    in += (x ? c[-F] : 0) + (x + 1 < n ? c[F] : 0);
                    in += (y ? c[-n * F] : 0) + (y + 1 < n ? c[n * F] : 0);
                    s->r[i] = K * in;
                }
}

/* Eliminates a cell given the one before it on its line, the fields one by one. */
static void scalar_cell(const double *u, const double *c0, const double *r0, double *c, double *r)
{
    for (int f = 0; f < F; f++) {
        double inverse = 1.0 / (1.0 + 2.0 * K + 0.1 * K * u[f] * u[f] + K * c0[f]);
        c[f] = -K * inverse;
        r[f] = (r[f] + K * r0[f]) * inverse;
    }
}

/* The same with all fields at once; the block is dominated by its diagonal: no pivots. */
static void block_cell(const double *u, const double *c0, const double *r0, double *c, double *r)
{
    double a[F][2 * F + 1];
    for (int i = 0; i < F; i++) {
        for (int j = 0; j < F; j++) {
            a[i][j] = K * c0[i * F + j] + 0.02 * K * u[i] * u[j];
            a[i][F + j] = i == j ? -K : 0.0;
        }
        a[i][i] += 1.0 + 2.0 * K;
        a[i][2 * F] = r[i] + K * r0[i];
    }
    for (int p = 0; p < F; p++) {
        double inverse = 1.0 / a[p][p];
        for (int j = p; j <= 2 * F; j++)
            a[p][j] *= inverse;
        for (int i = 0; i < F; i++) {
            double factor = a[i][p];
            if (i != p)
                for (int j = p; j <= 2 * F; j++)
                    a[i][j] -= factor * a[p][j];
        }
    }
    for (int i = 0; i < F; i++) {
        memcpy(c + i * F, a[i] + F, F * sizeof *c);
        r[i] = a[i][2 * F];
    }
}

/* Forward along a line of cells `stride` apart; `carry` is the cell before, and then the last. */
static void forward(const struct slab *s, long first, long stride, long cells, double *carry)
{
    const double *c0 = carry, *r0 = carry + s->width;
    for (long k = 0, i = first; k < cells; k++, i += stride) {
        double *c = s->c + i * s->width, *r = s->r + i * F;
        (s->width == F ? scalar_cell : block_cell)(s->u + i * F, c0, r0, c, r);
        c0 = c, r0 = r;
    }
    memmove(carry, c0, (size_t)s->width * sizeof *carry);
    memmove(carry + s->width, r0, F * sizeof *carry);
}

/* Backward; `next` is the solution in the cell behind, and then in the first. */
static void backward(const struct slab *s, long first, long stride, long cells, double *next)
{
    const double *x = next;
    for (long i = first + (cells - 1) * stride; cells > 0; cells--, i -= stride) {
        const double *c = s->c + i * s->width;
        double *r = s->r + i * F;
        for (int f = 0; f < F; f++) {
            if (s->width == F)
                r[f] -= c[f] * x[f];
            else
                for (int g = 0; g < F; g++)
                    r[f] -= c[f * F + g] * x[g];
        }
        x = r;
    }
    memmove(next, x, F * sizeof *next);
}

/* All lines along x (`stride` 1) or y (`stride` n), which lie in one slab. */
static void solve_inside(const struct slab *s, long stride)
{
    double carry[F * F + F], next[F];
    for (long z = 0; z < s->nz; z++)
        for (long line = 0; line < s->n; line++) {
            long first = z * s->plane + (stride == 1 ? line * s->n : line);
            memset(carry, 0, sizeof carry);
            memset(next, 0, sizeof next);
            forward(s, first, stride, s->n, carry);
            backward(s, first, stride, s->n, next);
        }
}

/* The lines along z: up through the slabs, and down again. */
static void solve_across(const struct slab *s, long chunks)
{
    for (int up = 1; up >= 0; up--) {
        int from = up ? s->below : s->above, to = up ? s->above : s->below;
        long doubles = up ? s->width + F : F;
        for (long part = 0; part < chunks; part++) {
            long first = s->plane * part / chunks;
            long lines = s->plane * (part + 1) / chunks - first;
            double *hand = s->carry + first * doubles;
            int count = (int)(lines * doubles), tag = 10 + up;
            memset(hand, 0, (size_t)count * sizeof *hand);
            MPI_Recv(hand, count, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (long i = 0; i < lines; i++)
                (up ? forward : backward)(s, first + i, s->plane, s->nz, hand + i * doubles);
            MPI_Send(hand, count, MPI_DOUBLE, to, tag, MPI_COMM_WORLD);
        }
    }
}

static double add_change(const struct slab *s)
{
    double most = 0;
    for (long i = 0; i < s->plane * s->nz * F; i++) {
        double change = s->r[i] < 0 ? -s->r[i] : s->r[i];
        most = change > most ? change : most;
        s->u[i] += s->r[i];
    }
    return most;
}

static void report(const struct slab *s, const struct options *o, double residual)
{
    uint64_t hash = 0, total = 0;
    for (long i = 0; i < s->plane * s->nz * F; i++)
        hash += place_hash((uint64_t)(s->z0 * s->plane * F + i), bits_of(s->u[i]));
    MPI_Reduce(&hash, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    if (s->rank == 0) {
        const char *how = o->block ? "blocks" : "scalars";
        printf("adi: cube of %ld, %ld steps, %s, %d ranks\n", s->n, o->steps, how, s->ranks);
        printf("adi: residual %a\n", residual);
        printf("adi: checksum %016" PRIx64 "\n", total);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    struct options o = parse(argc, argv, rank);
    struct slab s = make_slab(&o);
    double residual = 0;
    for (long step = 1; step <= o.steps; step++) {
        exchange_faces(&s);
        right_side(&s);
        solve_inside(&s, 1);
        solve_inside(&s, s.n);
        solve_across(&s, o.chunks);
        double mine = add_change(&s);
        if (step % o.every == 0 || step == o.steps) {
            MPI_Allreduce(&mine, &residual, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
            if (o.progress && rank == 0) {
                printf("adi: step %ld residual %a\n", step, residual);
                fflush(stdout);
            }
        }
    }
    report(&s, &o, residual);
    free(s.u - s.plane * F);
    free(s.r);
    free(s.c);
    free(s.carry);
    MPI_Finalize();
    return 0;
}
