//! Datatype constructors but those of arrays and of Fortran kinds.
//!
//! Kept true: arguments are checked before anything is made; counts and displacements are 64 bits
//! wide, so the small and the large count procedures share this code.

use std::rc::Rc;

use super::basic::Basic;
use super::contents::{Combiner, Made};
use super::layout::{Bounds, Layout, LayoutBuilder, blocks, index_disp};
use super::{Datatype, TypeTable};
use crate::error::{Res, class};
use crate::handle::Handle;

/// A non-negative count or block length.
pub(super) fn count(n: i64) -> Res<u64> {
    u64::try_from(n).map_err(|_| class::COUNT)
}

fn block_length(n: i64) -> Res<u64> {
    u64::try_from(n).map_err(|_| class::ARG)
}

/// A type without what wraps it and changes nothing.
fn bare(mut of: &Rc<Datatype>) -> &Rc<Datatype> {
    while let Some(old) = of.made.same() {
        of = old;
    }
    of
}

/// Width of a predefined integer.
fn integer_bytes(of: &Datatype) -> Option<u64> {
    use Basic::*;
    let basic =
        of.uniform().filter(|basic| of.predefined().is_some() && basic.size() == of.size)?;
    let is_integer =
        matches!(basic, I8 | U8 | I16 | U16 | I32 | U32 | I64 | U64 | Long | ULong | WChar);
    is_integer.then_some(of.size)
}

/// Whether MPICH takes two types for one: integers of one width are.
fn is_one(one: &Rc<Datatype>, other: &Rc<Datatype>) -> bool {
    let (one, other) = (bare(one), bare(other));
    let bytes = integer_bytes(one);
    Rc::ptr_eq(one, other) || (bytes.is_some() && bytes == integer_bytes(other))
}

/// Places blocks of `old`; `disp` gives each block's byte displacement.
fn place_blocks(
    old: &Datatype,
    lens: impl Iterator<Item = i64>,
    disps: &[i64],
    disp: impl Fn(i64) -> Res<i64>,
) -> Res<Layout> {
    let layout = &old.layout;
    let mut new = LayoutBuilder::new();
    for (len, d) in lens.zip(disps) {
        new.place(disp(*d)?, block_length(len)?, layout.extent(), layout)?;
    }
    new.finish()
}

fn same_length(a: &[i64], b: &[i64]) -> Res<()> {
    if a.len() == b.len() { Ok(()) } else { Err(class::ARG) }
}

impl TypeTable {
    pub fn contiguous(&mut self, n: i64, old: Handle) -> Res<Handle> {
        let old = self.get(old)?;
        let mut new = LayoutBuilder::new();
        new.place(0, count(n)?, old.extent, &old.layout)?;
        let made = Made::of(Combiner::Contiguous, &old).counts(&[n]);
        self.add(new.finish()?, made)
    }

    pub fn vector(&mut self, n: i64, block: i64, stride: i64, old: Handle) -> Res<Handle> {
        let old = self.get(old)?;
        let bytes = index_disp(stride, &old.layout)?;
        let layout = blocks(count(n)?, block_length(block)?, bytes, &old.layout)?;
        let made = Made::of(Combiner::Vector, &old).counts(&[n, block, stride]);
        self.add(layout, made)
    }

    pub fn hvector(&mut self, n: i64, block: i64, stride: i64, old: Handle) -> Res<Handle> {
        let old = self.get(old)?;
        let layout = blocks(count(n)?, block_length(block)?, stride, &old.layout)?;
        let made = Made::of(Combiner::Hvector, &old).counts(&[n, block]).addrs(&[stride]);
        self.add(layout, made)
    }

    pub fn indexed(&mut self, lens: &[i64], disps: &[i64], old: Handle) -> Res<Handle> {
        same_length(lens, disps)?;
        let old = self.get(old)?;
        let place = |d| index_disp(d, &old.layout);
        let layout = place_blocks(&old, lens.iter().copied(), disps, place)?;
        let made = Made::of(Combiner::Indexed, &old).counts(&[lens.len() as i64]);
        self.add(layout, made.counts(lens).counts(disps))
    }

    pub fn hindexed(&mut self, lens: &[i64], disps: &[i64], old: Handle) -> Res<Handle> {
        same_length(lens, disps)?;
        let old = self.get(old)?;
        let layout = place_blocks(&old, lens.iter().copied(), disps, Ok)?;
        let made = Made::of(Combiner::Hindexed, &old).counts(&[lens.len() as i64]);
        self.add(layout, made.counts(lens).addrs(disps))
    }

    pub fn indexed_block(&mut self, block: i64, disps: &[i64], old: Handle) -> Res<Handle> {
        let old = self.get(old)?;
        block_length(block)?;
        let lens = std::iter::repeat(block);
        let layout = place_blocks(&old, lens, disps, |d| index_disp(d, &old.layout))?;
        let made = Made::of(Combiner::IndexedBlock, &old).counts(&[disps.len() as i64, block]);
        self.add(layout, made.counts(disps))
    }

    pub fn hindexed_block(&mut self, block: i64, disps: &[i64], old: Handle) -> Res<Handle> {
        let old = self.get(old)?;
        block_length(block)?;
        let layout = place_blocks(&old, std::iter::repeat(block), disps, Ok)?;
        let made = Made::of(Combiner::HindexedBlock, &old).counts(&[disps.len() as i64, block]);
        self.add(layout, made.addrs(disps))
    }

    /// `MPI_Type_create_struct`.
    pub fn structure(&mut self, lens: &[i64], disps: &[i64], types: &[Handle]) -> Res<Handle> {
        same_length(lens, disps)?;
        if types.len() != lens.len() {
            return Err(class::ARG);
        }
        let olds = types.iter().map(|h| self.get(*h)).collect::<Res<Vec<Rc<Datatype>>>>()?;
        let mut new = LayoutBuilder::new();
        for ((len, disp), old) in lens.iter().zip(disps).zip(&olds) {
            new.place(*disp, block_length(*len)?, old.extent, &old.layout)?;
        }
        let one_type = olds.iter().all(|old| is_one(old, &olds[0]));
        let layout = match self.rule {
            Bounds::Mpich if one_type => new.finish()?,
            _ => new.finish_padded()?,
        };
        let made = Made::new(Combiner::Struct, olds).counts(&[lens.len() as i64]);
        self.add(layout, made.counts(lens).addrs(disps))
    }

    pub fn resized(&mut self, old: Handle, lb: i64, extent: i64) -> Res<Handle> {
        let old = self.get(old)?;
        let layout = old.layout.resized(lb, extent)?;
        self.add(layout, Made::of(Combiner::Resized, &old).addrs(&[lb, extent]))
    }
}
