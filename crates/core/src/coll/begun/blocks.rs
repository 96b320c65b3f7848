//! Buffers as the program describes them: one block, or one for each rank or neighbour.

use std::rc::Rc;

use super::super::data::{Data, check_block, check_buffer, element, is_in_place};
use super::super::{Ints, TypesOf};
use crate::datatype::Datatype;
use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;

/// `count` elements at `buf`.
#[derive(Clone, Copy)]
pub struct Block {
    pub buf: *const u8,
    pub count: i64,
    pub dt: Handle,
}

/// Where each block lies, and what it is.
#[derive(Clone, Copy)]
pub enum Layout<'a> {
    /// One after the other, so many elements each.
    Even(i64, Handle),
    /// Counts and displacements, in elements.
    Varied(Ints, Ints, Handle),
    /// Counts and displacements, in bytes.
    Typed(Ints, Ints, TypesOf<'a>),
}

/// A block for each.
#[derive(Clone, Copy)]
pub struct Blocks<'a> {
    pub buf: *const u8,
    pub layout: Layout<'a>,
}

/// A checked block, with the type that it holds on to.
#[derive(Clone)]
pub(super) struct Piece {
    pub ptr: *mut u8,
    pub count: u64,
    pub dt: Rc<Datatype>,
}

impl Piece {
    pub(super) fn data(&self) -> Data<'_> {
        Data::new(self.ptr, self.count, &self.dt)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.data().bytes()
    }
}

impl Blocks<'_> {
    pub(super) fn is_in_place(&self) -> bool {
        is_in_place(self.buf)
    }
}

impl Machine {
    pub(super) fn piece(&self, block: Block) -> Res<Piece> {
        let (count, dt) = self.checked_type(block.count, block.dt)?;
        check_buffer(block.buf, count, &dt)?;
        Ok(Piece { ptr: block.buf.cast_mut(), count, dt })
    }

    /// # Safety
    /// Arrays that are not null have `n` entries.
    pub(super) unsafe fn pieces(&self, blocks: Blocks, n: u32) -> Res<Vec<Piece>> {
        let base = blocks.buf.cast_mut();
        // SAFETY: the caller's promise.
        let list: Res<Vec<Piece>> = unsafe {
            match blocks.layout {
                Layout::Even(each, dt) => {
                    let (count, dt) = self.checked_type(each, dt)?;
                    let at = |i: u32| element(base, i64::from(i).wrapping_mul(each), &dt);
                    Ok((0..n).map(|i| Piece { ptr: at(i), count, dt: dt.clone() }).collect())
                }
                Layout::Varied(counts, displs, dt) if n > 0 => {
                    counts.check_counts(n)?;
                    displs.check_displs()?;
                    let (_, dt) = self.checked_type(0, dt)?;
                    let piece = |i| {
                        let (ptr, count) = (element(base, displs.at(i), &dt), counts.at(i) as u64);
                        Piece { ptr, count, dt: dt.clone() }
                    };
                    Ok((0..n).map(piece).collect())
                }
                Layout::Typed(counts, displs, types) if n > 0 => {
                    counts.check_counts(n)?;
                    displs.check_displs()?;
                    let piece = |i| {
                        let (count, dt) = self.type_of_block(counts.at(i), types(i as usize))?;
                        Ok(Piece { ptr: base.wrapping_offset(displs.at(i) as isize), count, dt })
                    };
                    (0..n).map(piece).collect()
                }
                _ => Ok(Vec::new()),
            }
        };
        let list = list?;
        for piece in &list {
            check_block(blocks.buf, piece.data())?;
        }
        Ok(list)
    }
}
