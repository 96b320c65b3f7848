//! Large entries that are received right where they belong in a mirror, without a copy of their
//! own.
//!
//! Kept true: a header is checked, on memory of our own, before anything of its entry is written;
//! the payload then lies behind a stamp of 0, where no other entry can begin, and counts for
//! nothing until `placed` stores the stamp. Who receives asks for the place anew whenever somebody
//! else may have had the mirror meanwhile: a chunk that was given back is another stream's.

use super::{Checked, Mirror, Pool};
use crate::entry::{self, SLOT_BYTES};
use crate::segment::Segment;
use crate::walk::{self, Spot};

/// The header of a large entry, up to where its payload begins.
pub type Head = [u8; SLOT_BYTES as usize];

impl Mirror {
    /// Where the payload goes of the entry that begins at `have` with `head` and is a piece of
    /// `bytes` bytes by itself; `chain` as for `take`. `None`: it is not to be taken so. `take`
    /// finds out why.
    pub fn place(
        &self,
        seg: &Segment,
        pool: &mut Pool,
        chain: u64,
        head: &Head,
        bytes: u64,
    ) -> Option<*mut u8> {
        let (_, _, at) = self.find(seg, pool, chain, head, bytes)?;
        Some(at.wrapping_add(SLOT_BYTES as usize))
    }

    /// All of that entry is in its place: it is published. `sync` as for `take`. False: it was not
    /// to be taken.
    pub fn placed(
        &mut self,
        seg: &Segment,
        pool: &mut Pool,
        chain: u64,
        head: &Head,
        bytes: u64,
        sync: impl FnMut(u64),
    ) -> bool {
        let found = self.find(seg, pool, chain, head, bytes);
        let Some((seq, checked, at)) = found else { return false };
        // SAFETY: `at` is where the mirror ends, and the entry fits its chunk, as was just found.
        unsafe { self.publish(at, head, seq, checked, sync) };
        true
    }

    /// The entries before that one, what comes of it, and where it begins in memory.
    fn find(
        &self,
        seg: &Segment,
        pool: &mut Pool,
        chain: u64,
        head: &Head,
        bytes: u64,
    ) -> Option<(u64, Checked, *mut u8)> {
        let (seq, checked) = self.check_head(chain, head, bytes)?;
        if self.have.is_multiple_of(self.chunk) {
            self.enter(seg, pool, seq, chain).ok()?;
        }
        Some((seq, checked, self.tip(seg)?))
    }

    /// Whether `head` is that of a large entry that follows here. Entries before it, and what comes
    /// of it.
    fn check_head(&self, chain: u64, head: &Head, bytes: u64) -> Option<(u64, Checked)> {
        let offset = self.have % self.chunk;
        let (seq, own) = self.known.filter(|(_, own)| offset > 0 || *own == chain)?;
        let spot = Spot::sent(head.first_chunk()?, offset, self.chunk)?;
        let follows = seq.checked_add(1) == Some(spot.stamp);
        let alone = (spot.told, spot.size) == (bytes, bytes);
        let large = entry::payload_offset(spot.frag) == SLOT_BYTES;
        if !follows || !alone || !large {
            return None;
        }
        let sync = spot.wants_ack().then_some(0).into_iter().collect();
        let (chain, size) = (spot.chain(own), spot.size);
        Some((seq, Checked { seq: spot.stamp, chain, size, sync }))
    }

    /// Where the mirror ends in memory.
    pub(super) fn tip(&self, seg: &Segment) -> Option<*mut u8> {
        let index = walk::chunk_index(seg, self.src, self.dst, self.have / self.chunk)?;
        let offset = (self.have % self.chunk) as usize;
        Some(seg.chunk(self.src, index).as_ptr().wrapping_add(offset))
    }
}
