//! Type signatures: the basic elements of a datatype in the order of the packed stream.
//!
//! Kept true: run-length compressed and shared with the constituents, so that counting elements
//! and converting to another representation cost no more than the datatype's description.

use std::rc::Rc;

use super::basic::Basic;
use super::program::size_of;
use crate::error::{Res, class};

/// Items of an inner signature that are copied rather than referred to.
const INLINE_ITEMS_MAX: usize = 64;
/// Nesting that is still accepted (walking recurses).
const DEPTH_MAX: u32 = 256;

#[derive(Clone, Debug)]
enum Unit {
    Basic(Basic),
    Nested(Rc<Signature>),
}

impl Unit {
    fn same(&self, other: &Unit) -> bool {
        match (self, other) {
            (Unit::Basic(a), Unit::Basic(b)) => a == b,
            (Unit::Nested(a), Unit::Nested(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }

    fn size(&self) -> u64 {
        match self {
            Unit::Basic(b) => b.size(),
            Unit::Nested(s) => s.size,
        }
    }

    fn elements(&self) -> u64 {
        match self {
            Unit::Basic(_) => 1,
            Unit::Nested(s) => s.elements,
        }
    }
}

/// The signature of one datatype.
#[derive(Debug, Default)]
pub struct Signature {
    items: Vec<(Unit, u64)>,
    size: u64,
    elements: u64,
    foreign_size: u64,
    depth: u32,
    /// There are x87 numbers in it.
    padded: bool,
}

/// From one x87 number to the next in memory and in the packed stream, and the bytes of each that
/// mean nothing.
const F80_BYTES: u64 = 16;
const F80_PADDING: std::ops::Range<u64> = 10..16;

fn is_padded(b: Basic) -> bool {
    matches!(b, Basic::F80 | Basic::C80)
}

impl Signature {
    pub(crate) fn basic(b: Basic) -> Signature {
        Signature {
            items: vec![(Unit::Basic(b), 1)],
            size: b.size(),
            elements: 1,
            foreign_size: b.foreign_size(),
            depth: 0,
            padded: is_padded(b),
        }
    }

    /// Whether bytes of the packed stream mean nothing, and may differ from run to run.
    pub fn is_padded(&self) -> bool {
        self.padded
    }

    /// Clears those in `out`, which is the packed stream of copies of this from `from` on.
    pub(crate) fn clear_padding(&self, from: u64, out: &mut [u8]) {
        if !self.padded {
            return;
        }
        if let [(Unit::Basic(_), _)] = &self.items[..] {
            for (at, byte) in (from..).zip(out) {
                if F80_PADDING.contains(&(at % F80_BYTES)) {
                    *byte = 0;
                }
            }
            return;
        }
        let (mut skip, mut left) = (from % self.size, out);
        while !left.is_empty() {
            left = self.clear_one(skip, left);
            skip = 0;
        }
    }

    /// The same in one copy, behind so many bytes of it. Returns what is left of `out`.
    fn clear_one<'a>(&self, mut skip: u64, mut out: &'a mut [u8]) -> &'a mut [u8] {
        for (unit, count) in &self.items {
            let all = unit.size() * count;
            if skip >= all {
                skip -= all;
                continue;
            }
            let len = (all - skip).min(out.len() as u64) as usize;
            let (these, rest) = out.split_at_mut(len);
            match unit {
                Unit::Basic(b) if is_padded(*b) => Signature::basic(*b).clear_padding(skip, these),
                Unit::Basic(_) => {}
                Unit::Nested(s) => s.clear_padding(skip, these),
            }
            (skip, out) = (0, rest);
            if out.is_empty() {
                break;
            }
        }
        out
    }

    /// Basic elements of one element of the datatype.
    pub fn elements(&self) -> u64 {
        self.elements
    }

    /// Bytes of the signature in external32.
    pub fn foreign_size(&self) -> u64 {
        self.foreign_size
    }

    /// The basic kind when all elements are of one.
    pub fn uniform(&self) -> Option<Basic> {
        match &self.items[..] {
            [(Unit::Basic(b), _)] => Some(*b),
            _ => None,
        }
    }

    /// Appends `count` copies of `part`.
    pub(crate) fn append(&mut self, part: &Rc<Signature>, count: u64) -> Res<()> {
        if count == 0 || part.elements == 0 {
            return Ok(());
        }
        match &part.items[..] {
            [(unit, n)] => {
                let n = n.checked_mul(count).ok_or(class::VALUE_TOO_LARGE)?;
                self.push(unit.clone(), n)
            }
            items if count == 1 && items.len() <= INLINE_ITEMS_MAX => {
                items.iter().try_for_each(|(unit, n)| self.push(unit.clone(), *n))
            }
            _ => self.push(Unit::Nested(Rc::clone(part)), count),
        }
    }

    fn push(&mut self, unit: Unit, count: u64) -> Res<()> {
        let sum = |a: u64, each: u64| {
            let b = size_of(count, each)?;
            a.checked_add(b).ok_or(class::VALUE_TOO_LARGE).and_then(|n| size_of(1, n))
        };
        let (foreign, depth, padded) = match &unit {
            Unit::Basic(b) => (b.foreign_size(), 0, is_padded(*b)),
            Unit::Nested(s) => (s.foreign_size, s.depth + 1, s.padded),
        };
        if depth > DEPTH_MAX {
            return Err(class::OTHER);
        }
        self.size = sum(self.size, unit.size())?;
        self.elements = sum(self.elements, unit.elements())?;
        self.foreign_size = sum(self.foreign_size, foreign)?;
        self.depth = self.depth.max(depth);
        self.padded |= padded;
        match self.items.last_mut() {
            Some((last, n)) if last.same(&unit) => *n += count,
            _ => self.items.push((unit, count)),
        }
        Ok(())
    }

    /// Basic elements in the first `bytes` bytes of one copy; `None` when they end inside one.
    pub(crate) fn elements_in(&self, mut bytes: u64) -> Option<u64> {
        let mut elements = 0;
        for (unit, count) in &self.items {
            let whole = (bytes / unit.size()).min(*count);
            elements += whole * unit.elements();
            bytes -= whole * unit.size();
            if bytes == 0 {
                return Some(elements);
            }
            if whole < *count {
                return match unit {
                    Unit::Basic(_) => None,
                    Unit::Nested(s) => s.elements_in(bytes).map(|n| elements + n),
                };
            }
        }
        None
    }

    /// Calls `f` for each run of equal basic elements of `copies` copies, in stream order.
    pub(crate) fn for_each_run<E>(
        &self,
        copies: u64,
        f: &mut impl FnMut(Basic, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        if let [(Unit::Basic(b), n)] = &self.items[..] {
            return f(*b, n * copies);
        }
        for _ in 0..copies {
            for (unit, count) in &self.items {
                match unit {
                    Unit::Basic(b) => f(*b, *count)?,
                    Unit::Nested(s) => s.for_each_run(*count, f)?,
                }
            }
        }
        Ok(())
    }
}
