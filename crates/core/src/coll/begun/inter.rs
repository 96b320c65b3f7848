//! Collectives of inter-communicators (MPI 5.0 section 6.2.3): each rank deals with the ranks of
//! the remote group, and what is begun is complete when its own messages are.
//!
//! Who is not the root in the root's group has no part (`MPI_PROC_NULL`). A reduction of the remote
//! group's operands is done by who needs its result, in the order of their ranks.

use super::How;
use super::blocks::{Block, Blocks, Piece};
use super::plan::{Fold, Plan};
use crate::coll::Ints;
use crate::coll::data::{Scratch, check_buffer, is_in_place};
use crate::coll::reduce::Reduction;
use crate::coll::reduce_scatter::{Share, shares_of};
use crate::comm::Comm;
use crate::consts::{PROC_NULL, ROOT};
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// What a rank is in an operation with a root.
enum Part {
    /// It is the root: all of the remote group take part.
    Root,
    /// Its group has the root, and it is another.
    None,
    /// The root is this rank of the remote group.
    With(u32),
}

fn part_of(comm: &Comm, root: i32) -> Res<Part> {
    match root {
        ROOT => Ok(Part::Root),
        PROC_NULL => Ok(Part::None),
        _ => {
            let rank = u32::try_from(root).ok().filter(|r| *r < comm.peers().size());
            rank.map(Part::With).ok_or(class::ROOT)
        }
    }
}

fn no_in_place(bufs: &[*const u8]) -> Res<()> {
    if bufs.iter().any(|b| is_in_place(*b)) { Err(class::BUFFER) } else { Ok(()) }
}

#[allow(clippy::too_many_arguments)]
impl Machine {
    /// Completes what was begun in the same call.
    pub(crate) fn in_one_call(&mut self, begun: Res<Handle>) -> Res<()> {
        let mut req = begun?;
        self.wait(&mut req).map(drop)
    }

    /// Who is in it, all of the other group are.
    pub(super) fn barrier_across(&mut self, mut plan: Plan, comm: &Comm) -> Res<Plan> {
        let nothing = Piece { ptr: std::ptr::null_mut(), count: 0, dt: self.types.get(BYTE)? };
        (0..comm.peers().size()).for_each(|peer| plan.meet(&nothing, peer));
        Ok(plan)
    }

    pub(super) fn bcast_across(
        &mut self,
        mut plan: Plan,
        comm: &Comm,
        block: Block,
        root: i32,
    ) -> Res<Plan> {
        match part_of(comm, root)? {
            Part::None => {}
            Part::With(root) => plan.receive(self.piece(block)?, root),
            Part::Root => {
                let piece = self.piece(block)?;
                (0..comm.peers().size()).for_each(|to| plan.send(piece.clone(), to));
            }
        }
        Ok(plan)
    }

    /// # Safety
    /// At the root the arrays have an entry for each rank of the remote group.
    pub(super) unsafe fn gather_across(
        &mut self,
        mut plan: Plan,
        comm: &Comm,
        own: Block,
        blocks: Blocks,
        root: i32,
    ) -> Res<Plan> {
        match part_of(comm, root)? {
            Part::None => {}
            Part::With(root) => {
                no_in_place(&[own.buf])?;
                plan.send(self.piece(own)?, root);
            }
            Part::Root => {
                // SAFETY: the caller's promise.
                let pieces = unsafe { self.pieces(blocks, comm.peers().size())? };
                (0..).zip(pieces).for_each(|(from, piece)| plan.receive(piece, from));
            }
        }
        Ok(plan)
    }

    /// # Safety
    /// As for `gather_across`.
    pub(super) unsafe fn scatter_across(
        &mut self,
        mut plan: Plan,
        comm: &Comm,
        blocks: Blocks,
        own: Block,
        root: i32,
    ) -> Res<Plan> {
        match part_of(comm, root)? {
            Part::None => {}
            Part::With(root) => {
                no_in_place(&[own.buf])?;
                plan.receive(self.piece(own)?, root);
            }
            Part::Root => {
                // SAFETY: the caller's promise.
                let pieces = unsafe { self.pieces(blocks, comm.peers().size())? };
                (0..).zip(pieces).for_each(|(to, piece)| plan.send(piece, to));
            }
        }
        Ok(plan)
    }

    /// # Safety
    /// The arrays have an entry for each rank of the remote group.
    pub(super) unsafe fn allgather_across(
        &mut self,
        mut plan: Plan,
        comm: &Comm,
        own: Block,
        blocks: Blocks,
    ) -> Res<Plan> {
        no_in_place(&[own.buf])?;
        let own = self.piece(own)?;
        // SAFETY: the caller's promise.
        let pieces = unsafe { self.pieces(blocks, comm.peers().size())? };
        for (peer, piece) in (0..).zip(pieces) {
            plan.receive(piece, peer);
            plan.send(own.clone(), peer);
        }
        Ok(plan)
    }

    /// # Safety
    /// As for `allgather_across`.
    pub(super) unsafe fn alltoall_across(
        &mut self,
        mut plan: Plan,
        comm: &Comm,
        out: Blocks,
        inn: Blocks,
    ) -> Res<Plan> {
        no_in_place(&[out.buf])?;
        let n = comm.peers().size();
        // SAFETY: the caller's promise.
        let (out, inn) = unsafe { (self.pieces(out, n)?, self.pieces(inn, n)?) };
        for (peer, (out, inn)) in (0..).zip(out.into_iter().zip(inn)) {
            plan.receive(inn, peer);
            plan.send(out, peer);
        }
        Ok(plan)
    }

    pub(super) fn reduce_across(
        &mut self,
        r: Reduction,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: u64,
        root: i32,
    ) -> Res<Plan> {
        let mut plan = Plan::new(r.comm.clone(), r.tag);
        match part_of(&r.comm, root)? {
            Part::None => {}
            Part::With(root) => {
                no_in_place(&[sbuf])?;
                check_buffer(sbuf, count, &r.dt)?;
                plan.send(whole(&r, sbuf.cast_mut(), count), root);
            }
            Part::Root => {
                check_buffer(rbuf, count, &r.dt)?;
                operands_across(&mut plan, r, count, (0, count), rbuf)?;
            }
        }
        Ok(plan)
    }

    /// `kept`: which elements of the result are this rank's; `rbuf` gets them.
    pub(super) fn allreduce_across(
        &mut self,
        r: Reduction,
        sbuf: *const u8,
        rbuf: *mut u8,
        count: u64,
        kept: Share,
    ) -> Res<Plan> {
        no_in_place(&[sbuf, rbuf])?;
        check_buffer(sbuf, count, &r.dt)?;
        check_buffer(rbuf, kept.1, &r.dt)?;
        let mut plan = Plan::new(r.comm.clone(), r.tag);
        let own = whole(&r, sbuf.cast_mut(), count);
        (0..r.comm.peers().size()).for_each(|to| plan.send(own.clone(), to));
        operands_across(&mut plan, r, count, kept, rbuf)?;
        Ok(plan)
    }

    /// `MPI_Reduce_scatter`: the shares are of the local group; both groups have as much in all.
    ///
    /// # Safety
    /// The buffers hold until the request is complete; `rcounts` has an entry for each rank of the
    /// local group.
    pub(crate) unsafe fn reduce_scatter_across(
        &mut self,
        how: How,
        sbuf: *const u8,
        rbuf: *mut u8,
        rcounts: Ints,
        (dt, op): (Handle, Handle),
        handle: Handle,
    ) -> Res<Handle> {
        let (rank, n) = {
            let comm = self.comms.get_ref(handle)?;
            (comm.rank, comm.size())
        };
        // SAFETY: the caller's promise.
        unsafe {
            let (shares, total) = shares_of(rcounts, n)?;
            let (total, r) = self.reduction(total, dt, op, handle)?;
            let plan = self.allreduce_across(r, sbuf, rbuf, total, shares[rank as usize])?;
            self.planned(plan, handle, how)
        }
    }
}

fn whole(r: &Reduction, base: *mut u8, count: u64) -> Piece {
    Piece { ptr: r.part(base, (0, count)).ptr, count, dt: r.dt.clone() }
}

/// Receives the remote group's operands, of which `kept` is reduced into `target`.
fn operands_across(
    plan: &mut Plan,
    r: Reduction,
    count: u64,
    kept: Share,
    target: *mut u8,
) -> Res<()> {
    let number = u64::from(r.comm.peers().size());
    if number * count * r.dt.size == 0 {
        return Ok(());
    }
    let all = count.checked_mul(number).ok_or(class::NO_MEM)?;
    let operands = plan.hold(Scratch::lasting(&r.dt, all)?);
    for from in 0..r.comm.peers().size() {
        let part = r.part(operands, (u64::from(from) * count, count));
        plan.receive(Piece { ptr: part.ptr, count, dt: r.dt.clone() }, from);
    }
    plan.fold(Fold { reduction: r, operands, number, count, kept, target });
    Ok(())
}
