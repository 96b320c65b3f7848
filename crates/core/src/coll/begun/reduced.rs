//! Reduce, allreduce, reduce_scatter and scan, begun: who needs operands is sent them, and reduces
//! them when all are there.

use super::How;
use super::blocks::Piece;
use super::plan::{Fold, Plan};
use crate::coll::Ints;
use crate::coll::data::{Scratch, check_alias, check_buffer, check_count, is_in_place};
use crate::coll::reduce::{Reduction, input};
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// Elements of the input: first and number.
type Share = (u64, u64);

/// Which ranks send a rank their operands, besides itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    Of(u32),
    All,
    Below,
    BelowAndOwn,
}

impl Operands {
    /// The ranks whose operands `rank` of `n` reduces.
    fn of(self, rank: u32, n: u32) -> std::ops::Range<u32> {
        match self {
            Operands::Of(root) if root != rank => 0..0,
            Operands::Of(_) | Operands::All => 0..n,
            Operands::Below => 0..rank,
            Operands::BelowAndOwn => 0..rank + 1,
        }
    }
}

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// # Safety
    /// The buffers hold until the request is complete, and are valid for the type.
    pub unsafe fn reduce_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
        root: i32,
        comm: Handle,
    ) -> Res<Handle> {
        let (count, r) = self.reduction(count, dt, op, comm)?;
        let root = r.comm.root(root)?;
        let mut own = sbuf.cast_mut();
        if r.comm.rank == root {
            check_buffer(rbuf, count, &r.dt)?;
        }
        if r.comm.rank == root && is_in_place(sbuf) {
            own = rbuf;
        } else {
            check_buffer(sbuf, count, &r.dt)?;
            if r.comm.rank == root {
                check_alias(sbuf, rbuf, count * r.dt.size)?;
            }
        }
        // SAFETY: the caller's promise.
        unsafe {
            self.reduction_begun(how, r, own, rbuf, &|_| (0, count), Operands::Of(root), comm)
        }
    }

    /// # Safety
    /// As for `reduce_begun`.
    pub unsafe fn allreduce_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<Handle> {
        // SAFETY: the caller's promise.
        unsafe { self.each_begun(how, sbuf, rbuf, count, (dt, op), comm, Operands::All) }
    }

    /// # Safety
    /// As for `reduce_begun`.
    pub unsafe fn scan_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<Handle> {
        // SAFETY: the caller's promise.
        unsafe { self.each_begun(how, sbuf, rbuf, count, (dt, op), comm, Operands::BelowAndOwn) }
    }

    /// Rank 0's receive buffer stays as it is.
    ///
    /// # Safety
    /// As for `reduce_begun`.
    pub unsafe fn exscan_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<Handle> {
        // SAFETY: the caller's promise.
        unsafe { self.each_begun(how, sbuf, rbuf, count, (dt, op), comm, Operands::Below) }
    }

    unsafe fn each_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: i64,
        (dt, op): (Handle, Handle),
        comm: Handle,
        operands: Operands,
    ) -> Res<Handle> {
        let (count, r) = self.reduction(count, dt, op, comm)?;
        let source = input(&r, sbuf, rbuf, (count, count))?;
        // SAFETY: the caller's promise.
        unsafe { self.reduction_begun(how, r, source, rbuf, &|_| (0, count), operands, comm) }
    }

    /// # Safety
    /// As for `reduce_begun`; `rcounts` has an entry for each rank.
    pub unsafe fn reduce_scatter_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        rcounts: Ints,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<Handle> {
        let n = self.comms.get_ref(comm)?.size();
        // SAFETY: the caller's promise.
        let counts: Vec<i64> = unsafe {
            rcounts.check_counts(n)?;
            (0..n).map(|rank| rcounts.at(rank)).collect()
        };
        // SAFETY: the caller's promise.
        unsafe { self.shares_begun(how, sbuf, rbuf, &counts, (dt, op), comm) }
    }

    /// # Safety
    /// As for `reduce_begun`.
    pub unsafe fn reduce_scatter_block_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        rcount: i64,
        dt: Handle,
        op: Handle,
        comm: Handle,
    ) -> Res<Handle> {
        check_count(rcount)?;
        let counts = vec![rcount; self.comms.get_ref(comm)?.size() as usize];
        // SAFETY: the caller's promise.
        unsafe { self.shares_begun(how, sbuf, rbuf, &counts, (dt, op), comm) }
    }

    unsafe fn shares_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        counts: &[i64],
        (dt, op): (Handle, Handle),
        comm: Handle,
    ) -> Res<Handle> {
        let mut shares: Vec<Share> = Vec::with_capacity(counts.len());
        let mut total = 0i64;
        for count in counts {
            shares.push((total as u64, *count as u64));
            total = total.checked_add(*count).ok_or(class::COUNT)?;
        }
        let (total, r) = self.reduction(total, dt, op, comm)?;
        let own = shares[r.comm.rank as usize].1;
        let source = input(&r, sbuf, rbuf, (total, own))?;
        let of = |rank: u32| shares[rank as usize];
        // SAFETY: the caller's promise.
        unsafe { self.reduction_begun(how, r, source, rbuf, &of, Operands::All, comm) }
    }

    /// `source` holds for each rank what that one reduces of this rank's operands; `target` gets
    /// the own result.
    unsafe fn reduction_begun(
        &mut self,
        how: How,
        r: Reduction,
        source: *mut u8,
        target: *mut u8,
        of: &dyn Fn(u32) -> Share,
        operands: Operands,
        handle: Handle,
    ) -> Res<Handle> {
        let (n, me) = (r.comm.size(), r.comm.rank);
        let mut plan = Plan::new(r.comm.clone(), r.tag);
        let count = of(me).1;
        let piece = |base: *mut u8, share: Share| {
            let part = r.part(base, share);
            Piece { ptr: part.ptr, count: part.count, dt: r.dt.clone() }
        };
        let needed = operands.of(me, n);
        let number = needed.len() as u64;
        if number > 0 && count * r.dt.size > 0 {
            let all = count.checked_mul(number).ok_or(class::NO_MEM)?;
            let base = plan.hold(Scratch::lasting(&r.dt, all)?);
            let slot = |rank: u32| piece(base, (u64::from(rank) * count, count));
            for rank in needed {
                match rank == me {
                    true => plan.copy(piece(source, of(me)), slot(me))?,
                    false => plan.receive(slot(rank), rank),
                }
            }
        }
        for to in (1..n).map(|k| (me + k) % n) {
            if operands.of(to, n).contains(&me) {
                plan.send(piece(source, of(to)), to);
            }
        }
        if let Some(operands) = plan.held().filter(|_| number > 0) {
            plan.fold(Fold { reduction: r, operands, number, count, target });
        }
        // SAFETY: the caller's promise.
        unsafe { self.planned(plan, handle, how) }
    }
}
