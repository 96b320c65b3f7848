//! Allgather and allgatherv.

use std::rc::Rc;

use super::data::{
    Data, Scratch, check_alias, check_block, check_buffer, copy, element, is_in_place, pack, unpack,
};
use super::exchange::ByRank;
use super::{Block, Blocks, How, Layout};
use super::{FEW_RANKS, Ints};
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// Blocks up to this size take the logarithmic route between many ranks.
pub(super) const SMALL_BLOCK_BYTES: u64 = 1024;

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// # Safety
    /// The buffers are valid for the types, as MPI requires.
    pub unsafe fn allgather(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        rbuf: *mut u8,
        rcount: i64,
        rdt: Handle,
        comm: Handle,
    ) -> Res<()> {
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.allgather_begun(
                    How::Now,
                    Block { buf: sbuf, count: scount, dt: sdt },
                    Blocks { buf: rbuf, layout: Layout::Even(rcount, rdt) },
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
        let (count, dt) = self.checked_type(rcount, rdt)?;
        check_buffer(rbuf, count, &dt)?;
        let inn = |rank: u32| {
            let index = i64::from(rank).wrapping_mul(rcount);
            Data::new(element(rbuf, index, &dt), count, &dt)
        };
        // SAFETY: the caller's promise.
        unsafe {
            if is_in_place(sbuf) {
                self.begin_collective(&comm, tag)?;
                return self.share_blocks(&comm, tag, inn(comm.rank), &inn, false);
            }
            let (scount, sdt) = self.checked_type(scount, sdt)?;
            check_buffer(sbuf, scount, &sdt)?;
            let own = Data::source(sbuf, scount, &sdt);
            check_alias(own, inn(comm.rank))?;
            self.begin_collective(&comm, tag)?;
            self.share_blocks(&comm, tag, own, &inn, true)
        }
    }

    /// `inn(r)` are of one size.
    unsafe fn share_blocks(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        own: Data,
        inn: ByRank,
        copy_own: bool,
    ) -> Res<()> {
        // All ranks must choose alike: the size of a block is the same everywhere.
        let block = inn(comm.rank).bytes();
        // SAFETY: the caller's promise.
        unsafe {
            if let Some(groups) = comm.groups.get() {
                self.allgather_wide(comm, groups, tag, own, inn, copy_own)
            } else if comm.size() > FEW_RANKS && (1..=SMALL_BLOCK_BYTES).contains(&block) {
                self.share_small(comm, tag, own, inn, copy_own)
            } else {
                self.pairwise(comm, tag, &|_| own, inn, copy_own)
            }
        }
    }

    /// Bruck: what a rank has doubles in every round.
    unsafe fn share_small(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        own: Data,
        inn: ByRank,
        copy_own: bool,
    ) -> Res<()> {
        let (n, me) = (comm.size(), comm.rank);
        let block = inn(me).bytes();
        if own.bytes() > block {
            return Err(class::TRUNCATE);
        }
        let byte = self.types.get(BYTE)?;
        let mut temporary = Scratch::bytes(u64::from(n) * block)?;
        temporary.zero();
        let base = temporary.ptr();
        // SAFETY: the temporary holds `n` blocks; block `i` is that of rank `me + i`.
        unsafe {
            pack(own, base);
            self.bruck(comm, tag, &byte, base, block)?;
            for i in u32::from(!copy_own)..n {
                let at = base.wrapping_add((u64::from(i) * block) as usize);
                unpack(at, block, inn((me + i) % n))?;
            }
        }
        Ok(())
    }

    /// Fills `base`, whose first block is this rank's own, with the blocks of the ranks after it.
    unsafe fn bruck(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        byte: &Rc<Datatype>,
        base: *mut u8,
        block: u64,
    ) -> Res<()> {
        let (n, me) = (comm.size(), comm.rank);
        let mut have = 1;
        while have < n {
            let bytes = u64::from(have.min(n - have)) * block;
            let end = base.wrapping_add((u64::from(have) * block) as usize);
            let out = (Data::new(base, bytes, byte), (me + n - have) % n);
            let inn = (Data::new(end, bytes, byte), (me + have) % n);
            // SAFETY: the blocks sent and received lie in the caller's `n` blocks, apart.
            unsafe { self.exchange(comm, tag, out, inn)? };
            have *= 2;
        }
        Ok(())
    }

    /// `len` bytes of every rank, in rank order, at `to` (for the library's own use).
    ///
    /// # Safety
    /// `own` has `len` readable bytes, `to` that many writable ones per rank.
    pub(crate) unsafe fn allgather_bytes(
        &mut self,
        comm: &Rc<Comm>,
        byte: &Rc<Datatype>,
        own: *const u8,
        to: *mut u8,
        len: usize,
    ) -> Res<()> {
        let tag = comm.next_tag();
        let own = Data::source(own, len as u64, byte);
        let inn = |rank: u32| Data::new(to.wrapping_add(rank as usize * len), len as u64, byte);
        // SAFETY: the caller's promise.
        unsafe { self.share_blocks(comm, tag, own, &inn, true) }
    }

    /// # Safety
    /// The buffers are valid for the types, as MPI requires; the arrays have an entry per rank.
    pub unsafe fn allgatherv(
        &mut self,
        sbuf: *const u8,
        scount: i64,
        sdt: Handle,
        rbuf: *mut u8,
        rcounts: Ints,
        displs: Ints,
        rdt: Handle,
        comm: Handle,
    ) -> Res<()> {
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.allgather_begun(
                    How::Now,
                    Block { buf: sbuf, count: scount, dt: sdt },
                    Blocks { buf: rbuf, layout: Layout::Varied(rcounts, displs, rdt) },
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
        // SAFETY: the caller's promise.
        unsafe {
            rcounts.check_counts(comm.size())?;
            displs.check_displs()?;
            let (_, dt) = self.checked_type(0, rdt)?;
            let inn = |rank: u32| {
                Data::new(element(rbuf, displs.at(rank), &dt), rcounts.at(rank) as u64, &dt)
            };
            for rank in 0..comm.size() {
                check_block(rbuf, inn(rank))?;
            }
            let own = inn(comm.rank);
            if is_in_place(sbuf) {
                self.begin_collective(&comm, tag)?;
                if let Some(groups) = comm.groups.get() {
                    return self.allgather_wide(&comm, groups, tag, own, &inn, false);
                }
                return self.pairwise(&comm, tag, &|_| own, &inn, false);
            }
            let (scount, sdt) = self.checked_type(scount, sdt)?;
            check_buffer(sbuf, scount, &sdt)?;
            let source = Data::source(sbuf, scount, &sdt);
            check_alias(source, own)?;
            self.begin_collective(&comm, tag)?;
            if let Some(groups) = comm.groups.get() {
                return self.allgather_wide(&comm, groups, tag, source, &inn, true);
            }
            let copied = copy(source, own);
            copied.and(self.pairwise(&comm, tag, &|_| source, &inn, false))
        }
    }
}
