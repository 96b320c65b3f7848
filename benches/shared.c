// Kernels for `benches/shared`: a job that waits for messages at every step.
//
//     shared cg STEPS      after NPB's CG, class A: a sparse product of about a millisecond, an
//                          exchange of the vector and two sums by pairs, in each step
//     shared coll STEPS    Allreduce and Bcast of 8 bytes and a Barrier after little work
//
// Rank 0 prints the seconds that the steps took. With 0 steps it goes on until it is killed.
#include <mpi.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 14000, NONZERO = 132 };

static int rank, size;

static void swap_with(int peer, const void *out, int outs, void *in, int ins) {
    MPI_Request request;
    MPI_Irecv(in, ins, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD, &request);
    MPI_Send(out, outs, MPI_DOUBLE, peer, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

// As CG does it: by pairs, whose distance doubles.
static double sum(double own) {
    for (int far = 1; far < size; far *= 2) {
        double other = 0;
        swap_with(rank ^ far, &own, 1, &other, 1);
        own += other;
    }
    return own;
}

static void gather(double *v, int rows) {
    for (int far = 1; far < size; far *= 2) {
        int mine = rank / far * far, theirs = (rank ^ far) / far * far;
        swap_with(rank ^ far, v + mine * rows, far * rows, v + theirs * rows, far * rows);
    }
}

static double cg(long steps) {
    int rows = ROWS / size;
    size_t count = (size_t)rows * NONZERO;
    double *value = malloc(count * sizeof *value);
    int *column = malloc(count * sizeof *column);
    double *p = malloc(sizeof *p * ROWS), *q = malloc(sizeof *q * (size_t)rows);
    if (!value || !column || !p || !q) MPI_Abort(MPI_COMM_WORLD, 1);
    uint64_t state = 88172645463325252ull + (uint64_t)rank;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        column[i] = (int)(state % (uint64_t)(rows * size));
        value[i] = 1.0 / NONZERO;
    }
    for (int i = 0; i < rows * size; i++) p[i] = 1;
    double norm = 0;
    for (long step = 0; step < steps || steps == 0; step++) {
        double part = 0, rest = 0;
        for (int row = 0; row < rows; row++) {
            double s = 0;
            for (size_t k = (size_t)row * NONZERO; k < (size_t)(row + 1) * NONZERO; k++)
                s += value[k] * p[column[k]];
            q[row] = s;
            part += s * p[rank * rows + row];
        }
        double all = sum(part);
        for (int row = 0; row < rows; row++) rest += q[row] * q[row];
        norm = sum(rest) / all;
        memcpy(p + rank * rows, q, sizeof *q * (size_t)rows);
        gather(p, rows);
    }
    return norm;
}

static double coll(long steps) {
    double x = 1;
    for (long step = 0; step < steps || steps == 0; step++) {
        for (int i = 0; i < 20000; i++) x = x * 0.999999 + 1e-6;
        double all = 0;
        MPI_Allreduce(&x, &all, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        x = all / size;
        MPI_Bcast(&x, 1, MPI_DOUBLE, (int)(step % size), MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return x;
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 3 || (size & (size - 1))) MPI_Abort(MPI_COMM_WORLD, 2);
    long steps = atol(argv[2]);
    int is_cg = strcmp(argv[1], "cg") == 0;
    // What is not measured: memory that is new, connections.
    if (is_cg) cg(3);
    else coll(3);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), result = is_cg ? cg(steps) : coll(steps);
    if (rank == 0) printf("%.4f %.15g\n", MPI_Wtime() - begin, result);
    MPI_Finalize();
}
