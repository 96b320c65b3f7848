// Values that live in vector and mask registers only, across long stretches.
#include <immintrin.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    long rounds = argc > 1 ? atol(argv[1]) : 100000000;
    __m512i a[12];
    for (int k = 0; k < 12; k++) a[k] = _mm512_set1_epi64(0x9e3779b97f4a7c15ull * (k + 1));
    __m512d d = _mm512_set1_pd(1.0);
    __m512i step = _mm512_set_epi64(1, 3, 5, 7, 11, 13, 17, 19);
    __mmask8 mask = 0xa5;
    long double x87 = 1.0L;
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < 12; k++) {
            a[k] = _mm512_mask_add_epi64(_mm512_rol_epi64(a[k], 7), mask, a[(k + 1) % 12], step);
        }
        mask = _mm512_cmplt_epu64_mask(a[0], a[5]);
        d = _mm512_fmadd_pd(d, _mm512_set1_pd(1.0000001), _mm512_set1_pd(1e-9));
        x87 = x87 * 1.0000001L + 1e-12L;
        if (x87 > 4.0L) x87 -= 3.0L;
    }
    FILE *out = fopen("out", "w");
    if (!out) return 1;
    uint64_t v[8];
    for (int k = 0; k < 12; k++) {
        _mm512_storeu_si512(v, a[k]);
        for (int j = 0; j < 8; j++) fprintf(out, "%016llx\n", (unsigned long long)v[j]);
    }
    double f[8];
    _mm512_storeu_pd(f, d);
    fprintf(out, "%a %a %La %02x\n", f[0], f[7], x87, (unsigned)mask);
    return fclose(out);
}
