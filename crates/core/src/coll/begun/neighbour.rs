//! Collectives between neighbours in a topology (MPI 5.0 sections 8.6 and 8.7): each sends to its
//! destinations and receives from its sources, and to nobody else.

use super::How;
use super::blocks::{Block, Blocks, Piece};
use super::plan::Plan;
use crate::comm::Comm;
use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;
use crate::neighbours::neighbours;
use crate::topology::Topology;

/// In which order receives from sources are posted, so that of two from one rank each gets what is
/// meant for it. In a ring of one or two ranks both neighbours along a dimension are the same one;
/// what it sends first, down, comes from above.
fn posting(comm: &Comm, sources: usize) -> Vec<usize> {
    let order = 0..sources;
    match comm.topology {
        Some(Topology::Cart(_)) => order.map(|i| i ^ 1).collect(),
        _ => order.collect(),
    }
}

impl Machine {
    /// # Safety
    /// The buffers hold until the request is complete and are valid for their types; arrays have
    /// an entry for each neighbour.
    pub unsafe fn neighbour_allgather_begun(
        &mut self,
        how: How,
        own: Block,
        inn: Blocks,
        comm: Handle,
    ) -> Res<Handle> {
        // SAFETY: the caller's promise.
        unsafe {
            let plan = self.plan_allgather(own, inn, comm)?;
            self.planned(plan, comm, how)
        }
    }

    /// # Safety
    /// The buffers are valid for their types; arrays have an entry for each neighbour.
    pub unsafe fn neighbour_allgather(&mut self, own: Block, inn: Blocks, comm: Handle) -> Res<()> {
        // SAFETY: the caller's promise.
        unsafe {
            let plan = self.plan_allgather(own, inn, comm)?;
            self.done_at_once(plan)
        }
    }

    /// # Safety
    /// As for `neighbour_allgather_begun`.
    pub unsafe fn neighbour_alltoall_begun(
        &mut self,
        how: How,
        out: Blocks,
        inn: Blocks,
        comm: Handle,
    ) -> Res<Handle> {
        // SAFETY: the caller's promise.
        unsafe {
            let plan = self.plan_alltoall(out, inn, comm)?;
            self.planned(plan, comm, how)
        }
    }

    /// # Safety
    /// As for `neighbour_allgather`.
    pub unsafe fn neighbour_alltoall(&mut self, out: Blocks, inn: Blocks, comm: Handle) -> Res<()> {
        // SAFETY: the caller's promise.
        unsafe {
            let plan = self.plan_alltoall(out, inn, comm)?;
            self.done_at_once(plan)
        }
    }

    unsafe fn plan_allgather(&mut self, own: Block, inn: Blocks, comm: Handle) -> Res<Plan> {
        let (comm, mut plan) = self.plan(comm)?;
        let (sources, destinations) = neighbours(&comm)?;
        let own = self.piece(own)?;
        let out = vec![own; destinations.len()];
        // SAFETY: the caller's promise.
        let inn = unsafe { self.pieces(inn, sources.len() as u32)? };
        between(&comm, &mut plan, (&out, &destinations), (&inn, &sources));
        Ok(plan)
    }

    unsafe fn plan_alltoall(&mut self, out: Blocks, inn: Blocks, comm: Handle) -> Res<Plan> {
        let (comm, mut plan) = self.plan(comm)?;
        let (sources, destinations) = neighbours(&comm)?;
        // SAFETY: the caller's promise.
        let (out, inn) = unsafe {
            let out = self.pieces(out, destinations.len() as u32)?;
            (out, self.pieces(inn, sources.len() as u32)?)
        };
        between(&comm, &mut plan, (&out, &destinations), (&inn, &sources));
        Ok(plan)
    }
}

/// Blocks, and the neighbours that they go to or come from.
type With<'a> = (&'a [Piece], &'a [Option<u32>]);

fn between(comm: &Comm, plan: &mut Plan, (out, to): With, (inn, from): With) {
    for i in posting(comm, from.len()) {
        if let Some(from) = from[i] {
            plan.receive(inn[i].clone(), from);
        }
    }
    for (piece, to) in out.iter().zip(to) {
        if let Some(to) = to {
            plan.send(piece.clone(), *to);
        }
    }
}
