//! The external32 representation (MPI 5.0 section 14.5.2): big-endian, fixed sizes.
//!
//! Kept true: what is packed here and unpacked again is unchanged, except values that the
//! narrower representation of `long` (4 bytes) and `wchar_t` (2 bytes) cannot hold, and bits of
//! `long double` that no conversion to binary128 can lose (there are none).

use super::Datatype;
use super::basic::{Basic, Foreign};
use super::pack::window;
use crate::error::{Class, Res, class};

/// Bytes converted at a time; a multiple of every element's size.
const CHUNK_BYTES: usize = 1024;

/// Whether `datarep` is the representation served here.
fn check(datarep: &[u8]) -> Res<()> {
    if datarep == b"external32" { Ok(()) } else { Err(class::UNSUPPORTED_DATAREP) }
}

/// 80-bit extended (in its 16 bytes) to binary128. Exact.
fn widen(native: u128) -> u128 {
    let mantissa = native as u64;
    let sign_exponent = (native >> 64) as u16;
    let fraction = if sign_exponent & 0x7fff == 0 {
        // A set integer bit in a denormal carries into the exponent, which is its value.
        u128::from(mantissa) << 49
    } else {
        u128::from(mantissa & (u64::MAX >> 1)) << 49
    };
    (u128::from(sign_exponent) << 112) + fraction
}

/// binary128 to 80-bit extended, rounded to nearest even.
fn narrow(quad: u128) -> u128 {
    let sign = quad >> 127;
    let magnitude = quad & (u128::MAX >> 1);
    let mut v = magnitude >> 49;
    if magnitude >> 112 == 0x7fff {
        if magnitude << 16 != 0 {
            // A NaN stays one when its payload is cut: set the quiet bit.
            v |= 1 << 62;
        }
    } else {
        let rest = magnitude & ((1 << 49) - 1);
        let half = 1u128 << 48;
        if rest > half || (rest == half && v & 1 == 1) {
            v += 1;
        }
    }
    let exponent = v >> 63;
    let integer_bit = u128::from(exponent != 0) << 63;
    let mantissa = v & ((1 << 63) - 1);
    ((sign << 15 | exponent) << 64) | integer_bit | mantissa
}

fn load<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    let n = bytes.len().min(N);
    out[..n].copy_from_slice(&bytes[..n]);
    out
}

/// Converts whole elements of one kind from memory's to external32's representation.
fn encode(kind: Basic, native: &[u8], out: &mut [u8]) {
    match kind.foreign() {
        Foreign::Swap { word } => swap(word, native, out),
        Foreign::Narrow { bytes, .. } => {
            let elements = native.chunks_exact(kind.size() as usize);
            for (n, o) in elements.zip(out.chunks_exact_mut(bytes)) {
                o.copy_from_slice(&n[..bytes]);
                o.reverse();
            }
        }
        Foreign::Extended { .. } => {
            for (n, o) in native.chunks_exact(16).zip(out.chunks_exact_mut(16)) {
                let value = u128::from_le_bytes(load(n)) & (u128::MAX >> 48);
                o.copy_from_slice(&widen(value).to_be_bytes());
            }
        }
    }
}

/// The reverse of `encode`.
fn decode(kind: Basic, foreign: &[u8], out: &mut [u8]) {
    match kind.foreign() {
        Foreign::Swap { word } => swap(word, foreign, out),
        Foreign::Narrow { bytes, signed } => {
            let elements = out.chunks_exact_mut(kind.size() as usize);
            for (f, o) in foreign.chunks_exact(bytes).zip(elements) {
                let negative = signed && f[0] & 0x80 != 0;
                o.fill(if negative { 0xff } else { 0 });
                o[..bytes].copy_from_slice(f);
                o[..bytes].reverse();
            }
        }
        Foreign::Extended { .. } => {
            for (f, o) in foreign.chunks_exact(16).zip(out.chunks_exact_mut(16)) {
                o.copy_from_slice(&narrow(u128::from_be_bytes(load(f))).to_le_bytes());
            }
        }
    }
}

fn swap(word: usize, from: &[u8], to: &mut [u8]) {
    for (f, t) in from.chunks_exact(word).zip(to.chunks_exact_mut(word)) {
        t.copy_from_slice(f);
        t.reverse();
    }
}

impl Datatype {
    /// `MPI_Pack_external_size`.
    pub fn external_size(&self, datarep: &[u8], count: u64) -> Res<u64> {
        check(datarep)?;
        let size = count.checked_mul(self.signature().foreign_size());
        size.filter(|n| i64::try_from(*n).is_ok()).ok_or(class::VALUE_TOO_LARGE)
    }

    /// Calls `f(kind, stream offset, native bytes, external32 offset)` for chunks of equal
    /// elements, none larger than `CHUNK_BYTES`.
    fn for_each_chunk(&self, count: u64, mut f: impl FnMut(Basic, u64, usize, usize)) {
        let (mut native, mut foreign) = (0u64, 0u64);
        let result: Result<(), Class> =
            self.signature().for_each_run(count, &mut |kind, mut left| {
                let most = CHUNK_BYTES as u64 / kind.size();
                while left != 0 {
                    let n = left.min(most);
                    f(kind, native, (n * kind.size()) as usize, foreign as usize);
                    native += n * kind.size();
                    foreign += n * kind.foreign_size();
                    left -= n;
                }
                Ok(())
            });
        debug_assert!(result.is_ok());
    }

    /// `MPI_Pack_external`.
    ///
    /// # Safety
    /// As for `pack_range`.
    pub unsafe fn pack_external(
        &self,
        datarep: &[u8],
        buf: *const u8,
        count: u64,
        out: &mut [u8],
        position: &mut u64,
    ) -> Res<()> {
        let window = window(out.len(), position, self.external_size(datarep, count)?)?;
        let out = &mut out[window];
        let mut chunk = [0; CHUNK_BYTES];
        self.for_each_chunk(count, |kind, offset, bytes, at| {
            let native = &mut chunk[..bytes];
            // SAFETY: the chunks partition the stream of `count` elements.
            unsafe { self.pack_range(buf, count, offset, native) }
            encode(kind, native, &mut out[at..at + foreign_bytes(kind, bytes)]);
        });
        Ok(())
    }

    /// `MPI_Unpack_external`.
    ///
    /// # Safety
    /// As for `unpack_range`.
    pub unsafe fn unpack_external(
        &self,
        datarep: &[u8],
        data: &[u8],
        position: &mut u64,
        buf: *mut u8,
        count: u64,
    ) -> Res<()> {
        let window = window(data.len(), position, self.external_size(datarep, count)?)?;
        let data = &data[window];
        let mut chunk = [0; CHUNK_BYTES];
        self.for_each_chunk(count, |kind, offset, bytes, at| {
            let native = &mut chunk[..bytes];
            decode(kind, &data[at..at + foreign_bytes(kind, bytes)], native);
            // SAFETY: the chunks partition the stream of `count` elements.
            unsafe { self.unpack_range(buf, count, offset, native) }
        });
        Ok(())
    }
}

impl Datatype {
    /// The elements that lie as a whole in `data`, which is the beginning of `count` of these.
    ///
    /// # Safety
    /// As for `unpack_range`.
    pub(crate) unsafe fn unpack_external_part(&self, data: &[u8], buf: *mut u8, count: u64) {
        let mut chunk = [0; CHUNK_BYTES];
        self.for_each_chunk(count, |kind, offset, bytes, at| {
            let there = data.get(at..).unwrap_or_default();
            let whole = (there.len() / kind.foreign_size() as usize) * kind.size() as usize;
            let native = &mut chunk[..bytes.min(whole)];
            decode(kind, &there[..foreign_bytes(kind, native.len())], native);
            // SAFETY: the chunks partition the stream of `count` elements.
            unsafe { self.unpack_range(buf, count, offset, native) }
        });
    }
}

fn foreign_bytes(kind: Basic, native: usize) -> usize {
    native / kind.size() as usize * kind.foreign_size() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extended_precision_survives_the_way_through_binary128() {
        let one = 0x3fff_8000_0000_0000_0000u128;
        assert_eq!(widen(one), 0x3fff << 112);
        let denormal = 0x0000_0000_0000_0000_0001u128;
        let infinity = 0x7fff_8000_0000_0000_0000u128;
        let nan = 0xffff_c000_0000_0000_0001u128;
        let pi = 0x4000_c90f_daa2_2168_c235u128;
        for v in [one, denormal, infinity, nan, pi, 0, 0x8000_0000_0000_0000_0000] {
            assert_eq!(narrow(widen(v)), v, "{v:x}");
        }
    }

    #[test]
    fn binary128_is_rounded_to_nearest_even() {
        let half_ulp = (0x3fffu128 << 112) | 1 << 48;
        assert_eq!(narrow(half_ulp), 0x3fff_8000_0000_0000_0000);
        assert_eq!(narrow(half_ulp + 1), 0x3fff_8000_0000_0000_0001);
        let below_two = (0x4000u128 << 112) - 1;
        assert_eq!(narrow(below_two), 0x4000_8000_0000_0000_0000);
        let tiny_nan = (0x7fffu128 << 112) | 1;
        assert_eq!(narrow(tiny_nan), 0x7fff_c000_0000_0000_0000);
    }
}
