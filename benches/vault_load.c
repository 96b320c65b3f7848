// Programs for `benches/vault`: what the paper on incremental checkpoints and erasure codes measured.
//
//     vault_load matmul MIB FOLDER   a product of two matrices; a unit is a thousandth of its rows
//     vault_load lu MIB FOLDER       sweeps over a grid as those of NPB LU; a unit is a sweep there
//                                    and back, which changes the solution and what follows of it
//     vault_load noise MIB FOLDER    nothing but memory; a unit changes all of it
//
// Each rank works on its own, MIB of memory each. It does as many units as the file FOLDER/go says,
// writes how many it has done to FOLDER/done.RANK, and ends when FOLDER/end is there.
#define _GNU_SOURCE
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static uint64_t state = 88172645463325252ull;

static uint64_t noise(void) {
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static double *doubles(size_t count) {
    double *area = malloc(count * sizeof(double));
    if (!area) {
        fprintf(stderr, "vault_load: no memory\n");
        exit(1);
    }
    for (size_t i = 0; i < count; i++) area[i] = (double)(noise() >> 11) * 0x1p-53;
    return area;
}

// ---- the product of matrices ----

static double *a, *b, *c;
static size_t n, row;

static void matmul_begin(size_t bytes) {
    n = (size_t)sqrt((double)bytes / (3 * sizeof(double)));
    a = doubles(n * n), b = doubles(n * n), c = doubles(n * n);
}

static void matmul_unit(void) {
    size_t rows = n * 3 / 1000 + 1;
    for (size_t r = 0; r < rows; r++, row = (row + 1) % n) {
        double *to = c + row * n;
        memset(to, 0, n * sizeof(double));
        for (size_t k = 0; k < n; k++) {
            double factor = a[row * n + k];
            for (size_t j = 0; j < n; j++) to[j] += factor * b[k * n + j];
        }
    }
}

// ---- sweeps of the LU kind: five variables at each point ----

// Solution, residual and forcing (five words at each point), and two that follow from the solution.
static double *u, *rsd, *frct, *qs, *rho;
static size_t side;

static void lu_begin(size_t bytes) {
    side = (size_t)cbrt((double)bytes / (17 * sizeof(double)));
    size_t points = side * side * side;
    u = doubles(5 * points), rsd = doubles(5 * points), frct = doubles(5 * points);
    qs = doubles(points), rho = doubles(points);
}

static void relax(size_t p, size_t x, size_t y, size_t z) {
    for (int v = 0; v < 5; v++) {
        double sum = u[5 * x + v] + u[5 * y + v] + u[5 * z + v];
        rsd[5 * p + v] = frct[5 * p + v] - 0.5 * u[5 * p + v] + sum / 6 - 0.01 * rho[p];
        u[5 * p + v] += 0.3 * rsd[5 * p + v];
    }
    rho[p] = 1 / (1 + u[5 * p] * u[5 * p]);
    qs[p] = 0.5 * rho[p] * (u[5 * p + 1] * u[5 * p + 1] + u[5 * p + 2] * u[5 * p + 2]);
}

static void lu_unit(void) {
    size_t plane = side * side;
    for (size_t k = 1; k < side; k++)
        for (size_t j = 1; j < side; j++)
            for (size_t i = 1; i < side; i++) {
                size_t p = k * plane + j * side + i;
                relax(p, p - 1, p - side, p - plane);
            }
    for (size_t k = side - 1; k-- > 0;)
        for (size_t j = side - 1; j-- > 0;)
            for (size_t i = side - 1; i-- > 0;) {
                size_t p = k * plane + j * side + i;
                relax(p, p + 1, p + side, p + plane);
            }
}

// ---- memory ----

static uint64_t *words;
static size_t count;

static void noise_unit(void) {
    for (size_t i = 0; i < count; i++) words[i] = noise();
}

static void noise_begin(size_t bytes) {
    count = bytes / 8;
    words = malloc(bytes);
    if (!words) exit(1);
    noise_unit();
}

static long read_number(const char *path) {
    long number = 0;
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    if (fscanf(file, "%ld", &number) != 1) number = 0;
    fclose(file);
    return number;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    if (argc != 4) return 2;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    state += (uint64_t)rank << 32;
    size_t bytes = strtoull(argv[2], NULL, 10) << 20;
    void (*unit)(void) = noise_unit;
    if (strcmp(argv[1], "matmul") == 0) matmul_begin(bytes), unit = matmul_unit;
    else if (strcmp(argv[1], "lu") == 0) lu_begin(bytes), unit = lu_unit;
    else noise_begin(bytes);
    char go[4096], end[4096], done_path[4096];
    snprintf(go, sizeof go, "%s/go", argv[3]);
    snprintf(end, sizeof end, "%s/end", argv[3]);
    snprintf(done_path, sizeof done_path, "%s/done.%d", argv[3], rank);
    long done = -1;
    while (access(end, F_OK) != 0) {
        long wanted = read_number(go);
        if (done == wanted) {
            usleep(5000);
            continue;
        }
        for (; done < wanted; done++)
            if (done >= 0) unit();
        FILE *file = fopen(done_path, "w");
        if (!file) return 1;
        fprintf(file, "%ld\n", done);
        fclose(file);
    }
    MPI_Finalize();
    return 0;
}
