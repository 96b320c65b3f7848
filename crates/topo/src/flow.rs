//! Messages as flows: what shares a link, a node's memory or an engine gets equal parts of it, as
//! far as nothing else holds it back (max-min fairness). When a message ends, the others get its
//! part, and the next one of its engine begins; so messages that start late collide with those that
//! are left.
//!
//! Times are in bytes at the speed of a link: a message alone takes as long as it has bytes.

use crate::network::Network;
use crate::pattern::Pattern;
use crate::situation::Situation;

/// What is left of a message counts as nothing below this part of it.
const NEGLIGIBLE: f64 = 1e-9;
/// No message.
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// When the last message ends.
    pub total: f64,
    /// When each ends.
    pub ends: Vec<f64>,
    /// How often rates changed.
    pub steps: u32,
}

/// When each message of a pattern ends, if all ranks start theirs at one time.
pub fn simulate(network: &Network, pattern: &Pattern, situation: &Situation) -> Timing {
    let mut flows = Flows::new(network, pattern, situation);
    let mut timing = Timing { total: 0.0, ends: vec![0.0; pattern.messages.len()], steps: 0 };
    let mut left: Vec<f64> = pattern.messages.iter().map(|message| message.bytes).collect();
    let mut active = flows.firsts.clone();
    while !active.is_empty() {
        flows.share(&active);
        let time = active.iter().map(|flow| left[*flow as usize] / flows.rates[*flow as usize]);
        let time = time.fold(f64::INFINITY, f64::min);
        timing.total += time;
        timing.steps += 1;
        let mut at = 0;
        while at < active.len() {
            let flow = active[at] as usize;
            let rest = left[flow] - flows.rates[flow] * time;
            // Not `<=` alone: an infinite rate leaves no number.
            if rest > pattern.messages[flow].bytes * NEGLIGIBLE {
                left[flow] = rest;
                at += 1;
                continue;
            }
            timing.ends[flow] = timing.total;
            match flows.next[flow] {
                NONE => {
                    active.swap_remove(at);
                }
                // It starts with the next step: behind those that are looked at in this one.
                next => {
                    active.swap_remove(at);
                    flows.begun.push(next);
                }
            }
        }
        active.append(&mut flows.begun);
    }
    timing
}

/// What each message needs, and what there is of it.
struct Flows {
    /// Of each message: its part of `uses`.
    start: Vec<u32>,
    uses: Vec<u32>,
    capacity: Vec<f64>,
    /// The message that its engine sends after it.
    next: Vec<u32>,
    firsts: Vec<u32>,
    begun: Vec<u32>,
    rates: Vec<f64>,
    // Of each thing that is shared, while parts are made.
    rest: Vec<f64>,
    count: Vec<u32>,
    is_tight: Vec<bool>,
}

/// Gives numbers to what is used at all.
struct Numbering {
    numbers: Vec<u32>,
    capacity: Vec<f64>,
}

impl Numbering {
    fn number(&mut self, thing: usize, capacity: f64) -> u32 {
        if self.numbers[thing] == NONE {
            self.numbers[thing] = self.capacity.len() as u32;
            self.capacity.push(capacity);
        }
        self.numbers[thing]
    }
}

impl Flows {
    fn new(network: &Network, pattern: &Pattern, situation: &Situation) -> Flows {
        let (links, nodes) = (network.shape.links() as usize, network.nodes() as usize);
        let engines = network.hardware.engines as usize;
        let memory = network.hardware.memory_links;
        // Links; memory that is read and written; engines that take messages.
        let things = links + nodes * 2 + nodes * engines;
        let mut numbering = Numbering { numbers: vec![NONE; things], capacity: Vec::new() };
        let mut last_of_engine = vec![NONE; nodes * engines];
        let count = pattern.messages.len();
        let (mut start, mut uses) = (Vec::with_capacity(count + 1), Vec::new());
        let (mut next, mut firsts) = (vec![NONE; count], Vec::new());
        let mut way = Vec::new();
        for (flow, message) in (0u32..).zip(&pattern.messages) {
            start.push(uses.len() as u32);
            way.clear();
            situation.route(network, message, &mut way);
            let of = |rank: u32| situation.node_of[rank as usize] as usize;
            let (from, to) = (of(message.from), of(message.to));
            for link in &way {
                let capacity = network.shape.capacity(*link);
                uses.push(numbering.number(*link as usize, capacity));
            }
            if memory.is_finite() {
                uses.push(numbering.number(links + from * 2, memory));
                uses.push(numbering.number(links + to * 2 + 1, memory));
            }
            if engines == 0 {
                firsts.push(flow);
                continue;
            }
            let lane = message.lane as usize % engines;
            uses.push(numbering.number(links + nodes * 2 + to * engines + lane, 1.0));
            match std::mem::replace(&mut last_of_engine[from * engines + lane], flow) {
                NONE => firsts.push(flow),
                before => next[before as usize] = flow,
            }
        }
        start.push(uses.len() as u32);
        let capacity = numbering.capacity;
        let (rest, shared) = (capacity.clone(), vec![0; capacity.len()]);
        let (is_tight, rates) = (vec![false; capacity.len()], vec![0.0; count]);
        let begun = Vec::new();
        Flows { start, uses, capacity, next, firsts, begun, rates, rest, count: shared, is_tight }
    }

    fn uses_of(&self, flow: u32) -> std::ops::Range<usize> {
        self.start[flow as usize] as usize..self.start[flow as usize + 1] as usize
    }

    /// Gives each active message its part.
    fn share(&mut self, active: &[u32]) {
        let mut things = Vec::new();
        for flow in active {
            for at in self.uses_of(*flow) {
                let thing = self.uses[at] as usize;
                if self.count[thing] == 0 {
                    self.rest[thing] = self.capacity[thing];
                    things.push(thing);
                }
                self.count[thing] += 1;
            }
        }
        let mut open = active.to_vec();
        while !open.is_empty() {
            let part = |thing: &usize| self.rest[*thing].max(0.0) / f64::from(self.count[*thing]);
            let least = things.iter().map(part).fold(f64::INFINITY, f64::min);
            // What is all but as tight is so, too: rates that are equal stay equal.
            let tight: Vec<usize> = things
                .iter()
                .copied()
                .filter(|thing| part(thing) <= least * (1.0 + 1e-9))
                .collect();
            tight.iter().for_each(|thing| self.is_tight[*thing] = true);
            let mut kept = Vec::with_capacity(open.len());
            for flow in open {
                let is_held = least.is_infinite()
                    || self.uses_of(flow).any(|at| self.is_tight[self.uses[at] as usize]);
                if !is_held {
                    kept.push(flow);
                    continue;
                }
                self.rates[flow as usize] = least;
                for at in self.uses_of(flow) {
                    let thing = self.uses[at] as usize;
                    self.rest[thing] -= least;
                    self.count[thing] -= 1;
                }
            }
            tight.iter().for_each(|thing| self.is_tight[*thing] = false);
            things.retain(|thing| self.count[*thing] > 0);
            open = kept;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{Hardware, Names};
    use crate::pattern::Message;
    use crate::shape::Grid;
    use std::collections::HashMap;

    fn line(nodes: u32, hardware: Hardware) -> Network {
        let shape = Box::new(Grid::new(&[nodes], &[false]).unwrap());
        Network { shape, names: Names::default(), hardware, lattice: None }
    }

    fn timed(network: &Network, messages: &[(u32, u32, f64, u32)]) -> Timing {
        let message =
            |m: &(u32, u32, f64, u32)| Message { from: m.0, to: m.1, bytes: m.2, lane: m.3 };
        let messages = messages.iter().map(message).collect();
        let pattern = Pattern { ranks: network.nodes(), messages };
        let node_of = (0..network.nodes()).collect();
        let situation = Situation { node_of, spares: Vec::new(), ways: HashMap::new() };
        simulate(network, &pattern, &situation)
    }

    fn near(found: &[f64], expected: &[f64]) {
        let is_near = found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6 * b.max(1.0));
        assert!(is_near && found.len() == expected.len(), "{found:?}, not {expected:?}");
    }

    #[test]
    fn messages_that_share_a_link_take_as_long_as_all_of_them() {
        let network = line(4, Hardware::default());
        near(&timed(&network, &[(0, 1, 8.0, 0)]).ends, &[8.0]);
        near(&timed(&network, &[(0, 1, 8.0, 0), (1, 2, 8.0, 0)]).ends, &[8.0, 8.0]);
        near(&timed(&network, &[(0, 2, 8.0, 0), (1, 2, 8.0, 0)]).ends, &[16.0, 16.0]);
        // The other direction is another link.
        near(&timed(&network, &[(0, 1, 8.0, 0), (1, 0, 8.0, 0)]).ends, &[8.0, 8.0]);
    }

    #[test]
    fn who_is_left_gets_what_others_had() {
        let network = line(4, Hardware::default());
        // Half each until the small one ends at 4; then 6 of 8 are left, alone.
        near(&timed(&network, &[(0, 1, 8.0, 0), (0, 1, 2.0, 0)]).ends, &[10.0, 4.0]);
        // Link 1-2 has three, 0-1 two of them: a third each. From 6 on, when the first ends, the
        // two others have half each of 1-2 for their remaining 4.
        let ends = timed(&network, &[(1, 2, 2.0, 0), (0, 2, 6.0, 0), (0, 3, 6.0, 1)]).ends;
        near(&ends, &[6.0, 14.0, 14.0]);
    }

    #[test]
    fn parts_are_max_min_fair() {
        // Link 0-1 has one message and link 1-2 three; the one that passes both has a third, and
        // the other on 0-1 two thirds.
        let network = line(4, Hardware::default());
        let messages = [(0, 1, 2.0, 0), (0, 2, 3.0, 0), (1, 2, 3.0, 0), (1, 3, 3.0, 0)];
        near(&timed(&network, &messages).ends, &[3.0, 9.0, 9.0, 9.0]);
    }

    #[test]
    fn memory_is_a_limit() {
        let network = line(3, Hardware { memory_links: 1.5, ..Hardware::default() });
        // The middle sends two at one time, and takes two.
        let messages = [(1, 0, 3.0, 0), (1, 2, 3.0, 1), (0, 1, 3.0, 0), (2, 1, 3.0, 0)];
        near(&timed(&network, &messages).ends, &[4.0; 4]);
    }

    #[test]
    fn an_engine_sends_one_message_at_a_time() {
        let network = line(3, Hardware { engines: 1, ..Hardware::default() });
        near(&timed(&network, &[(1, 0, 3.0, 0), (1, 2, 3.0, 1)]).ends, &[3.0, 6.0]);
        // With two the second does not wait.
        let network = line(3, Hardware { engines: 2, ..Hardware::default() });
        near(&timed(&network, &[(1, 0, 3.0, 0), (1, 2, 3.0, 1)]).ends, &[3.0, 3.0]);
        // Two that arrive at the same engine share it.
        near(&timed(&network, &[(0, 1, 3.0, 0), (2, 1, 3.0, 0)]).ends, &[6.0, 6.0]);
        near(&timed(&network, &[(0, 1, 3.0, 0), (2, 1, 3.0, 1)]).ends, &[3.0, 3.0]);
    }

    #[test]
    fn ranks_of_one_node_use_no_link() {
        let network = line(2, Hardware::default());
        let messages = vec![Message { from: 0, to: 1, bytes: 5.0, lane: 0 }];
        let pattern = Pattern { ranks: 2, messages };
        let situation = Situation { node_of: vec![0, 0], spares: vec![1], ways: HashMap::new() };
        assert_eq!(simulate(&network, &pattern, &situation).total, 0.0);
    }
}
