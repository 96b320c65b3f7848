//! Alltoall, alltoallv and alltoallw.

use std::rc::Rc;

use super::data::{
    Data, Scratch, check_alias, check_block, check_buffer, element, is_in_place, pack, unpack,
};
use super::exchange::ByRank;
use super::{Blocks, How, Layout};
use super::{FEW_RANKS, Ints, TypesOf};
use crate::comm::Comm;
use crate::datatype::Datatype;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// Blocks up to this size take the logarithmic route between many ranks.
pub(super) const SMALL_BLOCK_BYTES: u64 = 256;

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// # Safety
    /// The buffers are valid for the types, as MPI requires.
    pub unsafe fn alltoall(
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
                self.alltoall_begun(
                    How::Now,
                    Blocks { buf: sbuf, layout: Layout::Even(scount, sdt) },
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
                return self.replace_all(&comm, tag, &inn);
            }
            let (packets, sdt) = self.checked_type(scount, sdt)?;
            check_buffer(sbuf, packets, &sdt)?;
            let out = |rank: u32| {
                let index = i64::from(rank).wrapping_mul(scount);
                Data::new(element(sbuf.cast_mut(), index, &sdt), packets, &sdt)
            };
            check_aliases(comm.size(), &out, &inn)?;
            self.begin_collective(&comm, tag)?;
            // All ranks must choose alike: the size of a block is the same everywhere.
            let block = inn(0).bytes();
            let rounds = comm.size() > FEW_RANKS && comm.groups.get().is_none();
            if rounds && (1..=SMALL_BLOCK_BYTES).contains(&block) {
                self.alltoall_small(&comm, tag, &out, &inn)
            } else {
                self.pairwise(&comm, tag, &out, &inn, true)
            }
        }
    }

    /// Bruck: block `i` travels by the bits of its distance.
    unsafe fn alltoall_small(
        &mut self,
        comm: &Rc<Comm>,
        tag: i32,
        out: ByRank,
        inn: ByRank,
    ) -> Res<()> {
        let (n, me) = (comm.size(), comm.rank);
        let block = inn(0).bytes();
        if out(0).bytes() > block {
            return Err(class::TRUNCATE);
        }
        let byte = self.types.get(BYTE)?;
        let (total, half) = (u64::from(n) * block, u64::from(n / 2 + 1) * block);
        let mut all = Scratch::bytes(total)?;
        let (mut sending, mut arriving) = (Scratch::bytes(half)?, Scratch::bytes(half)?);
        all.zero();
        let len = block as usize;
        let (base, sending, arriving) = (all.ptr(), sending.ptr(), arriving.ptr());
        let at = |start: *mut u8, i: u32| start.wrapping_add(i as usize * len);
        // SAFETY: `all` holds `n` blocks; at most half of them, rounded up, travel in a round.
        unsafe {
            for i in 0..n {
                pack(out((me + i) % n), at(base, i));
            }
            let mut step = 1;
            while step < n {
                let travels = (0..n).filter(|i| i & step != 0);
                let mut moved = 0;
                for i in travels.clone() {
                    at(base, i).copy_to_nonoverlapping(at(sending, moved), len);
                    moved += 1;
                }
                let bytes = u64::from(moved) * block;
                let give = (Data::new(sending, bytes, &byte), (me + step) % n);
                let take = (Data::new(arriving, bytes, &byte), (me + n - step) % n);
                self.exchange(comm, tag, give, take)?;
                for (i, slot) in travels.zip(0..) {
                    at(arriving, slot).copy_to_nonoverlapping(at(base, i), len);
                }
                step <<= 1;
            }
            for i in 0..n {
                unpack(at(base, i), block, inn((me + n - i) % n))?;
            }
        }
        Ok(())
    }

    /// `MPI_IN_PLACE`: what `inn` holds is sent, then replaced.
    unsafe fn replace_all(&mut self, comm: &Rc<Comm>, tag: i32, inn: ByRank) -> Res<()> {
        let (n, me) = (comm.size(), comm.rank);
        let mut starts = Vec::with_capacity(n as usize);
        let mut total = 0u64;
        for rank in 0..n {
            starts.push(total as usize);
            if rank != me {
                total = total.checked_add(inn(rank).bytes()).ok_or(class::NO_MEM)?;
            }
        }
        let byte = self.types.get(BYTE)?;
        let mut temporary = Scratch::bytes(total)?;
        temporary.zero();
        let base = temporary.ptr();
        let at = |rank: u32| base.wrapping_add(starts[rank as usize]);
        // SAFETY: the temporary holds the packed blocks of all other ranks.
        unsafe {
            for rank in (0..n).filter(|&r| r != me) {
                pack(inn(rank), at(rank));
            }
            let out = |rank: u32| Data::new(at(rank), inn(rank).bytes(), &byte);
            self.pairwise(comm, tag, &out, inn, false)
        }
    }

    /// # Safety
    /// The buffers are valid for the types, as MPI requires; the arrays have an entry per rank.
    pub unsafe fn alltoallv(
        &mut self,
        sbuf: *const u8,
        scounts: Ints,
        sdispls: Ints,
        sdt: Handle,
        rbuf: *mut u8,
        rcounts: Ints,
        rdispls: Ints,
        rdt: Handle,
        comm: Handle,
    ) -> Res<()> {
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.alltoall_begun(
                    How::Now,
                    Blocks { buf: sbuf, layout: Layout::Varied(scounts, sdispls, sdt) },
                    Blocks { buf: rbuf, layout: Layout::Varied(rcounts, rdispls, rdt) },
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
        let n = comm.size();
        // SAFETY: the caller's promise.
        unsafe {
            rcounts.check_counts(n)?;
            rdispls.check_displs()?;
            let (_, rdt) = self.checked_type(0, rdt)?;
            let inn = |rank: u32| {
                let at = element(rbuf, rdispls.at(rank), &rdt);
                Data::new(at, rcounts.at(rank) as u64, &rdt)
            };
            check_all(rbuf, n, &inn)?;
            if is_in_place(sbuf) {
                self.begin_collective(&comm, tag)?;
                return self.replace_all(&comm, tag, &inn);
            }
            scounts.check_counts(n)?;
            sdispls.check_displs()?;
            let (_, sdt) = self.checked_type(0, sdt)?;
            let out = |rank: u32| {
                let at = element(sbuf.cast_mut(), sdispls.at(rank), &sdt);
                Data::new(at, scounts.at(rank) as u64, &sdt)
            };
            check_all(sbuf, n, &out)?;
            check_aliases(n, &out, &inn)?;
            self.begin_collective(&comm, tag)?;
            self.pairwise(&comm, tag, &out, &inn, true)
        }
    }

    /// Displacements in bytes.
    ///
    /// # Safety
    /// The buffers are valid for the types, as MPI requires; the arrays have an entry per rank.
    pub unsafe fn alltoallw(
        &mut self,
        sbuf: *const u8,
        scounts: Ints,
        sdispls: Ints,
        sdts: TypesOf,
        rbuf: *mut u8,
        rcounts: Ints,
        rdispls: Ints,
        rdts: TypesOf,
        comm: Handle,
    ) -> Res<()> {
        let (handle, (comm, tag)) = (comm, self.start_collective(comm)?);
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            let begun = unsafe {
                self.alltoall_begun(
                    How::Now,
                    Blocks { buf: sbuf, layout: Layout::Typed(scounts, sdispls, sdts) },
                    Blocks { buf: rbuf, layout: Layout::Typed(rcounts, rdispls, rdts) },
                    handle,
                )
            };
            return self.in_one_call(begun);
        }
        let n = comm.size();
        // SAFETY: the caller's promise.
        unsafe {
            let rdts = self.types_by_rank(rcounts, rdispls, rdts, n)?;
            let inn = |rank: u32| {
                let at = rbuf.wrapping_offset(rdispls.at(rank) as isize);
                Data::new(at, rcounts.at(rank) as u64, &rdts[rank as usize])
            };
            check_all(rbuf, n, &inn)?;
            if is_in_place(sbuf) {
                self.begin_collective(&comm, tag)?;
                return self.replace_all(&comm, tag, &inn);
            }
            let sdts = self.types_by_rank(scounts, sdispls, sdts, n)?;
            let out = |rank: u32| {
                let at = sbuf.cast_mut().wrapping_offset(sdispls.at(rank) as isize);
                Data::new(at, scounts.at(rank) as u64, &sdts[rank as usize])
            };
            check_all(sbuf, n, &out)?;
            check_aliases(n, &out, &inn)?;
            self.begin_collective(&comm, tag)?;
            self.pairwise(&comm, tag, &out, &inn, true)
        }
    }

    /// The types of one direction of alltoallw, after its arrays were checked.
    unsafe fn types_by_rank(
        &self,
        counts: Ints,
        displs: Ints,
        types: TypesOf,
        n: u32,
    ) -> Res<Vec<Rc<Datatype>>> {
        // SAFETY: the arrays have `n` entries by the caller's promise.
        unsafe { counts.check_counts(n)? };
        displs.check_displs()?;
        (0..n)
            .map(|rank| {
                // SAFETY: as above.
                let count = unsafe { counts.at(rank) };
                Ok(self.type_of_block(count, types(rank as usize))?.1)
            })
            .collect()
    }
}

fn check_all(buf: *const u8, n: u32, data: ByRank) -> Res<()> {
    for rank in 0..n {
        check_block(buf, data(rank))?;
    }
    Ok(())
}

fn check_aliases(n: u32, out: ByRank, inn: ByRank) -> Res<()> {
    (0..n).try_for_each(|rank| check_alias(out(rank), inn(rank)))
}
