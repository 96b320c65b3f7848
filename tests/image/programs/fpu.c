// x87 stack and control word, MXCSR with rounding and flags, SSE, AVX-512 vectors and masks where
// there are any: kept in registers across long loops.
#define _GNU_SOURCE
#include "check.h"
#include <fenv.h>
#include <immintrin.h>

__attribute__((noinline)) static uint64_t x87(long n) {
    long double a = 1.0L, b = 3.14159265358979323846L, c = 1e-18L, d = 2.0L;
    for (long i = 0; i < n * 400; i++) {
        a = a * b - c;
        b = b / d + a * c;
        if (a > 1e100L) a = a * 1e-100L;
    }
    uint64_t bits[2] = {0, 0};
    memcpy(bits, &a, 10);
    return bits[0] ^ bits[1];
}

__attribute__((noinline)) static uint64_t sse(long n) {
    double x = 1.0, third = 1.0 / 3.0;
    for (long i = 0; i < n * 400; i++) {
        x = x * 1.0000001 + third;
        if (x > 1e10) x *= 1e-10;
    }
    uint64_t bits;
    memcpy(&bits, &x, 8);
    return bits;
}

__attribute__((noinline, target("avx512f,avx512bw"))) static uint64_t avx512(long n) {
    __m512i a = _mm512_set1_epi64(7), b = _mm512_set1_epi64(0x1234567), c = a, d = b;
    __mmask8 k = 0x5a;
    for (long i = 0; i < n * 400; i++) {
        a = _mm512_mask_add_epi64(a, k, a, b);
        b = _mm512_xor_epi64(_mm512_rol_epi64(b, 7), a);
        c = _mm512_sub_epi64(c, b);
        d = _mm512_mask_xor_epi64(d, (__mmask8)~k, d, c);
        k = (__mmask8)(k + _mm512_cmpgt_epi64_mask(a, b));
    }
    uint64_t out[8];
    _mm512_storeu_si512(out, _mm512_xor_epi64(_mm512_xor_epi64(a, b), _mm512_xor_epi64(c, d)));
    for (int i = 1; i < 8; i++) out[0] = out[0] * 31 + out[i];
    return out[0] * 31 + k;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 30000);
    int modes[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};
    int wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
    for (long i = 0; i < n; i++) {
        NEED(fesetround(modes[i % 4]) == 0);
        feclearexcept(FE_ALL_EXCEPT);
        if (i % 3 == 0) feraiseexcept(FE_DIVBYZERO);
        unsigned mxcsr = _mm_getcsr();
        unsigned short word;
        __asm__ volatile("fnstcw %0" : "=m"(word));
        add(x87(1));
        add(sse(1));
        if (wide) add(avx512(1));
        unsigned short after;
        __asm__ volatile("fnstcw %0" : "=m"(after));
        CHECK(word == after);
        CHECK((_mm_getcsr() & ~0x3fu) == (mxcsr & ~0x3fu));
        CHECK(fegetround() == modes[i % 4]);
        CHECK(!!fetestexcept(FE_DIVBYZERO) == (i % 3 == 0));
    }
    return finish("fpu");
}
