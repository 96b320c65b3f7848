//! Runs compiled programs: moves any range of the packed stream between a user's layout and
//! contiguous bytes, in either direction, without a buffer between.
//!
//! Kept true: exactly the bytes of the range are read and written, in no particular order (a type
//! whose elements overlap may be sent, not received). Addresses are computed with
//! wrapping arithmetic, so a null base with absolute displacements (`MPI_BOTTOM`) is fine.

use std::ptr;

use super::program::{Code, Program};

/// Elements of up to this many runs are moved run by run, a tile of elements at a time.
const TILED_RUNS_MAX: usize = 16;
/// Elements of a tile.
const TILE: u64 = 64;

/// Direction of a move.
pub(super) trait Mover {
    /// Moves `len` bytes.
    ///
    /// # Safety
    /// Both ranges are valid for the direction's access and do not overlap.
    unsafe fn mv(mem: *mut u8, packed: *mut u8, len: usize);

    /// Moves `L` bytes, `L` known to the compiler.
    ///
    /// # Safety
    /// As for `mv`.
    #[inline(always)]
    unsafe fn fixed<const L: usize>(mem: *mut u8, packed: *mut u8) {
        // SAFETY: as for this function.
        unsafe { Self::mv(mem, packed, L) }
    }
}

/// Memory to packed stream.
pub(super) struct Pack;
/// Packed stream to memory.
pub(super) struct Unpack;

impl Mover for Pack {
    #[inline(always)]
    unsafe fn mv(mem: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(mem.cast_const(), packed, len) }
    }
}

impl Mover for Unpack {
    #[inline(always)]
    unsafe fn mv(mem: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: the caller's promise.
        unsafe { ptr::copy_nonoverlapping(packed.cast_const(), mem, len) }
    }
}

/// Moves bytes `[skip, skip + len)` of the stream of `count` copies of `body`, `stride` apart.
///
/// # Safety
/// The range lies within the stream; `packed` has `len` bytes; memory at `mem` is as the type says.
pub(super) unsafe fn repeat_range<M: Mover>(
    body: &Program,
    stride: i64,
    mem: *mut u8,
    mut packed: *mut u8,
    skip: u64,
    mut len: u64,
) {
    let size = body.size();
    if len == 0 || size == 0 {
        return;
    }
    let first = skip / size;
    let inside = skip % size;
    let mut mem = step(mem, first as i64, stride);
    // SAFETY: each call covers the part of the caller's range that lies in its copies.
    unsafe {
        if inside != 0 {
            let head = len.min(size - inside);
            range::<M>(body, mem, packed, inside, head);
            mem = mem.wrapping_offset(stride as isize);
            packed = packed.add(head as usize);
            len -= head;
        }
        let whole = len / size;
        repeat_whole::<M>(body, stride, whole, mem, packed);
        let done = whole * size;
        if len > done {
            let mem = step(mem, whole as i64, stride);
            range::<M>(body, mem, packed.add(done as usize), 0, len - done);
        }
    }
}

fn step(mem: *mut u8, count: i64, stride: i64) -> *mut u8 {
    mem.wrapping_offset(count.wrapping_mul(stride) as isize)
}

/// Moves `count` whole copies of `body`.
unsafe fn repeat_whole<M: Mover>(
    body: &Program,
    stride: i64,
    count: u64,
    mem: *mut u8,
    mut packed: *mut u8,
) {
    let mut at = mem.wrapping_offset(body.disp as isize);
    let size = body.node.size;
    // SAFETY: the copies lie one after the other in the stream and `stride` apart in memory.
    unsafe {
        match &body.node.code {
            Code::Run if size as i64 == stride => M::mv(at, packed, (size * count) as usize),
            Code::Run => strided::<M>(size, stride, size, count, at, packed),
            &Code::Strided { len, stride: inner, count: n } => {
                for _ in 0..count {
                    strided::<M>(len, inner, len, n, at, packed);
                    at = at.wrapping_offset(stride as isize);
                    packed = packed.add(size as usize);
                }
            }
            Code::Blocks { len, disps } if disps.len() <= TILED_RUNS_MAX => {
                let runs = disps.iter().zip(0..).map(|(d, i)| (*d, i * len, *len));
                tiled::<M>(runs, stride, size, count, at, packed);
            }
            Code::Runs { disps, starts } if disps.len() <= TILED_RUNS_MAX => {
                let ends = starts.windows(2);
                let runs = disps.iter().zip(ends).map(|(d, w)| (*d, w[0], w[1] - w[0]));
                tiled::<M>(runs, stride, size, count, at, packed);
            }
            Code::Blocks { len, disps } => {
                for _ in 0..count {
                    blocks::<M>(*len, disps, at, packed);
                    at = at.wrapping_offset(stride as isize);
                    packed = packed.add(size as usize);
                }
            }
            code => {
                for _ in 0..count {
                    whole::<M>(code, at, packed);
                    at = at.wrapping_offset(stride as isize);
                    packed = packed.add(size as usize);
                }
            }
        }
    }
}

/// Moves everything that `code` at `at` describes.
unsafe fn whole<M: Mover>(code: &Code, at: *mut u8, packed: *mut u8) {
    // SAFETY: the parts are those of the program, which the caller vouches for.
    unsafe {
        match code {
            // A run's length is in its node, so callers move it themselves.
            Code::Run => {}
            &Code::Strided { len, stride, count } => {
                strided::<M>(len, stride, len, count, at, packed);
            }
            Code::Blocks { len, disps } => blocks::<M>(*len, disps, at, packed),
            Code::Runs { disps, starts } => {
                for (d, w) in disps.iter().zip(starts.windows(2)) {
                    let mem = at.wrapping_offset(*d as isize);
                    small::<M>(mem, packed.add(w[0] as usize), (w[1] - w[0]) as usize);
                }
            }
            Code::Repeat { body, stride, count } => {
                repeat_whole::<M>(body, *stride, *count, at, packed);
            }
            Code::Seq { parts, starts } => {
                for (p, start) in parts.iter().zip(starts) {
                    repeat_whole::<M>(p, 0, 1, at, packed.add(*start as usize));
                }
            }
        }
    }
}

/// Moves bytes `[skip, skip + len)` of one copy of `program`.
unsafe fn range<M: Mover>(program: &Program, mem: *mut u8, packed: *mut u8, skip: u64, len: u64) {
    if len == 0 {
        return;
    }
    let at = mem.wrapping_offset(program.disp as isize);
    // SAFETY: each arm covers exactly the part of the range that lies in its pieces.
    unsafe {
        match &program.node.code {
            Code::Run => M::mv(at.wrapping_add(skip as usize), packed, len as usize),
            &Code::Strided { len: run, stride, .. } => {
                equal_runs::<M>(
                    run,
                    skip,
                    len,
                    packed,
                    |i| step(at, i as i64, stride),
                    |i, n, p| {
                        strided::<M>(run, stride, run, n, step(at, i as i64, stride), p);
                    },
                );
            }
            Code::Blocks { len: run, disps } => {
                let place = |i: u64| at.wrapping_offset(disps[i as usize] as isize);
                equal_runs::<M>(*run, skip, len, packed, place, |i, n, p| {
                    blocks::<M>(*run, &disps[i as usize..(i + n) as usize], at, p);
                });
            }
            Code::Runs { disps, starts } => {
                pieces(starts, skip, len, packed, |i, from, n, p| {
                    let mem = at.wrapping_offset(disps[i] as isize).wrapping_add(from as usize);
                    small::<M>(mem, p, n as usize);
                });
            }
            Code::Repeat { body, stride, .. } => {
                repeat_range::<M>(body, *stride, at, packed, skip, len);
            }
            Code::Seq { parts, starts } => {
                pieces(starts, skip, len, packed, |i, from, n, p| {
                    if n == parts[i].size() {
                        repeat_whole::<M>(&parts[i], 0, 1, at, p);
                    } else {
                        range::<M>(&parts[i], at, p, from, n);
                    }
                });
            }
        }
    }
}

/// Splits a range of equal runs in a partial first, whole ones and a partial last.
#[inline(always)]
unsafe fn equal_runs<M: Mover>(
    run: u64,
    skip: u64,
    mut len: u64,
    mut packed: *mut u8,
    place: impl Fn(u64) -> *mut u8,
    whole: impl Fn(u64, u64, *mut u8),
) {
    let mut i = skip / run;
    let inside = skip % run;
    // SAFETY: the pieces partition the caller's range.
    unsafe {
        if inside != 0 {
            let head = len.min(run - inside);
            M::mv(place(i).wrapping_add(inside as usize), packed, head as usize);
            packed = packed.add(head as usize);
            len -= head;
            i += 1;
        }
        let n = len / run;
        whole(i, n, packed);
        let tail = len % run;
        if tail != 0 {
            M::mv(place(i + n), packed.add((n * run) as usize), tail as usize);
        }
    }
}

/// Calls `f(part, offset inside it, bytes, packed)` for each part that the range meets.
#[inline(always)]
fn pieces(
    starts: &[u64],
    skip: u64,
    len: u64,
    mut packed: *mut u8,
    f: impl Fn(usize, u64, u64, *mut u8),
) {
    let mut i = starts.partition_point(|s| *s <= skip) - 1;
    let (mut at, end) = (skip, skip + len);
    while at < end {
        let n = starts[i + 1].min(end) - at;
        f(i, at - starts[i], n, packed);
        packed = packed.wrapping_add(n as usize);
        at += n;
        i += 1;
    }
}

/// Moves `count` elements of a few runs `(displacement, start in the stream, length)` each, one run
/// of a tile of elements after the other: each is a tight loop then.
#[inline]
unsafe fn tiled<M: Mover>(
    runs: impl Iterator<Item = (i64, u64, u64)> + Clone,
    stride: i64,
    size: u64,
    count: u64,
    at: *mut u8,
    packed: *mut u8,
) {
    let mut done = 0;
    while done < count {
        let n = TILE.min(count - done);
        let mem = step(at, done as i64, stride);
        let packed = packed.wrapping_add((done * size) as usize);
        for (disp, start, len) in runs.clone() {
            let mem = mem.wrapping_offset(disp as isize);
            // SAFETY: the run of `n` of the caller's elements.
            unsafe {
                strided::<M>(len, stride, size, n, mem, packed.wrapping_add(start as usize));
            }
        }
        done += n;
    }
}

/// `count` runs of `len` bytes, `stride` apart in memory and `apart` in the stream.
#[inline]
unsafe fn strided<M: Mover>(
    len: u64,
    stride: i64,
    apart: u64,
    count: u64,
    mem: *mut u8,
    packed: *mut u8,
) {
    #[inline(always)]
    unsafe fn fixed<M: Mover, const L: usize>(
        stride: i64,
        apart: u64,
        count: u64,
        mut mem: *mut u8,
        mut packed: *mut u8,
    ) {
        for _ in 0..count {
            // SAFETY: one of the caller's runs.
            unsafe { M::fixed::<L>(mem, packed) }
            packed = packed.wrapping_add(apart as usize);
            mem = mem.wrapping_offset(stride as isize);
        }
    }
    // SAFETY: as for this function; the arms differ in what the compiler knows of the length.
    unsafe {
        match len {
            1 => fixed::<M, 1>(stride, apart, count, mem, packed),
            2 => fixed::<M, 2>(stride, apart, count, mem, packed),
            4 => fixed::<M, 4>(stride, apart, count, mem, packed),
            8 => fixed::<M, 8>(stride, apart, count, mem, packed),
            12 => fixed::<M, 12>(stride, apart, count, mem, packed),
            16 => fixed::<M, 16>(stride, apart, count, mem, packed),
            24 => fixed::<M, 24>(stride, apart, count, mem, packed),
            32 => fixed::<M, 32>(stride, apart, count, mem, packed),
            64 => fixed::<M, 64>(stride, apart, count, mem, packed),
            _ => {
                let (mut mem, mut packed) = (mem, packed);
                for _ in 0..count {
                    M::mv(mem, packed, len as usize);
                    mem = mem.wrapping_offset(stride as isize);
                    packed = packed.wrapping_add(apart as usize);
                }
            }
        }
    }
}

/// Runs of `len` bytes at the given displacements from `at`.
#[inline]
unsafe fn blocks<M: Mover>(len: u64, disps: &[i64], at: *mut u8, packed: *mut u8) {
    #[inline(always)]
    unsafe fn fixed<M: Mover, const L: usize>(disps: &[i64], at: *mut u8, mut packed: *mut u8) {
        for d in disps {
            // SAFETY: one of the caller's runs.
            unsafe {
                M::fixed::<L>(at.wrapping_offset(*d as isize), packed);
                packed = packed.add(L);
            }
        }
    }
    // SAFETY: as for this function.
    unsafe {
        match len {
            1 => fixed::<M, 1>(disps, at, packed),
            2 => fixed::<M, 2>(disps, at, packed),
            4 => fixed::<M, 4>(disps, at, packed),
            8 => fixed::<M, 8>(disps, at, packed),
            16 => fixed::<M, 16>(disps, at, packed),
            24 => fixed::<M, 24>(disps, at, packed),
            _ => {
                let mut packed = packed;
                for d in disps {
                    M::mv(at.wrapping_offset(*d as isize), packed, len as usize);
                    packed = packed.add(len as usize);
                }
            }
        }
    }
}

/// Moves `len` bytes where the common short lengths need no call.
#[inline(always)]
unsafe fn small<M: Mover>(mem: *mut u8, packed: *mut u8, len: usize) {
    // SAFETY: as for this function.
    unsafe {
        match len {
            1 => M::fixed::<1>(mem, packed),
            2 => M::fixed::<2>(mem, packed),
            4 => M::fixed::<4>(mem, packed),
            8 => M::fixed::<8>(mem, packed),
            16 => M::fixed::<16>(mem, packed),
            _ => M::mv(mem, packed, len),
        }
    }
}
