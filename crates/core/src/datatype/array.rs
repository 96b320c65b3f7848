//! Subarray and distributed array constructors (MPI 5.0 sections 5.1.3 and 5.1.4).
//!
//! Kept true: elements are listed in the order of the whole array in memory; the extent is that
//! of the whole array, also where a process has no element of it.

use super::TypeTable;
use super::contents::{Combiner, Made};
use super::layout::{Layout, LayoutBuilder};
use super::program::{add, mul};
use crate::error::{Res, class};
use crate::handle::Handle;

pub const ORDER_C: i32 = 0xC;
pub const ORDER_FORTRAN: i32 = 0xF;
pub const DISTRIBUTE_NONE: i32 = 16;
pub const DISTRIBUTE_BLOCK: i32 = 17;
pub const DISTRIBUTE_CYCLIC: i32 = 18;
pub const DISTRIBUTE_DFLT_DARG: i32 = 19;

/// Arguments of `MPI_Type_create_darray`.
#[derive(Clone, Copy, Debug)]
pub struct Darray<'a> {
    pub size: i32,
    pub rank: i32,
    pub gsizes: &'a [i64],
    pub distribs: &'a [i32],
    pub dargs: &'a [i32],
    pub psizes: &'a [i32],
    pub order: i32,
}

/// The indices of one dimension that are selected: from `start`, blocks of `block` indices every
/// `period`, of which `blocks` are whole, then `rest` more.
#[derive(Clone, Copy, Debug)]
struct Selection {
    start: i64,
    block: u64,
    period: i64,
    blocks: u64,
    rest: u64,
}

impl Selection {
    fn range(start: i64, len: u64) -> Selection {
        Selection { start, block: len, period: 0, blocks: 1, rest: 0 }
    }

    /// Selects from an array of `inner`, `stride` bytes from index to index.
    fn apply(&self, stride: i64, inner: &Layout) -> Res<Layout> {
        let mut block = LayoutBuilder::new();
        block.place(0, self.block, stride, inner)?;
        let block = block.finish()?;
        let period = mul(self.period, stride)?;
        let mut all = LayoutBuilder::new();
        all.place(mul(self.start, stride)?, self.blocks, period, &block)?;
        if self.rest != 0 {
            let whole = i64::try_from(self.blocks).map_err(|_| class::VALUE_TOO_LARGE)?;
            let at = add(self.start, mul(whole, self.period)?)?;
            all.place(mul(at, stride)?, self.rest, stride, inner)?;
        }
        all.finish()
    }
}

/// Builds the selected part of an array; dimensions are given in the caller's order.
fn select(order: i32, sizes: &[i64], parts: &[Selection], old: &Layout) -> Res<Layout> {
    let mut stride = old.extent();
    let mut layout = old.clone();
    let mut apply = |d: usize| {
        layout = parts[d].apply(stride, &layout)?;
        stride = mul(stride, sizes[d])?;
        Ok(())
    };
    match order {
        ORDER_FORTRAN => (0..sizes.len()).try_for_each(&mut apply)?,
        ORDER_C => (0..sizes.len()).rev().try_for_each(&mut apply)?,
        _ => return Err(class::ARG),
    }
    layout.resized(0, stride)
}

fn widen(values: &[i32]) -> Vec<i64> {
    values.iter().map(|v| i64::from(*v)).collect()
}

/// The block size of a dimension: the argument, or the default.
fn block_size(darg: i32, default: i64) -> Res<i64> {
    match darg {
        DISTRIBUTE_DFLT_DARG => Ok(default),
        n if n > 0 => Ok(i64::from(n)),
        _ => Err(class::ARG),
    }
}

/// What process `coord` of `procs` has of a dimension of `gsize` indices.
fn distribute(gsize: i64, distrib: i32, darg: i32, procs: i64, coord: i64) -> Res<Selection> {
    match distrib {
        DISTRIBUTE_NONE if procs == 1 => Ok(Selection::range(0, gsize as u64)),
        DISTRIBUTE_BLOCK => {
            let block = block_size(darg, (gsize - 1) / procs + 1)?;
            if block.checked_mul(procs).is_some_and(|n| n < gsize) {
                return Err(class::ARG);
            }
            let start = block.saturating_mul(coord).min(gsize);
            Ok(Selection::range(start, (gsize - start).min(block) as u64))
        }
        DISTRIBUTE_CYCLIC => {
            let block = block_size(darg, 1)?;
            let period = mul(block, procs)?;
            let start = mul(block, coord)?.min(gsize);
            let mine = gsize - start;
            let blocks = (mine / period) as u64;
            let rest = (mine % period).min(block) as u64;
            Ok(Selection { start, block: block as u64, period, blocks, rest })
        }
        _ => Err(class::ARG),
    }
}

impl TypeTable {
    pub fn subarray(
        &mut self,
        sizes: &[i64],
        subsizes: &[i64],
        starts: &[i64],
        order: i32,
        old: Handle,
    ) -> Res<Handle> {
        let old = self.get(old)?;
        let dims = sizes.len();
        if dims == 0 || subsizes.len() != dims || starts.len() != dims {
            return Err(class::ARG);
        }
        let mut parts = Vec::with_capacity(dims);
        for ((size, sub), start) in sizes.iter().zip(subsizes).zip(starts) {
            let inside = *size >= 1 && *sub >= 1 && *start >= 0 && *sub <= *size;
            if !inside || *start > *size - *sub {
                return Err(class::ARG);
            }
            parts.push(Selection::range(*start, *sub as u64));
        }
        let layout = select(order, sizes, &parts, &old.layout)?;
        let made = Made::of(Combiner::Subarray, &old)
            .ints(&[dims as i64])
            .counts(sizes)
            .counts(subsizes)
            .counts(starts)
            .ints(&[i64::from(order)]);
        self.add(layout, made)
    }

    pub fn darray(&mut self, args: Darray<'_>, old: Handle) -> Res<Handle> {
        let old = self.get(old)?;
        let dims = args.gsizes.len();
        let lens = [args.distribs.len(), args.dargs.len(), args.psizes.len()];
        if dims == 0 || lens != [dims; 3] || args.rank < 0 || args.rank >= args.size {
            return Err(class::ARG);
        }
        if args.psizes.iter().any(|p| *p < 1) || args.gsizes.iter().any(|g| *g < 1) {
            return Err(class::ARG);
        }
        let grid = args.psizes.iter().try_fold(1i64, |n, p| n.checked_mul(i64::from(*p)));
        if grid != Some(i64::from(args.size)) {
            return Err(class::ARG);
        }
        // Processes are numbered along the last dimension first, whatever the order.
        let mut rank = i64::from(args.rank);
        let mut parts = vec![Selection::range(0, 0); dims];
        for d in (0..dims).rev() {
            let procs = i64::from(args.psizes[d]);
            let coord = rank % procs;
            rank /= procs;
            let (distrib, darg) = (args.distribs[d], args.dargs[d]);
            parts[d] = distribute(args.gsizes[d], distrib, darg, procs, coord)?;
        }
        let layout = select(args.order, args.gsizes, &parts, &old.layout)?;
        let head = [i64::from(args.size), i64::from(args.rank), dims as i64];
        let made = Made::of(Combiner::Darray, &old)
            .ints(&head)
            .counts(args.gsizes)
            .ints(&widen(args.distribs))
            .ints(&widen(args.dargs))
            .ints(&widen(args.psizes))
            .ints(&[i64::from(args.order)]);
        self.add(layout, made)
    }
}
