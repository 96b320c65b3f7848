//! Nodes that do not reach each other, though both are with the controller (`protocol::reach`): it
//! is said where, and why, and if it lasts one of them counts as lost, so that its ranks come to
//! where the others are reached.
//!
//! Kept true: what counts is the time in which both were heard of; of what was wanted between
//! earlier incarnations nothing counts. Links to other clusters are not told of: whoever blocks
//! these, or starts a gateway again, means them to wait.

use super::Job;
use eyrie_control::EventKind;
use eyrie_control::node::Unreached;
use eyrie_control::status::UnreachedStatus;
use eyrie_protocol::membership::Member;
use eyrie_protocol::patience::LEAST_MS;
use eyrie_protocol::reach::{BORNE_MS, Missed, TOLD_MS, gives_way};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What was not told again for so long is over, or its end was lost: an attempt takes 5 s.
const STALE: Duration = Duration::from_secs(12);
/// Most links of which there is a line; of all there are events.
const MOST_LINES: u32 = 8;

/// What is missed, by both ends.
#[derive(Default)]
pub(super) struct Reach {
    missed: BTreeMap<(u32, u32), Entry>,
    lines: u32,
}

struct Entry {
    since: Instant,
    heard: Instant,
    /// How long it has been so, as its node says.
    for_ms: u64,
    why: String,
}

impl Entry {
    /// For how long both ends were heard of meanwhile.
    fn for_ms(&self) -> u64 {
        self.for_ms.min(TOLD_MS + (self.heard - self.since).as_millis() as u64)
    }

    fn is_stale(&self) -> bool {
        self.heard.elapsed() > STALE
    }
}

impl Job {
    /// A node does not reach another one, or does again.
    pub(super) fn unreached(&mut self, from: u32, said: Unreached) {
        let (to, epoch) = said.to;
        let ends = [(from, said.epoch), (to, epoch)];
        let current = |(node, epoch): (u32, u64)| {
            (node as usize) < self.nodes.len() && self.member(node) == Member { node, epoch }
        };
        if from == to || !ends.into_iter().all(current) {
            return;
        }
        let link = (from, to);
        let alive = [from, to].into_iter().all(|node| self.is_heard_of(node));
        match said.for_ms {
            Some(for_ms) if alive => {
                let now = Instant::now();
                let why = match said.address {
                    Some(at) => format!("at {at}: {}", said.why),
                    None => said.why,
                };
                match self.looks.reach.missed.get_mut(&link).filter(|e| !e.is_stale()) {
                    Some(entry) => (entry.heard, entry.for_ms, entry.why) = (now, for_ms, why),
                    None => {
                        self.tell_unreached(link, &why);
                        let entry = Entry { since: now, heard: now, for_ms, why };
                        self.looks.reach.missed.insert(link, entry);
                    }
                }
                self.end_of_reach();
            }
            // It may stand still, which is noticed elsewhere.
            Some(_) => drop(self.looks.reach.missed.remove(&link)),
            None => {
                if let Some(entry) = self.looks.reach.missed.remove(&link) {
                    let mut event = self.event(EventKind::LinkBack);
                    event.node = Some(from);
                    event.took_ms = Some(entry.since.elapsed().as_secs_f64() * 1e3);
                    event.text = format!("to node {to}");
                    self.log_event(event);
                }
            }
        }
    }

    /// Whether a node is in the job, and has said something just now.
    fn is_heard_of(&self, node: u32) -> bool {
        let n = &self.nodes[node as usize];
        n.is_live() && !n.left && n.quiet_ms().is_some_and(|ms| ms < LEAST_MS)
    }

    fn tell_unreached(&mut self, (from, to): (u32, u32), why: &str) {
        let [here, there] = [from, to].map(|node| self.node_name(node));
        let mut event = self.event(EventKind::LinkLost);
        event.node = Some(from);
        event.text = format!("it does not reach {there} {why}");
        self.log_event(event);
        self.looks.reach.lines += 1;
        match self.looks.reach.lines {
            1..=MOST_LINES => self.say(format!(
                "{here} does not reach {there} {why}; open the ports between them, or have them \
                 reach the controller by another network (--address), by which they then reach \
                 each other; if it lasts, one of them counts as lost"
            )),
            n if n == MOST_LINES + 1 => {
                self.say("more links between nodes are missed: eyrie status shows them");
            }
            _ => {}
        }
    }

    /// If a link is missed for too long, one of its ends is given up.
    fn end_of_reach(&mut self) {
        if self.rejoining.is_some() || self.exit_code.is_some() || !self.monitor.running() {
            return;
        }
        self.looks.reach.missed.retain(|_, entry| !entry.is_stale());
        let links = self.looks.reach.missed.iter();
        let links: Vec<Missed> = links
            .map(|((from, to), entry)| Missed { from: *from, to: *to, for_ms: entry.for_ms() })
            .collect();
        let ranks = |node: u32| self.placement.ranks_on(node).len();
        let Some(node) = gives_way(&links, ranks) else { return };
        let ends = links.iter().flat_map(|m| [(m.from, m.to), (m.to, m.from)]);
        let mut others: Vec<u32> = ends.filter(|(n, _)| *n == node).map(|(_, to)| to).collect();
        others.sort_unstable();
        others.dedup();
        let names: Vec<String> = others.into_iter().map(|n| self.node_name(n)).collect();
        let why = format!(
            "it and {} have not reached each other for {} s",
            names.join(", "),
            BORNE_MS / 1000
        );
        let epoch = self.nodes[node as usize].called();
        self.node_gone(node, epoch, &why);
    }

    /// A node is gone: what it missed, or was missed at, is over.
    pub(super) fn reach_without(&mut self, node: u32) {
        self.looks.reach.missed.retain(|(from, to), _| ![*from, *to].contains(&node));
    }

    /// All nodes are others from now on.
    pub(super) fn reach_anew(&mut self) {
        self.looks.reach.missed.clear();
    }

    /// Whom a node does not reach, for `eyrie status`.
    pub(super) fn unreached_status(&self, node: u32) -> Vec<UnreachedStatus> {
        let of = self.looks.reach.missed.range((node, 0)..=(node, u32::MAX));
        let now = of.filter(|(_, entry)| !entry.is_stale());
        now.map(|((_, to), entry)| UnreachedStatus {
            node: *to,
            for_ms: entry.for_ms + entry.heard.elapsed().as_millis() as u64,
            why: entry.why.clone(),
        })
        .collect()
    }
}
