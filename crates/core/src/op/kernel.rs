//! The loops of the predefined operations, one per operation and element kind.
//!
//! Kept true: `right[i] = left[i] op right[i]` for every element, in place, any alignment; the
//! result of an element depends on its two operands alone, so vector width cannot change it.

use super::Builtin;
use super::number::{Complex, F16, F80, F128, Num, Order};
use crate::datatype::{Basic, Element};

/// `(left, right and result, elements)`.
pub(crate) type Kernel = unsafe fn(*const u8, *mut u8, usize);

/// A binary operation on `T`.
trait Apply<T> {
    fn apply(left: T, right: T) -> T;
}

struct Sum;
struct Prod;
struct Min;
struct Max;
struct BitAnd;
struct BitOr;
struct BitXor;
struct LogicAnd;
struct LogicOr;
struct LogicXor;

/// # Safety
/// Both pointers have `n` elements of `T`, and the right ones may be written.
unsafe fn elementwise<O: Apply<T>, T: Copy>(left: *const u8, right: *mut u8, n: usize) {
    let (left, right) = (left.cast::<T>(), right.cast::<T>());
    for i in 0..n {
        // SAFETY: `i` is within the caller's arrays; no alignment is assumed.
        unsafe {
            let result = O::apply(left.add(i).read_unaligned(), right.add(i).read_unaligned());
            right.add(i).write_unaligned(result);
        }
    }
}

macro_rules! apply {
    ($op:ident, $t:ty, |$a:ident, $b:ident| $result:expr) => {
        impl Apply<$t> for $op {
            #[inline(always)]
            fn apply($a: $t, $b: $t) -> $t {
                $result
            }
        }
    };
}

macro_rules! integers {
    ($($t:ty)*) => {$(
        apply!(Sum, $t, |a, b| a.wrapping_add(b));
        apply!(Prod, $t, |a, b| a.wrapping_mul(b));
        apply!(BitAnd, $t, |a, b| a & b);
        apply!(BitOr, $t, |a, b| a | b);
        apply!(BitXor, $t, |a, b| a ^ b);
        apply!(LogicAnd, $t, |a, b| <$t>::from(a != 0) & <$t>::from(b != 0));
        apply!(LogicOr, $t, |a, b| <$t>::from(a | b != 0));
        apply!(LogicXor, $t, |a, b| <$t>::from((a != 0) != (b != 0)));
    )*};
}

macro_rules! numbers {
    ($($t:ty)*) => {$(
        apply!(Sum, $t, |a, b| a.add(b));
        apply!(Prod, $t, |a, b| a.mul(b));
    )*};
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 i128 }
numbers! { f32 f64 F16 F80 F128 }

impl<T: Num> Apply<Complex<T>> for Sum {
    #[inline(always)]
    fn apply(left: Complex<T>, right: Complex<T>) -> Complex<T> {
        left.add(right)
    }
}

impl<T: Num> Apply<Complex<T>> for Prod {
    #[inline(always)]
    fn apply(left: Complex<T>, right: Complex<T>) -> Complex<T> {
        left.mul(right)
    }
}

impl<T: Order> Apply<T> for Min {
    #[inline(always)]
    fn apply(left: T, right: T) -> T {
        if left.less(right) { left } else { right }
    }
}

impl<T: Order> Apply<T> for Max {
    #[inline(always)]
    fn apply(left: T, right: T) -> T {
        if right.less(left) { left } else { right }
    }
}

/// A value and its location.
#[derive(Clone, Copy)]
#[repr(C)]
struct Pair<V, I> {
    value: V,
    index: I,
}

struct MinLoc;
struct MaxLoc;

/// Which of two values a location operation wants.
trait Prefer {
    fn prefers<V: Order>(left: V, right: V) -> bool;
}

impl Prefer for MinLoc {
    fn prefers<V: Order>(left: V, right: V) -> bool {
        left.less(right)
    }
}

impl Prefer for MaxLoc {
    fn prefers<V: Order>(left: V, right: V) -> bool {
        right.less(left)
    }
}

/// # Safety
/// As for `elementwise`.
unsafe fn locate<O: Prefer, V: Order, I: Order>(left: *const u8, right: *mut u8, n: usize) {
    let (left, right) = (left.cast::<Pair<V, I>>(), right.cast::<Pair<V, I>>());
    for i in 0..n {
        // SAFETY: `i` is within the caller's arrays; members are accessed at their own offsets,
        // so padding is neither read nor written.
        unsafe {
            let (l, r) = (left.add(i), right.add(i));
            let value = (&raw const (*l).value).read_unaligned();
            let index = (&raw const (*l).index).read_unaligned();
            let old = (&raw const (*r).value).read_unaligned();
            let same = value.same(old);
            if O::prefers(value, old) {
                (&raw mut (*r).value).write_unaligned(value);
                (&raw mut (*r).index).write_unaligned(index);
            } else if same && index.less((&raw const (*r).index).read_unaligned()) {
                (&raw mut (*r).index).write_unaligned(index);
            }
        }
    }
}

macro_rules! integer_kernel {
    ($op:expr, $t:ty) => {
        match $op {
            Builtin::Sum => elementwise::<Sum, $t>,
            Builtin::Prod => elementwise::<Prod, $t>,
            Builtin::Min => elementwise::<Min, $t>,
            Builtin::Max => elementwise::<Max, $t>,
            Builtin::LogicAnd => elementwise::<LogicAnd, $t>,
            Builtin::LogicOr => elementwise::<LogicOr, $t>,
            Builtin::LogicXor => elementwise::<LogicXor, $t>,
            op => return bits::<$t>(op),
        }
    };
}

fn bits<T: Copy>(op: Builtin) -> Option<Kernel>
where
    BitAnd: Apply<T>,
    BitOr: Apply<T>,
    BitXor: Apply<T>,
{
    Some(match op {
        Builtin::BitAnd => elementwise::<BitAnd, T>,
        Builtin::BitOr => elementwise::<BitOr, T>,
        Builtin::BitXor => elementwise::<BitXor, T>,
        _ => return None,
    })
}

fn logic<T: Copy>(op: Builtin) -> Option<Kernel>
where
    LogicAnd: Apply<T>,
    LogicOr: Apply<T>,
    LogicXor: Apply<T>,
{
    Some(match op {
        Builtin::LogicAnd => elementwise::<LogicAnd, T>,
        Builtin::LogicOr => elementwise::<LogicOr, T>,
        Builtin::LogicXor => elementwise::<LogicXor, T>,
        _ => return None,
    })
}

fn ring<T: Copy>(op: Builtin) -> Option<Kernel>
where
    Sum: Apply<T>,
    Prod: Apply<T>,
{
    Some(match op {
        Builtin::Sum => elementwise::<Sum, T>,
        Builtin::Prod => elementwise::<Prod, T>,
        _ => return None,
    })
}

fn float<T: Num + Order>(op: Builtin) -> Option<Kernel>
where
    Sum: Apply<T>,
    Prod: Apply<T>,
{
    Some(match op {
        Builtin::Min => elementwise::<Min, T>,
        Builtin::Max => elementwise::<Max, T>,
        op => return ring::<T>(op),
    })
}

fn location<V: Order, I: Order>(op: Builtin) -> Option<Kernel> {
    Some(match op {
        Builtin::MinLoc => locate::<MinLoc, V, I>,
        Builtin::MaxLoc => locate::<MaxLoc, V, I>,
        _ => return None,
    })
}

fn basic(op: Builtin, kind: Basic) -> Option<Kernel> {
    Some(match kind {
        Basic::I8 => integer_kernel!(op, i8),
        Basic::U8 => integer_kernel!(op, u8),
        Basic::I16 => integer_kernel!(op, i16),
        Basic::U16 => integer_kernel!(op, u16),
        Basic::I32 => integer_kernel!(op, i32),
        Basic::U32 => integer_kernel!(op, u32),
        Basic::I64 | Basic::Long => integer_kernel!(op, i64),
        Basic::U64 | Basic::ULong => integer_kernel!(op, u64),
        Basic::I128 => integer_kernel!(op, i128),
        Basic::F16 => return float::<F16>(op),
        Basic::F32 => return float::<f32>(op),
        Basic::F64 => return float::<f64>(op),
        Basic::F80 => return float::<F80>(op),
        Basic::F128 => return float::<F128>(op),
        Basic::C16 => return ring::<Complex<F16>>(op),
        Basic::C32 => return ring::<Complex<f32>>(op),
        Basic::C64 => return ring::<Complex<f64>>(op),
        Basic::C80 => return ring::<Complex<F80>>(op),
        Basic::C128 => return ring::<Complex<F128>>(op),
        Basic::L8 => return logic::<u8>(op),
        Basic::L16 => return logic::<u16>(op),
        Basic::L32 => return logic::<u32>(op),
        Basic::L64 => return logic::<u64>(op),
        Basic::L128 => return logic::<i128>(op),
        Basic::Byte => return bits::<u8>(op),
        Basic::Character | Basic::WChar | Basic::Packed => return None,
    })
}

/// The loop for an operation on an element, where the standard defines it. Two liberties, as other
/// implementations take them: `MPI_CHAR` counts as an integer, and Fortran integers also take the
/// logical operations.
pub(super) fn find(op: Builtin, element: Element) -> Option<Kernel> {
    match element {
        Element::One(kind) => basic(op, kind),
        Element::Pair(Basic::F32, Basic::I32) => location::<f32, i32>(op),
        Element::Pair(Basic::F64, Basic::I32) => location::<f64, i32>(op),
        Element::Pair(Basic::Long, Basic::I32) => location::<i64, i32>(op),
        Element::Pair(Basic::I32, Basic::I32) => location::<i32, i32>(op),
        Element::Pair(Basic::I16, Basic::I32) => location::<i16, i32>(op),
        Element::Pair(Basic::F80, Basic::I32) => location::<F80, i32>(op),
        Element::Pair(Basic::F32, Basic::F32) => location::<f32, f32>(op),
        Element::Pair(Basic::F64, Basic::F64) => location::<f64, f64>(op),
        Element::Pair(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::pair_index_offset;

    #[test]
    fn pairs_lie_as_the_datatypes_say() {
        let extended = std::mem::offset_of!(Pair<F80, i32>, index);
        assert_eq!(extended as u64, pair_index_offset(Basic::F80, Basic::I32));
        assert_eq!(size_of::<Pair<F80, i32>>(), 32);
        assert_eq!(size_of::<Pair<f64, i32>>(), 16);
        assert_eq!(std::mem::offset_of!(Pair<i16, i32>, index), 4);
        assert_eq!(pair_index_offset(Basic::I16, Basic::I32), 4);
    }
}
