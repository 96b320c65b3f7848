//! Which nodes there are, which ranks are on each, and what is said to them.
//!
//! Kept true: a node has its number for ever; what is told to all is not heard by those that are
//! lost or have never called.

use crate::clock::Moment;
use crate::nodes::model::{Awaited, Connectivity, Line, Node, State};
use eyrie_control::node::ToNode;
use eyrie_protocol::failure_detector::Patience;
use eyrie_protocol::image_references::File;
use eyrie_protocol::membership::Member;
use eyrie_protocol::placement::Placement;
use eyrie_protocol::recovery::spread;
use eyrie_protocol::session::Numbered;
use std::collections::{BTreeMap, BTreeSet};

/// The nodes of a job, and which ranks are on each.
pub(crate) struct Nodes {
    pub all: Vec<Node>,
    pub placement: Placement,
    /// The latest epoch of a node.
    pub epoch: u64,
    /// Who waits for nodes that are to join.
    pub awaited: Vec<Awaited>,
    /// Since when nodes are awaited that were with the controller before.
    pub rejoining: Option<Moment>,
    /// Links between nodes that are missed.
    pub connectivity: Connectivity,
}

impl Nodes {
    pub fn new(all: Vec<Node>, placement: Placement) -> Nodes {
        Nodes {
            epoch: all.len() as u64,
            all,
            placement,
            awaited: Vec::new(),
            rejoining: None,
            connectivity: Connectivity::default(),
        }
    }
}

impl Nodes {
    pub fn is_lost(&self, node: u32) -> bool {
        self.all.get(node as usize).is_none_or(|n| n.state == State::Lost)
    }

    /// Whether the nodes of these ranks are connected. If they are to stand for each other, those
    /// of the others would stand as long as one is awaited.
    pub fn are_reached(&self, ranks: impl IntoIterator<Item = u32>) -> bool {
        let home = |rank| &self.all[self.placement.home(rank) as usize];
        ranks.into_iter().all(|rank| !home(rank).is_awaited())
    }

    /// A node, in the incarnation that it is in now.
    pub fn member(&self, node: u32) -> Member {
        Member { node, epoch: self.all[node as usize].epoch }
    }

    pub fn names(&self, nodes: &BTreeSet<u32>) -> String {
        nodes.iter().map(|n| self.node_name(*n)).collect::<Vec<_>>().join(", ")
    }

    pub fn lacks_capacity(&self, rank: u32, bytes: u64, to: &[Member]) -> String {
        let of = |m: &Member| {
            let look = &self.all[m.node as usize].look;
            let capacity = look.left_bytes.into_iter().chain(look.available_bytes).min();
            let capacity = capacity
                .map_or(String::from("enough"), |capacity| format!("{} MiB", capacity >> 20));
            format!("{} {capacity}", self.node_name(m.node))
        };
        let have: Vec<String> = to.iter().map(of).collect();
        format!(
            "rank {rank} takes {} MiB of memory, which is not there for it and the ranks that move \
             with it: {}; name other nodes (--to), or let some join first (eyrie grow)",
            bytes.div_ceil(1 << 20),
            have.join(", ")
        )
    }

    pub fn number_orders(&mut self) -> Vec<(u32, Numbered<ToNode>)> {
        let mut frames = Vec::new();
        for (node, n) in (0u32..).zip(&mut self.all) {
            for frame in n.numbered() {
                match frame.message {
                    ToNode::Look { .. } => n.ask(frame),
                    _ => frames.push((node, frame)),
                }
            }
        }
        frames
    }

    /// The console takes output again.
    pub fn grant_output(&mut self) {
        for node in &mut self.all {
            let bytes = std::mem::take(&mut node.taken);
            if bytes > 0 {
                node.send(ToNode::OutputTaken { bytes });
            }
        }
    }

    /// Where the ranks of nodes go if they are to go to these, which have some already: as evenly
    /// as can be, those of one node to one as far as that is so.
    pub fn wishes(&self, nodes: &BTreeSet<u32>, to: &BTreeSet<u32>) -> BTreeMap<u32, Vec<Member>> {
        let ranks: Vec<u32> = nodes.iter().flat_map(|n| self.placement.ranks_on(*n)).collect();
        let load = |n: &u32| (self.member(*n), self.placement.ranks_on(*n).len());
        spread(&ranks, &to.iter().map(load).collect::<Vec<_>>())
    }

    pub fn weigh_grant(&mut self, node: u32) {
        let last = self.is_last(node);
        self.all[node as usize].weigh_grant(last);
    }

    /// Whether no other node is there, or to come, that could go on in its place.
    pub fn is_last(&self, node: u32) -> bool {
        let is_gone = |n: &Node| n.state == State::Lost || n.left || n.finished.is_some();
        (0..).zip(&self.all).all(|(number, other)| number == node || is_gone(other))
    }

    pub fn remove_files(&self, files: &[File]) {
        for &(rank, generation) in files {
            self.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        }
    }

    /// Tells all who leaves.
    pub fn tell_leaving(&self, round: u64, members: &[Member]) {
        let nodes = members.iter().map(|m| m.node).collect();
        self.to_all(&ToNode::Leaving { round, nodes });
    }

    /// A node is gone: if only one is left, that is waited for at once, though it may say nothing
    /// for a while.
    pub fn spare_the_last(&self) {
        let last = (0..).zip(&self.all).find(|(number, _)| self.is_last(*number));
        if let Some((_, Node { line: Line::There(wired), .. })) = last {
            wired.set_patience(Patience::Last);
        }
    }

    /// Sends to the node that a rank lives on.
    pub fn to_home(&self, rank: u32, message: ToNode) {
        self.all[self.placement.home(rank) as usize].send(message);
    }

    pub fn to_all(&self, message: &ToNode) {
        self.all.iter().for_each(|n| n.send(message.clone()));
    }

    /// How a node is called in messages.
    pub fn node_name(&self, node: u32) -> String {
        match self.all.get(node as usize).and_then(Node::host) {
            Some(host) => format!("node {node} on host {host}"),
            None => format!("node {node}"),
        }
    }

    pub fn tell_homes(&self) {
        self.to_all(&ToNode::Homes { homes: self.placement.homes().to_vec() });
    }
}
