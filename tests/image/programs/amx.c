// AMX tiles that stay loaded across long loops. On a processor without AMX it says so in its result
// and computes the same product without it.
#define _GNU_SOURCE
#include "check.h"
#include <cpuid.h>
#include <immintrin.h>
#include <sys/syscall.h>

enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18, N = 16 };
static signed char a[N][64] __attribute__((aligned(64)));
static signed char b[N][64] __attribute__((aligned(64)));

static void product(int out[N][N]) {
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++)
            for (int k = 0; k < 64; k++) out[i][j] += a[i][k] * b[k / 4][j * 4 + k % 4];
}

__attribute__((target("amx-tile,amx-int8"))) static void tiles(long n) {
    struct {
        uint8_t palette, row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config __attribute__((aligned(64))) = {.palette = 1};
    for (int t = 0; t < 3; t++) config.bytes[t] = 64, config.rows[t] = N;
    _tile_loadconfig(&config);
    _tile_zero(0);
    _tile_loadd(1, a, 64);
    _tile_loadd(2, b, 64);
    int expected[N][N] = {{0}}, found[N][N];
    product(expected);
    for (long r = 0; r < n; r++) {
        _tile_zero(0);
        _tile_dpbssd(0, 1, 2);
        add(work(2));
        _tile_stored(0, found, 64);
        CHECK(!memcmp(expected, found, sizeof found));
    }
    _tile_release();
}

static int has_amx(void) {
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) return 0;
    if (!(edx & 1u << 24) || !(edx & 1u << 25)) return 0;
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
}

int main(int argc, char **argv) {
    long n = rounds(argc, argv, 8000);
    for (int i = 0; i < N * 64; i++) {
        a[i / 64][i % 64] = (signed char)value_at((uint64_t)i);
        b[i / 64][i % 64] = (signed char)value_at((uint64_t)i + 7777);
    }
    int has = has_amx();
    if (has) tiles(n);
    else add(work(n * 2));
    int out[N][N] = {{0}};
    product(out);
    add_bytes(out, sizeof out);
    return finish(has ? "amx" : "amx (this processor has none)");
}
