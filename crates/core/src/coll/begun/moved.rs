//! Barrier, broadcast, gather, scatter, allgather and alltoall, begun.

use super::How;
use super::blocks::{Block, Blocks, Piece};
use super::plan::Plan;
use crate::coll::data::{Scratch, check_alias, is_in_place};
use crate::comm::Comm;
use crate::datatype::predefined::BYTE;
use crate::error::{Res, class};
use crate::handle::Handle;
use crate::machine::Machine;

/// The other ranks, from the next one on: not all begin with the same.
pub(super) fn others(comm: &Comm) -> impl Iterator<Item = u32> + use<> {
    let (n, me) = (comm.size(), comm.rank);
    (1..n).map(move |k| (me + k) % n)
}

impl Machine {
    pub fn barrier_begun(&mut self, how: How, handle: Handle) -> Res<Handle> {
        let (comm, mut plan) = self.plan(handle)?;
        if comm.is_inter() {
            let plan = self.barrier_across(plan, &comm)?;
            // SAFETY: nothing is read or written, as the counts are 0.
            return unsafe { self.planned(plan, handle, how) };
        }
        let nothing = Piece { ptr: std::ptr::null_mut(), count: 0, dt: self.types.get(BYTE)? };
        others(&comm).for_each(|peer| plan.meet(&nothing, peer));
        // SAFETY: nothing is read or written, as the counts are 0.
        unsafe { self.planned(plan, handle, how) }
    }

    /// # Safety
    /// The buffer holds until the request is complete, and is valid for the type.
    pub unsafe fn bcast_begun(
        &mut self,
        how: How,
        block: Block,
        root: i32,
        handle: Handle,
    ) -> Res<Handle> {
        let (comm, mut plan) = self.plan(handle)?;
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            return unsafe {
                let plan = self.bcast_across(plan, &comm, block, root)?;
                self.planned(plan, handle, how)
            };
        }
        let root = comm.root(root)?;
        let piece = self.piece(block)?;
        if comm.rank == root {
            others(&comm).for_each(|to| plan.send(piece.clone(), to));
        } else {
            plan.receive(piece, root);
        }
        // SAFETY: the caller's promise.
        unsafe { self.planned(plan, handle, how) }
    }

    /// # Safety
    /// As for `bcast_begun`; at the root the arrays have an entry for each rank.
    pub unsafe fn gather_begun(
        &mut self,
        how: How,
        own: Block,
        blocks: Blocks,
        root: i32,
        handle: Handle,
    ) -> Res<Handle> {
        let (comm, mut plan) = self.plan(handle)?;
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            return unsafe {
                let plan = self.gather_across(plan, &comm, own, blocks, root)?;
                self.planned(plan, handle, how)
            };
        }
        let root = comm.root(root)?;
        // SAFETY: the caller's promise.
        unsafe {
            if comm.rank != root {
                plan.send(self.piece(own)?, root);
                return self.planned(plan, handle, how);
            }
            let pieces = self.pieces(blocks, comm.size())?;
            self.own_part(&mut plan, own, &pieces[root as usize])?;
            others(&comm).for_each(|from| plan.receive(pieces[from as usize].clone(), from));
            self.planned(plan, handle, how)
        }
    }

    /// What a rank puts into its own block; returns where it lies.
    fn own_part(&self, plan: &mut Plan, own: Block, to: &Piece) -> Res<Piece> {
        if is_in_place(own.buf) {
            return Ok(to.clone());
        }
        let own = self.piece(own)?;
        check_alias(own.data(), to.data())?;
        plan.copy(own.clone(), to.clone())?;
        Ok(own)
    }

    /// # Safety
    /// As for `gather_begun`.
    pub unsafe fn scatter_begun(
        &mut self,
        how: How,
        blocks: Blocks,
        own: Block,
        root: i32,
        handle: Handle,
    ) -> Res<Handle> {
        let (comm, mut plan) = self.plan(handle)?;
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            return unsafe {
                let plan = self.scatter_across(plan, &comm, blocks, own, root)?;
                self.planned(plan, handle, how)
            };
        }
        let root = comm.root(root)?;
        // SAFETY: the caller's promise.
        unsafe {
            if comm.rank != root {
                plan.receive(self.piece(own)?, root);
                return self.planned(plan, handle, how);
            }
            let pieces = self.pieces(blocks, comm.size())?;
            if !is_in_place(own.buf) {
                let (from, to) = (pieces[root as usize].clone(), self.piece(own)?);
                check_alias(from.data(), to.data())?;
                plan.copy(from, to)?;
            }
            others(&comm).for_each(|to| plan.send(pieces[to as usize].clone(), to));
            self.planned(plan, handle, how)
        }
    }

    /// # Safety
    /// As for `gather_begun`, at all ranks.
    pub unsafe fn allgather_begun(
        &mut self,
        how: How,
        own: Block,
        blocks: Blocks,
        handle: Handle,
    ) -> Res<Handle> {
        let (comm, mut plan) = self.plan(handle)?;
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            return unsafe {
                let plan = self.allgather_across(plan, &comm, own, blocks)?;
                self.planned(plan, handle, how)
            };
        }
        // SAFETY: the caller's promise.
        unsafe {
            let pieces = self.pieces(blocks, comm.size())?;
            let sent = self.own_part(&mut plan, own, &pieces[comm.rank as usize])?;
            for peer in others(&comm) {
                plan.receive(pieces[peer as usize].clone(), peer);
                plan.send(sent.clone(), peer);
            }
            self.planned(plan, handle, how)
        }
    }

    /// # Safety
    /// As for `allgather_begun`.
    pub unsafe fn alltoall_begun(
        &mut self,
        how: How,
        out: Blocks,
        inn: Blocks,
        handle: Handle,
    ) -> Res<Handle> {
        let (comm, mut plan) = self.plan(handle)?;
        if comm.is_inter() {
            // SAFETY: the caller's promise.
            return unsafe {
                let plan = self.alltoall_across(plan, &comm, out, inn)?;
                self.planned(plan, handle, how)
            };
        }
        let (n, me) = (comm.size(), comm.rank as usize);
        // SAFETY: the caller's promise.
        unsafe {
            let inn = self.pieces(inn, n)?;
            let out = match out.is_in_place() {
                true => self.packed(&mut plan, &inn, me)?,
                false => {
                    let pieces = self.pieces(out, n)?;
                    let mut pairs = pieces.iter().zip(&inn);
                    pairs.try_for_each(|(from, to)| check_alias(from.data(), to.data()))?;
                    plan.copy(pieces[me].clone(), inn[me].clone())?;
                    pieces
                }
            };
            for peer in others(&comm) {
                plan.receive(inn[peer as usize].clone(), peer);
                plan.send(out[peer as usize].clone(), peer);
            }
            self.planned(plan, handle, how)
        }
    }

    /// `MPI_IN_PLACE`: what is received over is packed before it is sent.
    fn packed(&self, plan: &mut Plan, pieces: &[Piece], me: usize) -> Res<Vec<Piece>> {
        let others = |i: usize| i != me;
        let bytes = |i: usize| if others(i) { pieces[i].bytes() } else { 0 };
        let total = (0..pieces.len()).try_fold(0u64, |sum, i| sum.checked_add(bytes(i)));
        let dt = self.types.get(BYTE)?;
        let mut room = Scratch::lasting(&dt, total.ok_or(class::NO_MEM)?)?;
        room.zero();
        let base = plan.hold(room);
        let mut at = 0;
        let mut sent = Vec::with_capacity(pieces.len());
        for (i, piece) in pieces.iter().enumerate() {
            let ptr = base.wrapping_add(at as usize);
            if others(i) {
                plan.pack(piece.clone(), ptr);
            }
            sent.push(Piece { ptr, count: bytes(i), dt: dt.clone() });
            at += bytes(i);
        }
        Ok(sent)
    }
}
