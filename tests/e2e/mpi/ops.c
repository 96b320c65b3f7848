/* Predefined operations on all kinds of types, user operations in rank order, MPI_Reduce_local. */
#include "check.h"
#include <complex.h>
#include <limits.h>
#include <stdbool.h>

#define FOR_TYPE(TYPE, MPI, VALUE)                                       \
    static void sums_of_##MPI(void)                                      \
    {                                                                    \
        TYPE mine[3], out[3], sum = 0, product = 1, least = 0, most = 0; \
        for (int r = 0; r < ranks; r++) {                                \
            TYPE v = (TYPE)(VALUE);                                      \
            sum = (TYPE)(sum + v);                                       \
            product = (TYPE)(product * (TYPE)(1 + r % 2));               \
            least = r == 0 || v < least ? v : least;                     \
            most = r == 0 || v > most ? v : most;                        \
            if (r == rank) {                                             \
                mine[0] = mine[2] = v;                                   \
                mine[1] = (TYPE)(1 + r % 2);                             \
            }                                                            \
        }                                                                \
        OK(MPI_Allreduce(mine, out, 3, MPI, MPI_SUM, MPI_COMM_WORLD));   \
        CHECK(out[0] == sum && out[2] == sum, "sum of " #MPI);           \
        OK(MPI_Allreduce(mine, out, 3, MPI, MPI_PROD, MPI_COMM_WORLD));  \
        CHECK(out[1] == product, "product of " #MPI);                    \
        OK(MPI_Allreduce(mine, out, 3, MPI, MPI_MIN, MPI_COMM_WORLD));   \
        CHECK(out[0] == least && out[2] == least, "min of " #MPI);       \
        OK(MPI_Allreduce(mine, out, 3, MPI, MPI_MAX, MPI_COMM_WORLD));   \
        CHECK(out[0] == most && out[2] == most, "max of " #MPI);         \
    }

FOR_TYPE(signed char, MPI_SIGNED_CHAR, r % 2 ? -r - 1 : r + 1)
FOR_TYPE(unsigned char, MPI_UNSIGNED_CHAR, r * 3 + 1)
FOR_TYPE(short, MPI_SHORT, r % 2 ? -r * 100 : r * 99)
FOR_TYPE(unsigned short, MPI_UNSIGNED_SHORT, r * 300 + 1)
FOR_TYPE(int, MPI_INT, r % 2 ? -r * 100000 : r * 9900)
FOR_TYPE(unsigned, MPI_UNSIGNED, r * 300000 + 1)
FOR_TYPE(long, MPI_LONG, r % 2 ? -r * 10000000000L : r)
FOR_TYPE(unsigned long, MPI_UNSIGNED_LONG, ULONG_MAX / 9 + (unsigned long)r)
FOR_TYPE(long long, MPI_LONG_LONG, r % 2 ? -r * 10000000000LL : r)
FOR_TYPE(unsigned long long, MPI_UNSIGNED_LONG_LONG, ULONG_MAX / 9 + (unsigned long)r)
FOR_TYPE(float, MPI_FLOAT, r * 0.5f - 1)
FOR_TYPE(double, MPI_DOUBLE, r * 0.25 - 1)
FOR_TYPE(long double, MPI_LONG_DOUBLE, r * 0.25L - 1)
FOR_TYPE(int8_t, MPI_INT8_T, r % 2 ? -r : r)
FOR_TYPE(int16_t, MPI_INT16_T, r % 2 ? -r : r)
FOR_TYPE(int32_t, MPI_INT32_T, r % 2 ? -r : r)
FOR_TYPE(int64_t, MPI_INT64_T, r % 2 ? -r : r)
FOR_TYPE(uint8_t, MPI_UINT8_T, r + 200)
FOR_TYPE(uint16_t, MPI_UINT16_T, r + 60000)
FOR_TYPE(uint32_t, MPI_UINT32_T, r + 4000000000u)
FOR_TYPE(uint64_t, MPI_UINT64_T, (uint64_t)r + 10000000000u)
FOR_TYPE(MPI_Aint, MPI_AINT, r - 3)
FOR_TYPE(MPI_Offset, MPI_OFFSET, r - 3)
FOR_TYPE(MPI_Count, MPI_COUNT, r - 3)

static void bits_and_logic(void)
{
    unsigned mine = 1u << rank | 0x100, out, all_or = 0, all_xor = 0;
    for (int r = 0; r < ranks; r++) {
        all_or |= 1u << r | 0x100;
        all_xor ^= 1u << r | 0x100;
    }
    OK(MPI_Allreduce(&mine, &out, 1, MPI_UNSIGNED, MPI_BAND, MPI_COMM_WORLD));
    CHECK(out == (ranks == 1 ? 0x101u : 0x100u), "band %x", out);
    OK(MPI_Allreduce(&mine, &out, 1, MPI_UNSIGNED, MPI_BOR, MPI_COMM_WORLD));
    CHECK(out == all_or, "bor %x", out);
    OK(MPI_Allreduce(&mine, &out, 1, MPI_UNSIGNED, MPI_BXOR, MPI_COMM_WORLD));
    CHECK(out == all_xor, "bxor %x", out);
    unsigned char byte = (unsigned char)(1 << rank % 8), byte_out;
    OK(MPI_Allreduce(&byte, &byte_out, 1, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD));
    CHECK(byte_out == (unsigned char)((1 << (ranks < 8 ? ranks : 8)) - 1), "bor of bytes %x",
          byte_out);
    int yes[3] = {5, rank, 0}, said[3];
    OK(MPI_Allreduce(yes, said, 3, MPI_INT, MPI_LAND, MPI_COMM_WORLD));
    CHECK(said[0] && !said[1] && said[2] == 0, "land %d %d %d", said[0], said[1], said[2]);
    OK(MPI_Allreduce(yes, said, 3, MPI_INT, MPI_LOR, MPI_COMM_WORLD));
    CHECK(said[0] && !!said[1] == (ranks > 1) && said[2] == 0, "lor %d %d %d", said[0], said[1],
          said[2]);
    OK(MPI_Allreduce(yes, said, 3, MPI_INT, MPI_LXOR, MPI_COMM_WORLD));
    CHECK(!!said[0] == ranks % 2 && said[1] == (ranks - 1) % 2 && said[2] == 0, "lxor %d %d",
          said[0], said[1]);
    bool flag = rank == 0, any = false;
    OK(MPI_Allreduce(&flag, &any, 1, MPI_C_BOOL, MPI_LOR, MPI_COMM_WORLD));
    CHECK(any, "lor of C bools");
}

static void complex_numbers(void)
{
    double _Complex mine = rank + 1 + 2.0 * I, out, sum = 0, product = 1;
    for (int r = 0; r < ranks; r++)
        sum += r + 1 + 2.0 * I;
    OK(MPI_Allreduce(&mine, &out, 1, MPI_C_DOUBLE_COMPLEX, MPI_SUM, MPI_COMM_WORLD));
    CHECK(out == sum, "complex sum %g %g", creal(out), cimag(out));
    mine = I;
    for (int r = 0; r < ranks; r++)
        product *= I;
    OK(MPI_Allreduce(&mine, &out, 1, MPI_C_DOUBLE_COMPLEX, MPI_PROD, MPI_COMM_WORLD));
    CHECK(out == product, "complex product %g %g", creal(out), cimag(out));
    float _Complex small = rank + 1.0f * I, total;
    OK(MPI_Allreduce(&small, &total, 1, MPI_C_FLOAT_COMPLEX, MPI_SUM, MPI_COMM_WORLD));
    CHECK(cimagf(total) == (float)ranks, "float complex %g", cimagf(total));
}

static void locations(void)
{
    struct {
        double value;
        int where;
    } mine[2] = {{(double)((rank * 5 + 3) % ranks), rank}, {1.0, rank + 10}}, least[2], most[2];
    int low = 0, high = 0;
    for (int r = 0; r < ranks; r++) {
        low = (r * 5 + 3) % ranks < (low * 5 + 3) % ranks ? r : low;
        high = (r * 5 + 3) % ranks > (high * 5 + 3) % ranks ? r : high;
    }
    OK(MPI_Allreduce(mine, least, 2, MPI_DOUBLE_INT, MPI_MINLOC, MPI_COMM_WORLD));
    OK(MPI_Allreduce(mine, most, 2, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    CHECK(least[0].where == low && most[0].where == high, "%d %d", least[0].where, most[0].where);
    CHECK(least[1].where == 10 && most[1].where == 10, "equal values: the lower place wins");
    struct {
        int value, where;
    } pair = {-rank, rank}, out;
    OK(MPI_Allreduce(&pair, &out, 1, MPI_2INT, MPI_MINLOC, MPI_COMM_WORLD));
    CHECK(out.where == ranks - 1 && out.value == 1 - ranks, "2int %d", out.where);
    struct {
        short value;
        int where;
    } narrow = {(short)rank, rank}, found;
    OK(MPI_Allreduce(&narrow, &found, 1, MPI_SHORT_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    CHECK(found.where == ranks - 1, "short_int %d", found.where);
    struct {
        long double value;
        int where;
    } wide = {rank * 0.5L, rank}, widest;
    OK(MPI_Allreduce(&wide, &widest, 1, MPI_LONG_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD));
    CHECK(widest.where == ranks - 1, "long_double_int %d", widest.where);
}

/* Product of 2 x 2 matrices modulo a prime: associative, not commutative. */
static void times(void *in, void *inout, int *count, MPI_Datatype *type)
{
    uint32_t *a = in, *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++, a += 4, b += 4) {
        uint64_t c[4] = {(uint64_t)a[0] * b[0] + (uint64_t)a[1] * b[2],
                         (uint64_t)a[0] * b[1] + (uint64_t)a[1] * b[3],
                         (uint64_t)a[2] * b[0] + (uint64_t)a[3] * b[2],
                         (uint64_t)a[2] * b[1] + (uint64_t)a[3] * b[3]};
        for (int k = 0; k < 4; k++)
            b[k] = (uint32_t)(c[k] % 65521);
    }
}

static void matrix_of(int r, int i, uint32_t *m)
{
    m[0] = (uint32_t)(r + 2), m[1] = (uint32_t)(i + 1), m[2] = 1, m[3] = (uint32_t)(r * 7 + 3);
}

static void user_operation(void)
{
    enum { N = 700 };
    static uint32_t mine[N][4], out[N][4], expected[4], next[4];
    MPI_Datatype matrix;
    MPI_Op op;
    int one = 1, commutes = 1;
    OK(MPI_Type_contiguous(4, MPI_UINT32_T, &matrix));
    OK(MPI_Type_commit(&matrix));
    OK(MPI_Op_create(times, 0, &op));
    OK(MPI_Op_commutative(op, &commutes));
    CHECK(!commutes, "the operation is not commutative");
    OK(MPI_Op_commutative(MPI_SUM, &commutes));
    CHECK(commutes, "a sum is commutative");
    for (int i = 0; i < N; i++)
        matrix_of(rank, i, mine[i]);
    for (int how = 0; how < 3; how++) {
        int last = how == 2 ? rank : ranks - 1;
        if (how == 0)
            OK(MPI_Reduce(mine, out, N, matrix, op, ranks - 1, MPI_COMM_WORLD));
        else if (how == 1)
            OK(MPI_Allreduce(mine, out, N, matrix, op, MPI_COMM_WORLD));
        else
            OK(MPI_Scan(mine, out, N, matrix, op, MPI_COMM_WORLD));
        for (int i = 0; i < N && (how || rank == ranks - 1); i++) {
            matrix_of(last, i, expected);
            for (int r = last - 1; r >= 0; r--) { /* from the right: m0 (m1 (m2 ...)) */
                matrix_of(r, i, next);
                times(next, expected, &one, &matrix);
            }
            CHECK(memcmp(out[i], expected, sizeof expected) == 0, "way %d, matrix %d", how, i);
        }
    }
    uint32_t a[4], b[4], c[4];
    matrix_of(3, 1, a);
    matrix_of(5, 2, b);
    memcpy(c, b, sizeof c);
    times(a, c, &one, &matrix);
    OK(MPI_Reduce_local(a, b, 1, matrix, op));
    CHECK(memcmp(b, c, sizeof c) == 0, "reduce_local");
    OK(MPI_Op_free(&op));
    CHECK(op == MPI_OP_NULL, "a freed operation is null");
    OK(MPI_Type_free(&matrix));
}

/* The same sum of floats twice gives the same bits, and every rank the same. */
static void reproducible(void)
{
    double mine[64], first[64], second[64], of_root[64];
    for (int i = 0; i < 64; i++)
        mine[i] = 1.0 / (rank * 64 + i + 1);
    OK(MPI_Allreduce(mine, first, 64, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    OK(MPI_Allreduce(mine, second, 64, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD));
    memcpy(of_root, first, sizeof of_root);
    OK(MPI_Bcast(of_root, 64, MPI_DOUBLE, 0, MPI_COMM_WORLD));
    CHECK(memcmp(first, second, sizeof first) == 0, "two sums differ");
    CHECK(memcmp(first, of_root, sizeof first) == 0, "two ranks differ");
}

int main(int argc, char **argv)
{
    begin(&argc, &argv);
    sums_of_MPI_SIGNED_CHAR(), sums_of_MPI_UNSIGNED_CHAR(), sums_of_MPI_SHORT(),
        sums_of_MPI_UNSIGNED_SHORT();
    sums_of_MPI_INT(), sums_of_MPI_UNSIGNED(), sums_of_MPI_LONG(), sums_of_MPI_UNSIGNED_LONG();
    sums_of_MPI_LONG_LONG(), sums_of_MPI_UNSIGNED_LONG_LONG(), sums_of_MPI_FLOAT(),
        sums_of_MPI_DOUBLE();
    sums_of_MPI_LONG_DOUBLE(), sums_of_MPI_INT8_T(), sums_of_MPI_INT16_T(), sums_of_MPI_INT32_T();
    sums_of_MPI_INT64_T(), sums_of_MPI_UINT8_T(), sums_of_MPI_UINT16_T(), sums_of_MPI_UINT32_T();
    sums_of_MPI_UINT64_T(), sums_of_MPI_AINT(), sums_of_MPI_OFFSET(), sums_of_MPI_COUNT();
    bits_and_logic();
    complex_numbers();
    locations();
    user_operation();
    reproducible();
    return finish("ops");
}
