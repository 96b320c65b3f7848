/*
 * Conjugate gradient after the NAS Parallel Benchmarks' CG: the smallest eigenvalue of a sparse
 * symmetric matrix by inverse power iteration. The matrix is the one that the benchmark's report
 * defines (a sum of weighted outer products of sparse random vectors plus a diagonal), and the
 * result is compared with the report's value.
 *
 * Rows are cut in blocks over the ranks (any number); the vector is gathered with MPI_Allgatherv in
 * each product.
 */
#include "common.h"
#include <math.h>

static const char USAGE[] =
    "usage: cg [options]\n"
    "  --class C      S, W, A or B (default A; about 3 s on two cores, B about 2 min)\n"
    "  --repeat K     do the whole benchmark K times (default 1)\n"
    "  --quiet        no line for each outer iteration\n"
    "  --help         this text\n";

struct problem {
    char name;
    int n, nonzer, niter;
    double shift, zeta;
};

static const struct problem PROBLEMS[] = {
    {'S', 1400, 7, 15, 10, 8.5971775078648},
    {'W', 7000, 8, 15, 12, 10.362595087124},
    {'A', 14000, 11, 15, 20, 17.130235054029},
    {'B', 75000, 13, 75, 60, 22.712745482631},
};

static const double RCOND = 0.1;
static const double TOLERANCE = 1e-10;
enum { INNER_ITERATIONS = 25 };

/* The report's generator: x <- 5^13 x mod 2^46; returns x / 2^46. */
static double next_random(uint64_t *x)
{
    *x = *x * UINT64_C(1220703125) & ((UINT64_C(1) << 46) - 1);
    return (double)*x * 0x1p-46;
}

/* The vectors whose outer products make the matrix: each has up to `most` elements. */
struct vectors {
    int most;
    int *count, *place;
    double *value;
};

static int find(const int *places, int count, int wanted)
{
    for (int i = 0; i < count; i++)
        if (places[i] == wanted)
            return i;
    return -1;
}

static struct vectors make_vectors(const struct problem *p)
{
    struct vectors v;
    v.most = p->nonzer + 1;
    v.count = must_alloc((size_t)p->n, sizeof *v.count);
    v.place = must_alloc((size_t)p->n * (size_t)v.most, sizeof *v.place);
    v.value = must_alloc((size_t)p->n * (size_t)v.most, sizeof *v.value);
    uint64_t state = 314159265;
    next_random(&state); /* the benchmark draws one number before it makes the matrix */
    int power = 1;
    while (power < p->n)
        power *= 2;
    for (int row = 0; row < p->n; row++) {
        int *place = v.place + (size_t)row * (size_t)v.most;
        double *value = v.value + (size_t)row * (size_t)v.most;
        int count = 0;
        while (count < p->nonzer) {
            double element = next_random(&state);
            int where = (int)(power * next_random(&state));
            if (where >= p->n || find(place, count, where) >= 0)
                continue;
            place[count] = where;
            value[count++] = element;
        }
        int own = find(place, count, row);
        if (own < 0) {
            own = count++;
            place[own] = row;
        }
        value[own] = 0.5;
        v.count[row] = count;
    }
    return v;
}

/* The own rows of the matrix, compressed. */
struct matrix {
    int first, rows;
    size_t *start;
    int *column;
    double *value;
};

static int by_place(const void *a, const void *b)
{
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

/* Adds up equal columns of one row, in the order in which they were made; returns how many are
 * left. */
static size_t merge_row(int *column, double *value, size_t count, double *sum, char *seen)
{
    size_t kept = 0;
    for (size_t k = 0; k < count; k++) {
        int c = column[k];
        if (!seen[c]) {
            seen[c] = 1;
            sum[c] = 0;
            column[kept++] = c;
        }
        sum[c] += value[k];
    }
    qsort(column, kept, sizeof *column, by_place);
    for (size_t k = 0; k < kept; k++) {
        value[k] = sum[column[k]];
        seen[column[k]] = 0;
    }
    return kept;
}

static struct matrix make_matrix(const struct problem *p, int first, int rows)
{
    struct vectors v = make_vectors(p);
    struct matrix m = {first, rows, must_alloc((size_t)rows + 1, sizeof(size_t)), NULL, NULL};
    for (int i = 0; i < p->n; i++)
        for (int a = 0; a < v.count[i]; a++) {
            int row = v.place[(size_t)i * (size_t)v.most + (size_t)a] - first;
            if (row >= 0 && row < rows)
                m.start[row + 1] += (size_t)v.count[i];
        }
    for (int r = 0; r < rows; r++)
        m.start[r + 1] += m.start[r];
    m.column = must_alloc(m.start[rows], sizeof *m.column);
    m.value = must_alloc(m.start[rows], sizeof *m.value);

    size_t *fill = must_alloc((size_t)rows + 1, sizeof *fill);
    memcpy(fill, m.start, (size_t)rows * sizeof *fill);
    double size = 1, ratio = pow(RCOND, 1.0 / p->n);
    for (int i = 0; i < p->n; i++, size *= ratio) {
        const int *place = v.place + (size_t)i * (size_t)v.most;
        const double *value = v.value + (size_t)i * (size_t)v.most;
        for (int a = 0; a < v.count[i]; a++) {
            int row = place[a] - first;
            if (row < 0 || row >= rows)
                continue;
            double scale = size * value[a];
            for (int b = 0; b < v.count[i]; b++) {
                int diagonal = place[b] == place[a] && place[a] == i;
                m.column[fill[row]] = place[b];
                m.value[fill[row]++] = value[b] * scale + (diagonal ? RCOND - p->shift : 0);
            }
        }
    }
    double *sum = must_alloc((size_t)p->n, sizeof *sum);
    char *seen = must_alloc((size_t)p->n, 1);
    size_t out = 0;
    for (int r = 0; r < rows; r++) {
        size_t begin = m.start[r], count = m.start[r + 1] - begin;
        size_t kept = merge_row(m.column + begin, m.value + begin, count, sum, seen);
        memmove(m.column + out, m.column + begin, kept * sizeof *m.column);
        memmove(m.value + out, m.value + begin, kept * sizeof *m.value);
        m.start[r] = out;
        out += kept;
    }
    m.start[rows] = out;
    free(sum);
    free(seen);
    free(fill);
    free(v.count);
    free(v.place);
    free(v.value);
    return m;
}

/* What one rank needs to solve: its rows, the cut of the vector, and the vectors themselves. */
struct solver {
    const struct problem *p;
    struct matrix m;
    int *counts, *starts;
    double *x, *z, *r, *d, *q, *whole;
};

static double dot(const struct solver *s, const double *a, const double *b)
{
    double mine = 0, all = 0;
    for (int i = 0; i < s->m.rows; i++)
        mine += a[i] * b[i];
    MPI_Allreduce(&mine, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static void multiply(struct solver *s, const double *in, double *out)
{
    MPI_Allgatherv(in, s->m.rows, MPI_DOUBLE, s->whole, s->counts, s->starts, MPI_DOUBLE,
                   MPI_COMM_WORLD);
    for (int i = 0; i < s->m.rows; i++) {
        double sum = 0;
        for (size_t k = s->m.start[i]; k < s->m.start[i + 1]; k++)
            sum += s->m.value[k] * s->whole[s->m.column[k]];
        out[i] = sum;
    }
}

/* Solves A z = x with a fixed number of steps; returns the norm of x - A z. */
static double conjugate_gradient(struct solver *s)
{
    int n = s->m.rows;
    for (int i = 0; i < n; i++) {
        s->z[i] = 0;
        s->r[i] = s->d[i] = s->x[i];
    }
    double rho = dot(s, s->r, s->r);
    for (int step = 0; step < INNER_ITERATIONS; step++) {
        multiply(s, s->d, s->q);
        double alpha = rho / dot(s, s->d, s->q);
        for (int i = 0; i < n; i++) {
            s->z[i] += alpha * s->d[i];
            s->r[i] -= alpha * s->q[i];
        }
        double before = rho;
        rho = dot(s, s->r, s->r);
        double beta = rho / before;
        for (int i = 0; i < n; i++)
            s->d[i] = s->r[i] + beta * s->d[i];
    }
    multiply(s, s->z, s->r);
    for (int i = 0; i < n; i++)
        s->r[i] = s->x[i] - s->r[i];
    return sqrt(dot(s, s->r, s->r));
}

/* One run of the benchmark; returns zeta. */
static double benchmark(struct solver *s, int rank, int show)
{
    double zeta = 0;
    for (int i = 0; i < s->m.rows; i++)
        s->x[i] = 1;
    for (int it = 1; it <= s->p->niter; it++) {
        double residual = conjugate_gradient(s);
        double xz = dot(s, s->x, s->z), zz = dot(s, s->z, s->z);
        zeta = s->p->shift + 1 / xz;
        double scale = 1 / sqrt(zz);
        for (int i = 0; i < s->m.rows; i++)
            s->x[i] = scale * s->z[i];
        if (rank == 0 && show) {
            printf("cg: %3d residual %a zeta %.17g %a\n", it, residual, zeta, zeta);
            fflush(stdout);
        }
    }
    return zeta;
}

static struct solver make_solver(const struct problem *p, int rank, int ranks)
{
    struct solver s = {.p = p};
    s.counts = must_alloc((size_t)ranks, sizeof(int));
    s.starts = must_alloc((size_t)ranks, sizeof(int));
    for (int r = 0; r < ranks; r++) {
        s.starts[r] = (int)((long)p->n * r / ranks);
        s.counts[r] = (int)((long)p->n * (r + 1) / ranks) - s.starts[r];
    }
    s.m = make_matrix(p, s.starts[rank], s.counts[rank]);
    double **own[] = {&s.x, &s.z, &s.r, &s.d, &s.q};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        *own[i] = must_alloc((size_t)s.m.rows, sizeof(double));
    s.whole = must_alloc((size_t)p->n, sizeof(double));
    return s;
}

static const struct problem *parse(int argc, char **argv, int rank, long *repeat, int *show)
{
    const char *name = "A";
    struct args a = {argc, argv, 1};
    for (; a.at < argc; a.at++) {
        const char *value = NULL;
        if (arg_flag(&a, "--help"))
            usage_and_exit(rank, USAGE);
        else if (arg_flag(&a, "--quiet"))
            *show = 0;
        else if ((value = arg_value(&a, "--class")))
            name = value;
        else if (!arg_long(&a, "--repeat", 1, 1L << 40, repeat))
            fail("unknown option '%s' (--help lists them)", argv[a.at]);
    }
    for (size_t i = 0; i < sizeof PROBLEMS / sizeof *PROBLEMS; i++)
        if (name[0] == PROBLEMS[i].name && !name[1])
            return &PROBLEMS[i];
    fail("there is no class '%s' (S, W, A, B)", name);
    return NULL;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks, show = 1;
    long repeat = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const struct problem *p = parse(argc, argv, rank, &repeat, &show);
    struct solver s = make_solver(p, rank, ranks);
    double zeta = 0;
    for (long k = 0; k < repeat; k++)
        zeta = benchmark(&s, rank, show);
    uint64_t hash = 0, total = 0;
    for (int i = 0; i < s.m.rows; i++)
        hash += place_hash((uint64_t)(s.m.first + i), bits_of(s.x[i]));
    MPI_Reduce(&hash, &total, 1, MPI_UINT64_T, MPI_SUM, 0, MPI_COMM_WORLD);
    double error = fabs(zeta - p->zeta);
    int good = error <= TOLERANCE;
    if (rank == 0) {
        printf("cg: class %c, n %d, %d ranks\n", p->name, p->n, ranks);
        printf("cg: zeta %.17g %a, published %.14g\n", zeta, zeta, p->zeta);
        printf("cg: VERIFICATION %s\n", good ? "SUCCESSFUL" : "FAILED");
        printf("cg: checksum %016" PRIx64 "\n", total);
    }
    MPI_Bcast(&good, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return good ? 0 : 1;
}
