//! Arithmetic on element kinds that Rust has no type for: half, x87 extended and quadruple
//! precision, and complex numbers of any.
//!
//! Kept true: results are those of IEEE 754 with rounding to nearest even, on every machine.

use std::arch::asm;
use std::arch::x86_64::__m128i;

/// What reductions need of a number.
pub(super) trait Num: Copy {
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, other: Self) -> Self;
}

/// What minimum, maximum and their locations need. False for unordered values.
pub(super) trait Order: Copy {
    fn less(self, other: Self) -> bool;
    fn same(self, other: Self) -> bool;
}

macro_rules! native_float {
    ($($t:ty)*) => {$(
        impl Num for $t {
            #[inline(always)]
            fn add(self, other: Self) -> Self { self + other }
            #[inline(always)]
            fn sub(self, other: Self) -> Self { self - other }
            #[inline(always)]
            fn mul(self, other: Self) -> Self { self * other }
        }
    )*};
}

macro_rules! native_order {
    ($($t:ty)*) => {$(
        impl Order for $t {
            #[inline(always)]
            fn less(self, other: Self) -> bool { self < other }
            #[inline(always)]
            fn same(self, other: Self) -> bool { self == other }
        }
    )*};
}

native_float! { f32 f64 }
native_order! { i8 u8 i16 u16 i32 u32 i64 u64 i128 f32 f64 }

/// Half precision (binary16). Computed in single precision, whose one rounding is innocuous.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct F16(pub u16);

impl F16 {
    pub(super) fn to_f32(self) -> f32 {
        let sign = u32::from(self.0 & 0x8000) << 16;
        let exponent = u32::from(self.0 >> 10) & 0x1f;
        let fraction = u32::from(self.0 & 0x3ff);
        let magnitude = match exponent {
            // Denormal: an integer times 2^-24.
            0 => (fraction as f32 / (1u32 << 24) as f32).to_bits(),
            0x1f => 0x7f80_0000 | fraction << 13,
            _ => (exponent + 112) << 23 | fraction << 13,
        };
        f32::from_bits(sign | magnitude)
    }

    pub(super) fn from_f32(value: f32) -> F16 {
        let bits = value.to_bits();
        let sign = (bits >> 16) as u16 & 0x8000;
        let magnitude = bits & 0x7fff_ffff;
        if magnitude > 0x7f80_0000 {
            return F16(sign | 0x7e00 | (magnitude >> 13) as u16 & 0x3ff);
        }
        // 2^-14 is the least normal number; below it one unit is 2^-24.
        if magnitude < 113 << 23 {
            // Adding 0.5 leaves the value in units of 2^-24, rounded, in the low bits.
            let shifted = f32::from_bits(magnitude) + 0.5;
            return F16(sign | (shifted.to_bits() - 0.5f32.to_bits()) as u16);
        }
        let rest = magnitude & 0x1fff;
        let mut half = (magnitude >> 13) - (112 << 10);
        if rest > 0x1000 || (rest == 0x1000 && half & 1 == 1) {
            half += 1;
        }
        F16(sign | half.min(0x7c00) as u16)
    }
}

impl Num for F16 {
    fn add(self, other: Self) -> Self {
        F16::from_f32(self.to_f32() + other.to_f32())
    }
    fn sub(self, other: Self) -> Self {
        F16::from_f32(self.to_f32() - other.to_f32())
    }
    fn mul(self, other: Self) -> Self {
        F16::from_f32(self.to_f32() * other.to_f32())
    }
}

impl Order for F16 {
    fn less(self, other: Self) -> bool {
        self.to_f32() < other.to_f32()
    }
    fn same(self, other: Self) -> bool {
        self.to_f32() == other.to_f32()
    }
}

/// x87 extended precision, C's `long double`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(16))]
pub(super) struct F80(pub [u8; 16]);

macro_rules! x87 {
    ($left:expr, $right:expr, $instruction:literal) => {{
        // The result has the right operand's padding.
        let mut result = $right;
        // SAFETY: three valid 16-byte objects; the x87 stack is left as it was found (empty).
        unsafe {
            asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                $instruction,
                "fstp tbyte ptr [{o}]",
                a = in(reg) &$left,
                b = in(reg) &$right,
                o = in(reg) &mut result,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        result
    }};
}

macro_rules! x87_compare {
    ($left:expr, $right:expr, $set:literal) => {{
        let result: u8;
        // SAFETY: two valid 16-byte objects; the x87 stack is left as it was found (empty).
        unsafe {
            asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                "fucomip st, st(1)",
                "fstp st(0)",
                $set,
                a = in(reg) &$left,
                b = in(reg) &$right,
                r = out(reg_byte) result,
                out("al") _,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        result != 0
    }};
}

impl Num for F80 {
    fn add(self, other: Self) -> Self {
        x87!(self, other, "faddp st(1), st")
    }
    fn sub(self, other: Self) -> Self {
        x87!(self, other, "fsubp st(1), st")
    }
    fn mul(self, other: Self) -> Self {
        x87!(self, other, "fmulp st(1), st")
    }
}

impl Order for F80 {
    fn less(self, other: Self) -> bool {
        // `other` is on top: above means greater and ordered.
        x87_compare!(self, other, "seta {r}")
    }
    fn same(self, other: Self) -> bool {
        // Equal and not unordered (parity).
        x87_compare!(self, other, "setnp al\n sete {r}\n and {r}, al")
    }
}

/// Quadruple precision (binary128), computed by the compiler's run-time routines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct F128(pub u128);

unsafe extern "C" {
    // Their arguments are `__float128`, for which stable Rust has no type; see `call_quad`.
    fn __addtf3();
    fn __subtf3();
    fn __multf3();
    fn __lttf2();
    fn __eqtf2();
}

fn register(v: F128) -> __m128i {
    // SAFETY: two plain 16-byte values.
    unsafe { std::mem::transmute::<F128, __m128i>(v) }
}

macro_rules! call_quad {
    ($function:ident, $left:expr, $right:expr) => {{
        let mut value = register($left);
        // SAFETY: the System V ABI passes and returns __float128 in xmm0 and xmm1; all that a C
        // function may change is declared.
        unsafe {
            asm!(
                "call {f}",
                f = sym $function,
                inout("xmm0") value,
                in("xmm1") register($right),
                clobber_abi("C"),
            );
            F128(std::mem::transmute::<__m128i, u128>(value))
        }
    }};
}

macro_rules! call_quad_compare {
    ($function:ident, $left:expr, $right:expr) => {{
        let result: i32;
        // SAFETY: as in `call_quad`; the result is an int in eax.
        unsafe {
            asm!(
                "call {f}",
                f = sym $function,
                in("xmm0") register($left),
                in("xmm1") register($right),
                lateout("eax") result,
                clobber_abi("C"),
            );
        }
        result
    }};
}

impl Num for F128 {
    fn add(self, other: Self) -> Self {
        call_quad!(__addtf3, self, other)
    }
    fn sub(self, other: Self) -> Self {
        call_quad!(__subtf3, self, other)
    }
    fn mul(self, other: Self) -> Self {
        call_quad!(__multf3, self, other)
    }
}

impl Order for F128 {
    fn less(self, other: Self) -> bool {
        call_quad_compare!(__lttf2, self, other) < 0
    }
    fn same(self, other: Self) -> bool {
        call_quad_compare!(__eqtf2, self, other) == 0
    }
}

/// A complex number.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(super) struct Complex<T> {
    pub re: T,
    pub im: T,
}

impl<T: Num> Num for Complex<T> {
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Complex { re: self.re.add(other.re), im: self.im.add(other.im) }
    }
    #[inline(always)]
    fn sub(self, other: Self) -> Self {
        Complex { re: self.re.sub(other.re), im: self.im.sub(other.im) }
    }
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Complex {
            re: self.re.mul(other.re).sub(self.im.mul(other.im)),
            im: self.re.mul(other.im).add(self.im.mul(other.re)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An x87 value of a small integer.
    pub(in crate::op) fn f80(v: i32) -> F80 {
        let mut bytes = [0u8; 16];
        if v != 0 {
            let m = u64::from(v.unsigned_abs());
            let shift = m.leading_zeros();
            bytes[..8].copy_from_slice(&(m << shift).to_le_bytes());
            let exponent = (16383 + 63 - shift) as u16 | if v < 0 { 0x8000 } else { 0 };
            bytes[8..10].copy_from_slice(&exponent.to_le_bytes());
        }
        F80(bytes)
    }

    fn f128(v: i32) -> F128 {
        if v == 0 {
            return F128(0);
        }
        let m = u128::from(v.unsigned_abs());
        let top = 127 - m.leading_zeros();
        let fraction = (m << (112 - top)) & ((1 << 112) - 1);
        let sign = u128::from(v < 0) << 127;
        F128(sign | u128::from(16383 + top) << 112 | fraction)
    }

    #[test]
    fn extended_and_quad_arithmetic_agrees_with_integers() {
        for a in [-40000, -3, -1, 0, 1, 2, 7, 12345] {
            for b in [-40001, -3, -2, 0, 1, 5, 12345] {
                let (x, y) = (f80(a), f80(b));
                assert_eq!(x.add(y).0[..10], f80(a + b).0[..10], "{a}+{b}");
                assert_eq!(x.sub(y).0[..10], f80(a - b).0[..10], "{a}-{b}");
                assert_eq!(x.less(y), a < b);
                assert_eq!(x.same(y), a == b);
                let (p, q) = (f128(a), f128(b));
                assert_eq!(p.add(q), f128(a + b));
                assert_eq!(p.sub(q), f128(a - b));
                assert_eq!(p.less(q), a < b);
                assert_eq!(p.same(q), a == b);
                if a != 0 && b != 0 {
                    assert_eq!(x.mul(y).0[..10], f80(a * b).0[..10]);
                    assert_eq!(p.mul(q), f128(a * b));
                }
            }
        }
    }

    #[test]
    fn extended_keeps_64_bits_of_mantissa() {
        let big = f80(1 << 30);
        let huge = big.mul(big).mul(f80(4)); // 2^62
        let sum = huge.add(f80(1));
        assert_eq!(sum.sub(huge).0[..10], f80(1).0[..10]);
    }

    #[test]
    fn unordered_values_are_neither_less_nor_equal() {
        let mut nan = F80([0; 16]);
        nan.0[7] = 0xc0;
        nan.0[8..10].copy_from_slice(&0x7fffu16.to_le_bytes());
        assert!(!nan.less(f80(1)) && !f80(1).less(nan) && !nan.same(nan));
        let quad = F128(0x7fff_8000 << 96);
        assert!(!quad.less(f128(1)) && !f128(1).less(quad) && !quad.same(quad));
    }

    #[test]
    fn every_half_survives_the_way_through_single() {
        for bits in 0..=u16::MAX {
            let wide = F16(bits).to_f32();
            let back = F16::from_f32(wide);
            if wide.is_nan() {
                assert!(back.to_f32().is_nan());
            } else {
                assert_eq!(back.0, bits);
            }
        }
    }

    #[test]
    fn half_is_rounded_to_nearest_even() {
        assert_eq!(F16::from_f32(65504.0).0, 0x7bff);
        assert_eq!(F16::from_f32(65519.9).0, 0x7bff);
        assert_eq!(F16::from_f32(65520.0).0, 0x7c00);
        assert_eq!(F16::from_f32(1e9).0, 0x7c00);
        assert_eq!(F16::from_f32(2049.0).0, F16::from_f32(2048.0).0);
        assert_eq!(F16::from_f32(2051.0).0, F16::from_f32(2052.0).0);
        assert_eq!(F16::from_f32(2f32.powi(-25)).0, 0);
        assert_eq!(F16::from_f32(1.5 * 2f32.powi(-25)).0, 1);
        assert_eq!(F16::from_f32(-(2f32.powi(-24))).0, 0x8001);
    }
}
