//! A snapshot of checkpoints over several nodes (`--ft coordinated`): one of every rank, which are
//! one state of the job.
//!
//! Pure, run by the controller. Each node has its ranks come to stand, copies what they have sent,
//! and says so; when all nodes have, all ranks go on, each as soon as its own memory is kept. What
//! a rank had sent and another had not received by then is in the sender's log, which belongs to
//! its image: nothing has to be drained. Where ranks have connections of their own between nodes,
//! what these have received is read when all stand, and before any goes on.
//!
//! Kept true: no rank goes on before every rank stands, every log is copied and every connection
//! between nodes is read, unless the snapshot is void; a snapshot of which one part is missing is
//! void as a whole.

use crate::cross_node_sockets::{self, MatchedEnd, SocketEnd};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What the nodes that take part are told, each once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All ranks stand: those that have matched_ends read what has come over them.
    Read,
    /// All ranks stand: they are kept, and go on.
    Keep,
    /// They go on as if nothing had been.
    Void,
}

/// A snapshot that is being taken.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CoordinatedSnapshot {
    generation: u32,
    homes: BTreeMap<u32, u32>,
    /// Nodes whose ranks do not all stand yet.
    moving: BTreeSet<u32>,
    /// Ends of connections that lead out of each node; pairs of them, when all ranks stand.
    ends: BTreeMap<u32, Vec<SocketEnd>>,
    matched_ends: BTreeMap<u32, Vec<MatchedEnd>>,
    /// Nodes that have not read what came over theirs.
    reading: Option<BTreeSet<u32>>,
    /// Ranks of which it is not known how theirs came out.
    left: BTreeSet<u32>,
    told: bool,
    failed: Option<String>,
}

impl CoordinatedSnapshot {
    /// `homes`: each rank, and the node that it lives on.
    pub fn new(generation: u32, homes: BTreeMap<u32, u32>) -> CoordinatedSnapshot {
        let moving = homes.values().copied().collect();
        let left = homes.keys().copied().collect();
        let (ends, matched_ends) = (BTreeMap::new(), BTreeMap::new());
        let reading = None;
        CoordinatedSnapshot {
            generation,
            homes,
            moving,
            ends,
            matched_ends,
            reading,
            left,
            told: false,
            failed: None,
        }
    }

    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Nodes that take part.
    pub fn nodes(&self) -> BTreeSet<u32> {
        self.homes.values().copied().collect()
    }

    pub fn ranks(&self) -> impl Iterator<Item = u32> {
        self.homes.keys().copied()
    }

    /// All ranks of a node stand and what they sent is copied, or that could not be done. `Ok`: the
    /// ends of connections that lead out of it.
    pub fn stands(&mut self, node: u32, result: Result<Vec<SocketEnd>, String>) -> Option<Verdict> {
        match result {
            Err(why) => self.fail(why),
            Ok(ends) => {
                self.moving.remove(&node);
                self.ends.insert(node, ends);
                self.verdict()
            }
        }
    }

    /// A node has read what came over connections between nodes, or could not.
    pub fn has_read(&mut self, node: u32, result: Result<(), String>) -> Option<Verdict> {
        match (result, &mut self.reading) {
            (Err(why), _) => self.fail(why),
            (Ok(()), Some(reading)) => {
                reading.remove(&node);
                self.verdict()
            }
            (Ok(()), None) => None,
        }
    }

    /// With `Verdict::Read`: the nodes that have matched_ends, and these.
    pub fn matched_ends(&self) -> &BTreeMap<u32, Vec<MatchedEnd>> {
        &self.matched_ends
    }

    /// The checkpoint of one rank is written, or will not be.
    pub fn part(&mut self, rank: u32, result: Result<(), String>) -> Option<Verdict> {
        self.left.remove(&rank);
        match result {
            Err(why) => self.fail(why),
            Ok(()) => None,
        }
    }

    /// Whether ranks were told that all of them stand, or that it is void: a rank whose checkpoint
    /// is written before that has not waited for the others.
    pub fn is_told(&self) -> bool {
        self.told
    }

    /// What was written of it is of no use any more.
    pub fn spoil(&mut self, why: String) -> Option<Verdict> {
        self.fail(why)
    }

    fn fail(&mut self, why: String) -> Option<Verdict> {
        self.failed.get_or_insert(why);
        self.verdict()
    }

    /// What is to be told now.
    fn verdict(&mut self) -> Option<Verdict> {
        let verdict = match (&self.failed, &self.reading) {
            (Some(_), _) => Verdict::Void,
            (None, _) if !self.moving.is_empty() => return None,
            (None, None) => {
                self.matched_ends = cross_node_sockets::pair(&self.ends);
                self.reading = Some(self.matched_ends.keys().copied().collect());
                if !self.matched_ends.is_empty() {
                    return Some(Verdict::Read);
                }
                Verdict::Keep
            }
            (None, Some(reading)) if reading.is_empty() => Verdict::Keep,
            (None, Some(_)) => return None,
        };
        (!std::mem::replace(&mut self.told, true)).then_some(verdict)
    }

    /// Why it is void.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// Whether it is known of every rank how its checkpoint came out.
    pub fn is_over(&self) -> bool {
        self.left.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> CoordinatedSnapshot {
        CoordinatedSnapshot::new(3, BTreeMap::from([(0, 0), (1, 0), (2, 1)]))
    }

    #[test]
    fn all_go_on_when_the_last_one_stands() {
        let mut snapshot = snapshot();
        assert_eq!(snapshot.stands(1, Ok(vec![])), None);
        assert_eq!(snapshot.stands(1, Ok(vec![])), None);
        assert_eq!(snapshot.stands(0, Ok(vec![])), Some(Verdict::Keep));
        for rank in 0..3 {
            assert!(!snapshot.is_over());
            assert_eq!(snapshot.part(rank, Ok(())), None);
        }
        assert!(snapshot.is_over() && snapshot.failed().is_none());
    }

    #[test]
    fn one_that_does_not_come_to_stand_lets_all_go() {
        let mut snapshot = snapshot();
        assert_eq!(snapshot.stands(1, Ok(vec![])), None);
        assert_eq!(snapshot.part(0, Err("busy".into())), Some(Verdict::Void));
        // It is told once.
        assert_eq!(snapshot.part(1, Err("void".into())), None);
        assert_eq!(snapshot.stands(0, Ok(vec![])), None);
        assert_eq!(snapshot.part(2, Err("void".into())), None);
        assert!(snapshot.is_over());
        assert_eq!(snapshot.failed(), Some("busy"));
    }

    #[test]
    fn a_rank_is_told_when_all_stand_or_none_is_waited_for() {
        let mut snapshot = snapshot();
        assert_eq!(snapshot.stands(0, Ok(vec![])), None);
        assert!(!snapshot.is_told(), "who goes on now has not waited for node 1");
        assert_eq!(snapshot.stands(1, Err("another leads".into())), Some(Verdict::Void));
        assert!(snapshot.is_told());
    }

    #[test]
    fn what_is_not_written_makes_it_void_when_all_go_on_already() {
        let mut snapshot = snapshot();
        snapshot.stands(0, Ok(vec![]));
        assert_eq!(snapshot.stands(1, Ok(vec![])), Some(Verdict::Keep));
        assert_eq!(snapshot.part(2, Err("disk full".into())), None);
        assert_eq!((snapshot.is_over(), snapshot.failed()), (false, Some("disk full")));
    }

    #[test]
    fn what_turns_out_bad_makes_it_void_when_all_is_written() {
        let mut snapshot = snapshot();
        assert_eq!(snapshot.stands(0, Ok(vec![])), None);
        assert_eq!(snapshot.stands(1, Ok(vec![])), Some(Verdict::Keep));
        (0..3).for_each(|rank| assert_eq!(snapshot.part(rank, Ok(())), None));
        assert_eq!(snapshot.spoil("bad".into()), None);
        assert_eq!((snapshot.is_over(), snapshot.failed()), (true, Some("bad")));
    }

    #[test]
    fn a_node_that_cannot_copy_what_was_sent_makes_it_void() {
        assert_eq!(snapshot().stands(1, Err("no memory".into())), Some(Verdict::Void));
    }

    #[test]
    fn nobody_goes_on_before_what_came_over_connections_is_read() {
        let end = |socket, own: &str, peer: &str| SocketEnd {
            socket,
            own: own.parse().unwrap(),
            peer: peer.parse().unwrap(),
            network: vec![],
            behind: false,
        };
        let one = || vec![end(7, "10.0.0.1:1", "10.0.0.2:2")];
        let other = || vec![end(8, "10.0.0.2:2", "10.0.0.1:1")];
        let mut snapshot = snapshot();
        assert_eq!(snapshot.stands(0, Ok(one())), None);
        assert_eq!(snapshot.stands(1, Ok(other())), Some(Verdict::Read));
        assert_eq!(snapshot.matched_ends()[&1], [MatchedEnd { socket: 8, link: 1, behind: false }]);
        assert_eq!(snapshot.has_read(1, Ok(())), None);
        assert_eq!(snapshot.stands(1, Ok(other())), None);
        assert_eq!(snapshot.has_read(0, Ok(())), Some(Verdict::Keep));
        assert_eq!(snapshot.has_read(0, Ok(())), None);
        // What cannot be read makes it void, once.
        let mut snapshot = self::snapshot();
        snapshot.stands(0, Ok(one()));
        assert_eq!(snapshot.has_read(0, Ok(())), None);
        snapshot.stands(1, Ok(other()));
        assert_eq!(snapshot.has_read(0, Err("gone".into())), Some(Verdict::Void));
        assert_eq!(snapshot.has_read(1, Ok(())), None);
    }
}
