//! Groups that have nothing in common yet (MPI 5.0 sections 11.7 to 11.10): programs that are
//! started by others, ports, names of ports, the two ends of a socket.
//!
//! - `state`: what a rank knows of its job, its ports and its room.
//! - `order`: what is said about programs that are started, in words.
//! - `program`: where a program is that is to be started.
//! - `room`: the keeper, which gives away the job's places for programs, and has names of ports.
//! - `spawn`: who starts programs; `started`: who was started.
//! - `port`, `socket`: groups that meet.
//!
//! All of them are ranks of one job, so they meet by messages, in contexts that all ranks have.
//! Kept true: what is sent follows from the calls alone; who calls a port first, and whether a name
//! is there, is chance, and goes through the door.

mod order;
mod port;
mod program;
mod room;
mod socket;
mod spawn;
mod started;
pub(crate) mod state;

#[cfg(test)]
mod tests;

pub use order::{Command, Order};
pub use socket::HELLO_BYTES;
pub use spawn::{NOT_BEGUN, Place, Wanted};
pub use state::{
    APPNUM_VARIABLE, CLUSTERS_VARIABLE, ORDER_VARIABLE, ORDERS_VARIABLE, ROOM_VARIABLE,
    SPARES_VARIABLE, UNIVERSE_VARIABLE,
};

use std::rc::Rc;

use crate::comm::{Comm, Inherit};
use crate::error::{Class, Res, class};
use crate::group::Group;
use crate::handle::Handle;
use crate::machine::Machine;

impl Machine {
    /// An inter-communicator of `comm` with a group that its rank `root` gets to know, by telling
    /// it what is told of this one: the greatest context, and its members.
    fn meet_group(
        &mut self,
        comm: Handle,
        root: i32,
        swap: impl FnOnce(&mut Machine, &[u32]) -> Res<Vec<u32>>,
    ) -> Res<Handle> {
        let local = self.comms.intra(comm)?;
        let root = local.root(root)?;
        let greatest = self.greatest_context_of(&local)?;
        let mut said = Vec::new();
        if local.rank == root {
            let own = [vec![greatest], self.addresses(local.group.members())].concat();
            said = match swap(self, &own) {
                Ok(theirs) => [&[0], &theirs[..]].concat(),
                Err(error) => vec![error.0 as u32],
            };
        }
        let said = self.share_words(&local, root, said)?;
        let [code, theirs @ ..] = &said[..] else { return Err(class::INTERN) };
        if *code != 0 {
            return Err(Class(*code as i32));
        }
        self.join_groups(&local, greatest, theirs)
    }

    /// The inter-communicator, when both have said what they know.
    fn join_groups(&mut self, local: &Rc<Comm>, greatest: u32, theirs: &[u32]) -> Res<Handle> {
        let (&their_ctx, theirs) = theirs.split_first().ok_or(class::INTERN)?;
        let members = self.learn_addresses(theirs)?;
        let ctx = self.claim_context(greatest.max(their_ctx))?;
        if members.iter().any(|&w| local.rank_of_world(w).is_some()) {
            return Err(class::COMM);
        }
        self.inter_with(local, ctx, members)
    }

    /// Ranks as others are told of them: they, and the numbers of their programs. A rank's earlier
    /// and later programs are none of those that are meant.
    pub(crate) fn addresses(&self, ranks: &[u32]) -> Vec<u32> {
        let numbers = ranks.iter().map(|rank| self.endpoint.addressed(*rank));
        ranks.iter().copied().chain(numbers).collect()
    }

    /// The ranks that somebody has told of so; what is sent to them is for these programs.
    pub(crate) fn learn_addresses(&mut self, told: &[u32]) -> Res<Vec<u32>> {
        let (ranks, numbers) = told.split_at(told.len() / 2);
        if numbers.len() != ranks.len() || ranks.iter().any(|rank| *rank >= self.world().1) {
            return Err(class::INTERN);
        }
        for (rank, number) in ranks.iter().zip(numbers) {
            self.endpoint.address(*rank, *number);
        }
        Ok(ranks.to_vec())
    }

    fn inter_with(&mut self, local: &Rc<Comm>, ctx: u32, members: Vec<u32>) -> Res<Handle> {
        let remote = Some(Rc::new(Group::new(members, self.world().0)));
        let inherit = Inherit { remote, ..Inherit::default() };
        self.comm_install(local, ctx, local.group.clone(), inherit)
    }

    /// Words from whoever sends first, which goes through the door; who that was, too.
    fn recv_words_of_any(&mut self, comm: &Rc<Comm>, tag: i32) -> Res<(u32, Vec<u32>)> {
        let from = self.probe_library(comm.coll_ctx(), tag, |_| None);
        Ok((from, self.recv_words(comm, from, tag)?))
    }
}
