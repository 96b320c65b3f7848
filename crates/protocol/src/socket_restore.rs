//! Ranks come back from a snapshot: the connections that they had between nodes are made again.
//!
//! Pure, run by the controller. Each node looks for the ends in the images of its ranks; these are
//! paired, and given their addresses; then both nodes of each make them, in as many attempts as it
//! takes, and last all nodes make what else there is. Only then the ranks may run.
//!
//! Kept true: a connection counts as made when both its ends were made in the same attempt; in
//! each attempt one end calls and the other listens, by turns, since an old connection may be
//! fading at one of them; what an attempt has no answer to is not used in the next.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

/// Attempts to make connections, after which the snapshot is given up. One takes 2 s where a node
/// does not answer, and a network may be away for a minute or two.
pub const MAX_ATTEMPTS: u64 = 60;

/// What a connection of a snapshot is known by.
pub type Link = [u64; 2];

/// An end in an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageEnd {
    pub link: Link,
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// Whether its node has the address.
    pub has: bool,
}

/// What a node found in the images of its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEnds {
    /// What tells its network from others, and where it is reached there.
    pub network: Vec<u8>,
    pub here: IpAddr,
    pub ends: Vec<ImageEnd>,
}

/// An end that is to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub link: Link,
    pub own: SocketAddr,
    pub peer: SocketAddr,
    /// It calls; else it listens.
    pub calls: bool,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// All nodes: look for ends.
    Look,
    /// Each of these: make these ends.
    Join(BTreeMap<u32, Vec<Call>>),
    /// All nodes: make all else.
    Settle,
    /// The ranks may run.
    Over,
    /// They cannot come back from this snapshot.
    Refused { node: u32, why: String },
}

/// How far it has come.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SocketRestore {
    nodes: BTreeSet<u32>,
    /// Grows with each step. Answers to earlier ones count for nothing.
    turn: u64,
    awaited: BTreeSet<u32>,
    places: BTreeMap<u32, NodeEnds>,
    /// Connections that are not made.
    left: BTreeMap<Link, [(u32, ImageEnd); 2]>,
    /// Those of them that failed in this attempt, and where.
    failed: BTreeMap<Link, (u32, String)>,
    attempts: u64,
}

impl SocketRestore {
    /// The ranks come back on these nodes, which are told to look first.
    pub fn new(nodes: BTreeSet<u32>, turn: u64) -> SocketRestore {
        SocketRestore {
            awaited: nodes.clone(),
            nodes,
            turn,
            places: BTreeMap::new(),
            left: BTreeMap::new(),
            failed: BTreeMap::new(),
            attempts: 0,
        }
    }

    /// Number of the step that is under way.
    pub fn turn(&self) -> u64 {
        self.turn
    }

    /// All nodes.
    pub fn nodes(&self) -> impl Iterator<Item = u32> {
        self.nodes.iter().copied()
    }

    /// Whether earlier attempts have failed: something may have to fade.
    pub fn is_slow(&self) -> bool {
        self.attempts > 2
    }

    fn is_answer(&mut self, node: u32, turn: u64) -> bool {
        turn == self.turn && self.awaited.remove(&node)
    }

    /// A node has looked.
    pub fn looked(&mut self, node: u32, turn: u64, place: NodeEnds) -> Option<Step> {
        if !self.is_answer(node, turn) {
            return None;
        }
        self.places.insert(node, place);
        if !self.awaited.is_empty() {
            return None;
        }
        let mut ends: BTreeMap<Link, Vec<(u32, ImageEnd)>> = BTreeMap::new();
        for (node, place) in &self.places {
            for end in &place.ends {
                ends.entry(end.link).or_default().push((*node, *end));
            }
        }
        for (link, ends) in ends {
            let (node, end) = ends[0];
            let Ok(both) = <[(u32, ImageEnd); 2]>::try_from(ends) else {
                let (own, peer) = (end.own, end.peer);
                let why = format!(
                    "the connection {own} to {peer} has not one other end in the images of the set"
                );
                return Some(Step::Refused { node, why });
            };
            self.left.insert(link, both);
        }
        Some(self.next())
    }

    /// A node has tried; these ends failed.
    pub fn joined(&mut self, node: u32, turn: u64, failed: Vec<(Link, String)>) -> Option<Step> {
        if !self.is_answer(node, turn) {
            return None;
        }
        for (link, why) in failed {
            self.failed.entry(link).or_insert((node, why));
        }
        if !self.awaited.is_empty() {
            return None;
        }
        let failed = std::mem::take(&mut self.failed);
        self.left.retain(|link, _| failed.contains_key(link));
        match failed.into_values().next() {
            Some((node, why)) if self.attempts >= MAX_ATTEMPTS => Some(Step::Refused { node, why }),
            _ => Some(self.next()),
        }
    }

    /// A node has made all else.
    pub fn settled(&mut self, node: u32, turn: u64) -> Option<Step> {
        (self.is_answer(node, turn) && self.awaited.is_empty()).then_some(Step::Over)
    }

    fn next(&mut self) -> Step {
        self.turn += 1;
        if self.left.is_empty() {
            self.awaited = self.nodes.clone();
            return Step::Settle;
        }
        let lower_listens = self.attempts.is_multiple_of(2);
        self.attempts += 1;
        let mut calls: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
        for (link, [a, b]) in &self.left {
            for (own, other, listens) in [(a, b, lower_listens), (b, a, !lower_listens)] {
                let (at, peer) = (self.address(own, other), self.address(other, own));
                let call = Call { link: *link, own: at, peer, calls: !listens };
                calls.entry(own.0).or_default().push(call);
            }
        }
        self.awaited = calls.keys().copied().collect();
        Step::Join(calls)
    }

    /// The address that an end gets: its own where that means the same, or that of its node.
    fn address(&self, (node, end): &(u32, ImageEnd), (other, _): &(u32, ImageEnd)) -> SocketAddr {
        let place = |node| self.places.get(node);
        let same = match end.own.ip().is_loopback() {
            true => place(node).map(|p| &p.network) == place(other).map(|p| &p.network),
            false => end.has,
        };
        match place(node) {
            Some(place) if !same => SocketAddr::new(place.here, end.own.port()),
            _ => end.own,
        }
    }
}

#[cfg(test)]
#[path = "socket_restore_tests.rs"]
mod tests;
