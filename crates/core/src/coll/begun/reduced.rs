//! Reduce, allreduce, reduce_scatter and scan, begun: who needs operands is sent them, and reduces
//! them when all are there.

use super::How;
use super::blocks::Piece;
use super::moved::others;
use super::plan::{Fold, Plan};
use crate::coll::Ints;
use crate::coll::data::Scratch;
use crate::coll::reduce::{Reduction, input, rooted_input};
use crate::coll::reduce_scatter::{Share, even_shares, shares_of};
use crate::consts::PROC_NULL;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

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
        if root == PROC_NULL && self.comms.get_ref(comm)?.is_inter() {
            // Type and operation are not significant there, and may not fit each other.
            let (c, tag) = self.start_collective(comm)?;
            // SAFETY: the caller's promise.
            return unsafe { self.planned(Plan::new(c, tag), comm, how) };
        }
        let (count, r) = self.reduction(count, dt, op, comm)?;
        if r.comm.is_inter() {
            let plan = self.reduce_across(r, sbuf, rbuf, count, root)?;
            // SAFETY: the caller's promise.
            return unsafe { self.planned(plan, comm, how) };
        }
        let root = r.comm.root(root)?;
        let own = rooted_input(self, &r, sbuf, rbuf, count, root)?;
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
        if r.comm.is_inter() {
            if operands != Operands::All {
                return Err(class::COMM);
            }
            let plan = self.allreduce_across(r, sbuf, rbuf, count, (0, count))?;
            // SAFETY: the caller's promise.
            return unsafe { self.planned(plan, comm, how) };
        }
        let source = input(self, &r, sbuf, rbuf, (count, count))?;
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
        let c = self.comms.get_ref(comm)?;
        let n = c.size();
        if c.is_inter() {
            // SAFETY: the caller's promise.
            return unsafe { self.reduce_scatter_across(how, sbuf, rbuf, rcounts, (dt, op), comm) };
        }
        // SAFETY: the caller's promise.
        unsafe {
            let (shares, total) = shares_of(rcounts, n)?;
            let of = |rank: u32| shares[rank as usize];
            self.shares_begun(how, sbuf, rbuf, (&of, total), (dt, op), comm)
        }
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
        let c = self.comms.get_ref(comm)?;
        let (each, total) = even_shares(rcount, c.size())?;
        if c.is_inter() {
            let kept = (u64::from(c.rank) * each, each);
            let (total, r) = self.reduction(total, dt, op, comm)?;
            let plan = self.allreduce_across(r, sbuf, rbuf, total, kept)?;
            // SAFETY: the caller's promise.
            return unsafe { self.planned(plan, comm, how) };
        }
        let of = |rank: u32| (u64::from(rank) * each, each);
        // SAFETY: the caller's promise.
        unsafe { self.shares_begun(how, sbuf, rbuf, (&of, total), (dt, op), comm) }
    }

    unsafe fn shares_begun(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        (of, total): (&dyn Fn(u32) -> Share, i64),
        (dt, op): (Handle, Handle),
        comm: Handle,
    ) -> Res<Handle> {
        let (total, r) = self.reduction(total, dt, op, comm)?;
        let source = input(self, &r, sbuf, rbuf, (total, of(r.comm.rank).1))?;
        // SAFETY: the caller's promise.
        unsafe { self.reduction_begun(how, r, source, rbuf, of, Operands::All, comm) }
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
        for to in others(&r.comm) {
            if operands.of(to, n).contains(&me) {
                plan.send(piece(source, of(to)), to);
            }
        }
        if let Some(operands) = plan.held().filter(|_| number > 0) {
            plan.fold(Fold { reduction: r, operands, number, count, kept: (0, count), target });
        }
        // SAFETY: the caller's promise.
        unsafe { self.planned(plan, handle, how) }
    }
}
