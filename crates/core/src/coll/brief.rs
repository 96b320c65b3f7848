//! Reductions of little data between few ranks: one exchange, and everybody computes by itself.
//!
//! Kept true: what is computed is the very expression that the tree, or the recursive doubling, of
//! larger data computes, so all ranks get the same bits, and those do not hang on how much data
//! there is (in one cluster), on where ranks are, or on who was restored. Only operations of MPI's
//! own: the program's are called as often as the routes in rounds call them.

use super::FEW_RANKS;
use super::data::{Scratch, copy};
use super::reduce::Reduction;
use crate::error::Res;
use crate::machine::Machine;

/// Most bytes of a rank: what goes in one packet to another node.
pub(super) const BRIEF_BYTES: u64 = 1024;

/// Whether all ranks send each other all of it: so decide all of them, as they know the same.
pub(super) fn is_brief(r: &Reduction, count: u64) -> bool {
    // Such operations take predefined types only, so operands side by side do not overlap.
    let own = r.op.builtin().is_some();
    own && (3..=FEW_RANKS).contains(&r.comm.size()) && count * r.dt.size <= BRIEF_BYTES
}

/// Everybody's operands, by rank.
struct Operands {
    room: Scratch,
    at: [*mut u8; FEW_RANKS as usize],
}

impl Operands {
    /// Room for them; `own` is in its place.
    unsafe fn of(r: &Reduction, own: *mut u8, count: u64) -> Res<Operands> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        let room = Scratch::typed(&r.dt, count * u64::from(n))?;
        let mut all = Operands { room, at: [std::ptr::null_mut(); FEW_RANKS as usize] };
        // SAFETY: `own` holds `count` elements by the caller's promise; so does each part.
        unsafe {
            copy(r.data(own, count), r.part(all.room.ptr(), (u64::from(me) * count, count)))?
        };
        Ok(all)
    }

    /// Where each is: from here on the operands are not moved.
    fn place(&mut self, r: &Reduction, count: u64) {
        let base = self.room.ptr();
        for (rank, at) in (0..u64::from(r.comm.size())).zip(&mut self.at) {
            *at = r.part(base, (rank * count, count)).ptr;
        }
    }
}

impl Machine {
    /// `list[0] op list[1] op ...`, neighbours first; returns where it is. One operand at least.
    pub(super) unsafe fn balanced(
        &mut self,
        r: &Reduction,
        list: &mut [*mut u8],
        count: u64,
    ) -> Res<*mut u8> {
        let mut step = 1;
        while step < list.len() {
            for low in (0..list.len() - step).step_by(2 * step) {
                let high = list[low + step];
                // SAFETY: operands hold `count` elements each, apart from each other.
                unsafe { self.combine(r, list[low], high, count)? };
                list[low] = high;
            }
            step *= 2;
        }
        Ok(list[0])
    }

    /// As `allreduce_doubling`: of the ranks beyond a power of two, neighbours first become one.
    pub(super) unsafe fn allreduce_at_once(
        &mut self,
        r: &Reduction,
        own: *mut u8,
        rbuf: *mut u8,
        count: u64,
    ) -> Res<()> {
        // SAFETY: the caller's promise for both buffers, ours for the operands.
        unsafe {
            let mut all = Operands::of(r, own, count)?;
            all.place(r, count);
            let at = all.at;
            let inn = |rank: u32| r.data(at[rank as usize], count);
            self.pairwise(&r.comm, r.tag, &|_| r.data(own, count), &inn, false)?;
            let n = r.comm.size() as usize;
            let power = 1 << n.ilog2();
            let extra = n - power;
            let mut acting = [std::ptr::null_mut(); FEW_RANKS as usize];
            for (i, slot) in acting[..power].iter_mut().enumerate() {
                if i < extra {
                    *slot = at[2 * i + 1];
                    self.combine(r, at[2 * i], *slot, count)?;
                } else {
                    *slot = at[i + extra];
                }
            }
            let result = self.balanced(r, &mut acting[..power], count)?;
            copy(r.data(result, count), r.data(rbuf, count))
        }
    }

    /// As `reduce_tree`.
    pub(super) unsafe fn reduce_at_once(
        &mut self,
        r: &Reduction,
        own: *mut u8,
        rbuf: *mut u8,
        count: u64,
        root: u32,
    ) -> Res<()> {
        // SAFETY: as above; `rbuf` is there at the root.
        unsafe {
            if r.comm.rank != root {
                return self.send_to(&r.comm, r.tag, r.data(own, count), root);
            }
            let mut all = Operands::of(r, own, count)?;
            all.place(r, count);
            let mut at = all.at;
            let inn = |rank: u32| r.data(at[rank as usize], count);
            self.collect(&r.comm, r.tag, &inn)?;
            let list = &mut at[..r.comm.size() as usize];
            if r.op.is_commutative() {
                list.rotate_left(root as usize);
            }
            let result = self.balanced(r, list, count)?;
            copy(r.data(result, count), r.data(rbuf, count))
        }
    }

    /// As `prefix`; a rank hears from those below only.
    pub(super) unsafe fn prefix_at_once(
        &mut self,
        r: &Reduction,
        source: *mut u8,
        rbuf: *mut u8,
        count: u64,
        mut started: bool,
    ) -> Res<()> {
        let me = r.comm.rank;
        // SAFETY: as above.
        unsafe {
            let mut all = Operands::of(r, source, count)?;
            all.place(r, count);
            let at = all.at;
            let below = |rank: u32| r.data(at[rank as usize], if rank < me { count } else { 0 });
            let own = r.data(at[me as usize], count);
            let above = |rank: u32| r.data(own.ptr, if rank > me { count } else { 0 });
            self.pairwise(&r.comm, r.tag, &above, &below, false)?;
            for step in (0..me.checked_ilog2().map_or(0, |l| l + 1)).map(|bit| 1u32 << bit) {
                if me & step == 0 {
                    continue;
                }
                let first = (me & !(2 * step - 1)) as usize;
                let mut list = at;
                let block = self.balanced(r, &mut list[first..first + step as usize], count)?;
                if started {
                    self.combine(r, block, rbuf, count)?;
                } else {
                    copy(r.data(block, count), r.data(rbuf, count))?;
                    started = true;
                }
            }
        }
        Ok(())
    }
}
