//! Ranks that come back alone are to have memory in common, so that all ranks of a node become one
//! recovery unit while the job runs (`MPI_Win_allocate_shared`).
//!
//! A rank that waits for that is told of by its node; others go on until all are to stand. In the
//! models units are what the world knows, so they change for all nodes with the order to the first
//! of them, when no process is left. Kept true: all ranks go on from where they stood.

use crate::real::host::Simulation;
use crate::real::{Faults, Happens};
use crate::types::Event;
use eyrie_control::{FromNode, ToNode};
use eyrie_controller::memory::driven::Controller;
use eyrie_protocol::membership::Member;
use eyrie_protocol::routing::Routing;

/// How ranks become larger units.
#[derive(Default)]
pub struct Sharing {
    /// They have.
    pub done: bool,
    /// Ranks that have not come back as such yet, from the snapshot.
    pub returning: Vec<u32>,
}

impl Simulation {
    /// A rank waits: its node says so, time and again, as a rank that comes back waits anew.
    pub(super) fn share(&mut self) {
        if self.ended() || self.sharing.done {
            return;
        }
        let after = 200 + self.world.random.below(600);
        self.world.at(after, Event::Real(Happens::Share));
        let nodes = self.world.nodes.iter().flat_map(|(member, node)| {
            let runs = node.procs.iter().filter(|(_, p)| !p.done);
            runs.map(|(rank, p)| (*member, *rank, p.incarnation))
        });
        let all: Vec<(Member, u32, u32)> = nodes.collect();
        let Some((member, rank, start)) = self.world.random.pick(&all) else { return };
        let (start, peer) = (u64::from(start), (rank + 1) % self.world.ranks());
        self.world.tell_real(member, FromNode::Shares { rank, start, peer });
        self.fault_nearby(4);
    }

    /// The controller orders that ranks come back as larger units.
    pub(super) fn note_units(&mut self, order: &ToNode) {
        let ToNode::Units { spec } = order else { return };
        let homes = &spec.placement.homes;
        if !self.setup.shares || std::mem::replace(&mut self.sharing.done, true) {
            return;
        }
        self.world.trace(|| format!("units from now on: {homes:?}"));
        self.world.report.regrouped += 1;
        self.world.units.clone_from(homes);
        self.world.fallback = false;
        self.world.truth.hurt.clear();
        self.world.routing = Routing::default();
        self.world.stood.clear();
        self.strike_units();
        if !self.controller.as_ref().is_some_and(Controller::returns) {
            // As after a loss that nothing bears.
            return;
        }
        self.world.keeps_images = true;
        self.all_return();
        self.fault_nearby(3);
    }

    /// Often what the controller knows of units comes out of its journal from now on, and soon
    /// after that one of them has to go back.
    fn strike_units(&mut self) {
        if self.setup.faults == Faults::All && !self.setup.small && self.world.random.one_in(4) {
            let after = self.world.random.below(300);
            self.world.at(after, Event::Real(Happens::LoseController));
            let after = after + 1_000 + self.world.random.below(2_500);
            self.world.at(after, Event::Real(Happens::LoseRank { rank: None }));
        }
    }

    /// All ranks go on from where they stood, or do so again. What was printed, and what counts, is
    /// of there.
    pub(super) fn all_return(&mut self) {
        self.sharing.returning = (0..self.world.ranks()).collect();
        self.world.truth.forget_outside();
        self.foreign = self.printed.iter().map(Vec::len).collect();
    }

    /// Whether a rank comes back from where all stood: it loses nothing that others have.
    pub(super) fn returns(&mut self, rank: u32, start: u32, generation: u32) -> bool {
        let known = self.sharing.returning.iter().position(|one| *one == rank);
        let Some(index) = known else { return false };
        self.sharing.returning.swap_remove(index);
        self.world.truth.goes_back(rank, start, generation);
        true
    }
}
