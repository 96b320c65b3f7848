// OpenMP: a reduction in fixed order, tasks, critical sections, thread-private data.
#include "check.h"
#include <omp.h>

static uint64_t own;
#pragma omp threadprivate(own)

static uint64_t tree(int depth, uint64_t at) {
    if (depth == 0) return value_at(at);
    uint64_t left, right;
#pragma omp task shared(left)
    left = tree(depth - 1, at * 2);
#pragma omp task shared(right)
    right = tree(depth - 1, at * 2 + 1);
#pragma omp taskwait
    return left * 31 + right;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 6000);
    enum { SIZE = 4096 };
    static uint64_t field[SIZE];
    long entered = 0;
    omp_set_num_threads(3);
#pragma omp parallel
    own = value_at((uint64_t)omp_get_thread_num());
    for (long r = 0; r < n; r++) {
#pragma omp parallel for schedule(dynamic, 64)
        for (int i = 0; i < SIZE; i++) field[i] = field[i] * 31 + value_at((uint64_t)(i * n + r));
#pragma omp parallel
        {
            CHECK(omp_get_num_threads() == 3);
            own = own * 31 + (uint64_t)r;
#pragma omp critical
            entered++;
        }
        uint64_t result = 0;
#pragma omp parallel
#pragma omp single
        result = tree(5, (uint64_t)r);
        add(result);
    }
    CHECK(entered == 3 * n);
    add_bytes(field, sizeof field);
#pragma omp parallel for ordered
    for (int i = 0; i < 3; i++)
#pragma omp ordered
        add(own);
    return finish("openmp");
}
