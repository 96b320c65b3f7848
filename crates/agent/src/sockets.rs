//! The sockets of ranks that go back together (`--ft coordinated`): on one node at once, over nodes
//! by the controller's steps, in a thread.
//!
//! Kept true: all sockets of all ranks of a set are there before the first rank runs, connected
//! to each other as they were; none of them is held here once its rank has it, or when the ranks
//! go back once more.

use super::state::sockets::{Stepped, Work};
use super::{Agent, Msg};
use eyrie_control::cross_node_sockets::{Call, ImageEnd, NodeEnds, Rejoin, RejoinStep, Rejoined};
use eyrie_control::node::FromNode;
use eyrie_image::{MadeSockets, RestoreError, SetConnections, this_network};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long an attempt to make connections to other nodes may take.
const JOIN_LIMIT: Duration = Duration::from_secs(2);

impl Agent {
    /// The sockets of a rank that goes back to `generation` with all others.
    pub(super) fn sockets_of(&mut self, rank: u32, generation: u32) -> Result<MadeSockets, String> {
        if !self.spec.protection.ft.all_go_back() {
            return Ok(MadeSockets::default());
        }
        let wired = self.sockets.wired.take().filter(|(of, _)| *of == generation);
        let (_, result) = wired.unwrap_or_else(|| match self.network.is_some() {
            // What is missing then is named when the rank is restored.
            true => (generation, Ok(())),
            false => (generation, self.make_sockets(generation)),
        });
        self.sockets.wired = Some((generation, result.clone()));
        result.map(|()| std::mem::take(&mut self.rank(rank).restart.sockets))
    }

    /// Images of these ranks. One that had ended has none.
    fn images_of(&self, ranks: impl Iterator<Item = u32>, generation: u32) -> Vec<(u32, PathBuf)> {
        let image = |rank: u32| (rank, self.image_file(rank, generation));
        ranks.map(image).filter(|(_, path)| path.exists()).collect()
    }

    fn make_sockets(&mut self, generation: u32) -> Result<(), String> {
        let images = self.images_of(0..self.size(), generation);
        let paths: Vec<&Path> = images.iter().map(|(_, path)| path.as_path()).collect();
        let made = eyrie_image::make_sockets(&paths, &[]).map_err(|e| e.to_string())?;
        for ((rank, _), sockets) in images.into_iter().zip(made) {
            self.rank(rank).restart.sockets = sockets;
        }
        Ok(())
    }

    /// Over nodes: a step on the way to that.
    pub(super) fn rejoin(&mut self, order: Rejoin) {
        let Rejoin { generation, turn, step } = order;
        let Some(here) = self.network.as_ref().map(|n| n.here) else { return };
        let work: Box<dyn FnOnce() -> Stepped + Send> = match step {
            RejoinStep::Look { ranks } => {
                let images = self.images_of(ranks.into_iter(), generation);
                let (ranks, paths): (Vec<u32>, Vec<PathBuf>) = images.into_iter().unzip();
                (self.sockets.wired, self.sockets.work) =
                    (None, Some(Work { generation, turn, ranks, rewiring: None }));
                Box::new(move || look(generation, turn, &paths, here))
            }
            step => {
                let this = |w: &&mut Work| w.generation == generation;
                let Some(work) = self.sockets.work.as_mut().filter(this) else { return };
                work.turn = turn;
                let Some(rewiring) = work.rewiring.take() else { return };
                Box::new(move || stepped(generation, turn, rewiring, step))
            }
        };
        let tell = self.tell.clone();
        let run = move || drop(tell.send(Msg::Stepped(Box::new(work()))));
        let thread = std::thread::Builder::new().name(String::from("eyrie-rejoin"));
        if let Err(error) = thread.spawn(run) {
            let result = Err(format!("cannot start a thread: {error}"));
            self.say(FromNode::Rejoined { generation, turn, result });
        }
    }

    /// It is done.
    pub(super) fn step_done(&mut self, stepped: Stepped) {
        let Stepped { generation, turn, rewiring, made, result } = stepped;
        let this = |w: &&mut Work| (w.generation, w.turn) == (generation, turn);
        let Some(work) = self.sockets.work.as_mut().filter(this) else { return };
        work.rewiring = rewiring;
        if result == Ok(Rejoined::Settled) {
            let ranks = std::mem::take(&mut work.ranks);
            self.sockets.work = None;
            self.sockets.wired = Some((generation, Ok(())));
            for (rank, sockets) in ranks.into_iter().zip(made) {
                self.rank(rank).restart.sockets = sockets;
            }
        }
        self.say(FromNode::Rejoined { generation, turn, result });
    }
}

fn look(generation: u32, turn: u64, paths: &[PathBuf], here: IpAddr) -> Stepped {
    let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
    let begun = SetConnections::begin(&paths, &[], Some(here));
    let looked = begun.map(|rewiring| {
        let end = |e: eyrie_image::BackEnd| {
            let eyrie_image::BackEnd { link, own, peer, has } = e;
            ImageEnd { link, own, peer, has }
        };
        let ends = rewiring.ends().into_iter().map(end).collect();
        (rewiring, Rejoined::NodeEnds(NodeEnds { network: this_network(), here, ends }))
    });
    let (rewiring, result) = apart(looked);
    Stepped { generation, turn, rewiring, made: Vec::new(), result }
}

/// Carries out a step after the first.
fn stepped(generation: u32, turn: u64, mut rewiring: SetConnections, step: RejoinStep) -> Stepped {
    let RejoinStep::Join { calls, patient } = step else {
        let (made, result) = apart(rewiring.settle().map(|made| (made, Rejoined::Settled)));
        let made = made.unwrap_or_default();
        return Stepped { generation, turn, rewiring: None, made, result };
    };
    let call = |c: Call| {
        let Call { link, own, peer, calls, token } = c;
        eyrie_image::Call { link, own, peer, calls, token }
    };
    let calls: Vec<_> = calls.into_iter().map(call).collect();
    let failed = rewiring.join(&calls, JOIN_LIMIT, patient);
    let result = Ok(Rejoined::Joined { failed });
    Stepped { generation, turn, rewiring: Some(rewiring), made: Vec::new(), result }
}

fn apart<A, B>(result: Result<(A, B), RestoreError>) -> (Option<A>, Result<B, String>) {
    match result {
        Ok((a, b)) => (Some(a), Ok(b)),
        Err(error) => (None, Err(error.to_string())),
    }
}
