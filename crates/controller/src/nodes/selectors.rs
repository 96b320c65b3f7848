//! Nodes by what people call them: numbers, ranges of numbers, names of hosts, clusters.
//!
//! Kept true: what does not mean live nodes is refused, in a line that says which there are.

use crate::Job;
use crate::nodes::membership::Nodes;
use crate::nodes::model::State;
use std::collections::BTreeSet;

impl Nodes {
    /// First and last of a range of numbers, unless a host is called so.
    pub fn range(&self, word: &str) -> Option<(u32, u32)> {
        let (first, last) = word.split_once('-')?;
        let range = (first.parse().ok()?, last.parse().ok()?);
        self.all.iter().all(|n| n.host() != Some(word)).then_some(range)
    }

    /// The live node with this number, or on this host.
    pub fn select_node(&self, name: &str) -> Result<u32, String> {
        let on_host = |n: &crate::Node| n.host() == Some(name);
        let live = |node: &u32| self.all[*node as usize].state != State::Lost;
        let all = 0..self.all.len() as u32;
        let node = match name.parse::<u32>() {
            Ok(node) => Some(node).filter(|n| (*n as usize) < self.all.len()),
            Err(_) => {
                let there = |n: &u32| on_host(&self.all[*n as usize]);
                all.clone().filter(there).max_by_key(|n| (live(n), *n))
            }
        };
        let Some(node) = node else {
            let known: Vec<String> = all.filter(live).map(|n| self.node_name(n)).collect();
            return Err(format!("there is no node {name}; there are: {}", known.join(", ")));
        };
        let n = &self.all[node as usize];
        match n.state {
            State::Lost if n.left => Err(format!("node {node} has left already")),
            State::Lost => Err(format!("node {node} is lost already")),
            State::Joining => Err(format!("node {node} is just joining: ask again")),
            State::Live => Ok(node),
        }
    }
}

impl Job {
    /// The live nodes that these words mean: each a list of `3`, `0-2`, `HOST` or `cluster=NAME`.
    pub(crate) fn select_nodes(&self, words: &[String]) -> Result<BTreeSet<u32>, String> {
        let mut nodes = BTreeSet::new();
        for word in words.iter().flat_map(|w| w.split(',')) {
            match (word.strip_prefix("cluster="), self.nodes.range(word)) {
                (Some(name), _) => nodes.extend(self.select_cluster(name)?),
                (None, Some((first, last))) if first > last => {
                    return Err(format!("'{word}' is no range: the first is greater"));
                }
                (None, Some((first, last))) => {
                    for node in first..=last {
                        nodes.insert(self.nodes.select_node(&node.to_string())?);
                    }
                }
                (None, None) => {
                    nodes.insert(self.nodes.select_node(word)?);
                }
            }
        }
        Ok(nodes)
    }

    fn select_cluster(&self, name: &str) -> Result<Vec<u32>, String> {
        let names = &self.spec.placement.clusters.names;
        if names.is_empty() {
            return Err(String::from("the job has one cluster: it was started without --clusters"));
        }
        let Some(cluster) = names.iter().position(|n| n == name) else {
            return Err(format!("there is no cluster {name}; there are: {}", names.join(", ")));
        };
        let of = |node: &u32| self.spec.placement.clusters.of(*node) as usize == cluster;
        let live = |node: &u32| self.nodes.all[*node as usize].state == State::Live;
        let all = (0..self.nodes.all.len() as u32).filter(of);
        match all.filter(live).collect::<Vec<_>>() {
            none if none.is_empty() => Err(format!("cluster {name} has no nodes any more")),
            nodes => Ok(nodes),
        }
    }
}
