//! Nodes that do not reach each other, though both are with the controller
//! (`protocol::connectivity`): it is said where, and why, and if it lasts one of them counts as
//! lost, so that its ranks come to where the others are reached.
//!
//! Kept true: what counts is the time in which both were heard of; of what was wanted between
//! earlier incarnations nothing counts. Links to other clusters are not told of: whoever blocks
//! these, or starts a gateway again, means them to wait.

use crate::Job;
use crate::nodes::membership::Nodes;
use crate::nodes::model::Entry;
use eyrie_control::EventKind;
use eyrie_control::node::Unreached;
use eyrie_control::status::UnreachedStatus;
use eyrie_protocol::connectivity::{Missed, gives_way};
use eyrie_protocol::membership::Member;
use eyrie_protocol::timing::seconds;

/// Most links of which there is a line; of all there are events.
const MOST_LINES: u32 = 8;

impl Nodes {
    /// Whether a node is in the job, and has said something just now.
    pub fn is_heard_of(&self, node: u32) -> bool {
        let n = &self.all[node as usize];
        n.is_live() && !n.left && n.is_heard_of()
    }

    /// A node is gone: what it missed, or was missed at, is over.
    pub fn forget_links_of(&mut self, node: u32) {
        self.connectivity.missed.retain(|(from, to), _| ![*from, *to].contains(&node));
    }

    /// All nodes are others from now on.
    pub fn forget_links(&mut self) {
        self.connectivity.missed.clear();
    }
}

impl Job {
    /// A node does not reach another one, or does again.
    pub(crate) fn unreached(&mut self, from: u32, said: Unreached) {
        let (clock, limits) = (self.clock.now(), self.spec.timing.intervals.limits);
        let (to, epoch) = said.to;
        let ends = [(from, said.epoch), (to, epoch)];
        let current = |(node, epoch): (u32, u64)| {
            (node as usize) < self.nodes.all.len()
                && self.nodes.member(node) == Member { node, epoch }
        };
        if from == to || !ends.into_iter().all(current) {
            return;
        }
        let link = (from, to);
        let alive = [from, to].into_iter().all(|node| self.nodes.is_heard_of(node));
        match said.for_ms {
            Some(for_ms) if alive => {
                let now = clock.moment();
                let why = match said.address {
                    Some(at) => format!("at {at}: {}", said.why),
                    None => said.why,
                };
                match self
                    .nodes
                    .connectivity
                    .missed
                    .get_mut(&link)
                    .filter(|e| !e.is_stale(&limits, clock))
                {
                    Some(entry) => (entry.heard, entry.for_ms, entry.why) = (now, for_ms, why),
                    None => {
                        self.tell_unreached(link, &why);
                        let entry = Entry { since: now, heard: now, for_ms, why };
                        self.nodes.connectivity.missed.insert(link, entry);
                    }
                }
                self.give_up_unreached();
            }
            // It may stand still, which is noticed elsewhere.
            Some(_) => drop(self.nodes.connectivity.missed.remove(&link)),
            None => {
                if let Some(entry) = self.nodes.connectivity.missed.remove(&link) {
                    let mut event = self.clock.event(EventKind::LinkBack);
                    event.node = Some(from);
                    event.took_ms = Some(entry.since.elapsed_ms(clock));
                    event.text = format!("to node {to}");
                    self.journal.log_event(event);
                }
            }
        }
    }

    fn tell_unreached(&mut self, (from, to): (u32, u32), why: &str) {
        let [here, there] = [from, to].map(|node| self.nodes.node_name(node));
        let mut event = self.clock.event(EventKind::LinkLost);
        event.node = Some(from);
        event.text = format!("it does not reach {there} {why}");
        self.journal.log_event(event);
        self.nodes.connectivity.lines += 1;
        match self.nodes.connectivity.lines {
            1..=MOST_LINES => self.journal.say(format!(
                "{here} does not reach {there} {why}; open the ports between them, or have them \
                 reach the controller by another network (--address), by which they then reach \
                 each other; if it lasts, one of them counts as lost"
            )),
            n if n == MOST_LINES + 1 => {
                self.journal.say("more links between nodes are missed: eyrie status shows them");
            }
            _ => {}
        }
    }

    /// If a link is missed for too long, one of its ends is given up.
    fn give_up_unreached(&mut self) {
        let (clock, detector) = (self.clock.now(), self.spec.timing.intervals.detector);
        if self.nodes.rejoining.is_some()
            || self.end.exit_code.is_some()
            || !self.recovery.monitor.running()
        {
            return;
        }
        let limits = self.spec.timing.intervals.limits;
        self.nodes.connectivity.missed.retain(|_, entry| !entry.is_stale(&limits, clock));
        let links = self.nodes.connectivity.missed.iter();
        let links: Vec<Missed> = links
            .map(|((from, to), entry)| {
                let for_ms = entry.for_ms(&detector, clock);
                Missed { from: *from, to: *to, for_ms }
            })
            .collect();
        let ranks = |node: u32| self.nodes.placement.ranks_on(node).len();
        let Some(node) = gives_way(&detector, &links, ranks) else { return };
        let ends = links.iter().flat_map(|m| [(m.from, m.to), (m.to, m.from)]);
        let mut others: Vec<u32> = ends.filter(|(n, _)| *n == node).map(|(_, to)| to).collect();
        others.sort_unstable();
        others.dedup();
        let names: Vec<String> = others.into_iter().map(|n| self.nodes.node_name(n)).collect();
        let why = format!(
            "it and {} have not reached each other for {} s",
            names.join(", "),
            seconds(detector.missed_ms())
        );
        let epoch = self.nodes.all[node as usize].called();
        self.node_gone(node, epoch, &why);
    }

    /// Whom a node does not reach, for `eyrie status`.
    pub(crate) fn unreached_status(&self, node: u32) -> Vec<UnreachedStatus> {
        let (clock, limits) = (self.clock.now(), self.spec.timing.intervals.limits);
        let of = self.nodes.connectivity.missed.range((node, 0)..=(node, u32::MAX));
        let now = of.filter(|(_, entry)| !entry.is_stale(&limits, clock));
        now.map(|((_, to), entry)| UnreachedStatus {
            node: *to,
            for_ms: entry.for_ms + entry.heard.elapsed(clock).as_millis() as u64,
            why: entry.why.clone(),
        })
        .collect()
    }
}
