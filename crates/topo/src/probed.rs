//! What was measured between hosts, made into the description of a network: hosts that are as near
//! and as fast to each other are at one switch, and switches are joined by links as fast as was
//! measured between their hosts, all at one time.
//!
//! Left to the caller: to measure. It does so in two steps, as the second goes by the groups that
//! are found in the first. What pairs alone do not show is not found: where two hosts get as much
//! from far as from near, in the same time, they are taken for neighbours.

use std::fmt::Write as _;

/// Hosts of a group get this part of the most that either of them gets from anybody.
const LEAST_PART: f64 = 0.7;
/// So much longer than to the nearest host a message may take within a group.
const MOST_TIMES: f64 = 3.0;
/// Times that are less apart are the same: hosts are busy at times.
const APART_S: f64 = 50e-6;
/// Pairs that are measured at one time between two groups.
const MOST_AT_ONCE: usize = 16;

/// What one host sends to another, with nothing else under way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Way {
    /// One way, of the smallest message.
    pub latency_s: f64,
    pub bytes_per_s: f64,
}

/// Hosts, and what each sends to each.
#[derive(Debug, Clone)]
pub struct Measured {
    pub names: Vec<String>,
    /// From the first to the second; not to itself.
    pub ways: Vec<Vec<Option<Way>>>,
}

/// What all pairs between two groups got together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trunk {
    pub groups: (usize, usize),
    pub bytes_per_s: f64,
}

impl Measured {
    pub fn new(names: Vec<String>) -> Measured {
        let ways = vec![vec![None; names.len()]; names.len()];
        Measured { names, ways }
    }

    /// What two hosts get of each other, the better way.
    fn between(&self, one: usize, other: usize) -> Option<Way> {
        match (self.ways[one][other], self.ways[other][one]) {
            (Some(a), Some(b)) => Some(Way {
                latency_s: a.latency_s.min(b.latency_s),
                bytes_per_s: a.bytes_per_s.max(b.bytes_per_s),
            }),
            (way, None) | (None, way) => way,
        }
    }

    /// The most that a host gets of any, and the least time.
    fn best(&self, host: usize) -> Way {
        let start = Way { latency_s: f64::INFINITY, bytes_per_s: 0.0 };
        let all = (0..self.names.len()).filter_map(|other| self.between(host, other));
        all.fold(start, |best, way| Way {
            latency_s: best.latency_s.min(way.latency_s),
            bytes_per_s: best.bytes_per_s.max(way.bytes_per_s),
        })
    }

    /// Hosts that are near each other, in order.
    pub fn groups(&self) -> Vec<Vec<usize>> {
        let count = self.names.len();
        let best: Vec<Way> = (0..count).map(|host| self.best(host)).collect();
        let is_near = |one: usize, other: usize| {
            self.between(one, other).is_some_and(|way| {
                let (a, b) = (best[one], best[other]);
                let least_s = a.latency_s.min(b.latency_s);
                way.bytes_per_s >= LEAST_PART * a.bytes_per_s.max(b.bytes_per_s)
                    && way.latency_s <= MOST_TIMES * least_s + APART_S
            })
        };
        let mut group_of: Vec<Option<usize>> = vec![None; count];
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for first in 0..count {
            if group_of[first].is_some() {
                continue;
            }
            let (number, mut members, mut next) = (groups.len(), vec![first], 0);
            group_of[first] = Some(number);
            while let Some(host) = members.get(next).copied() {
                next += 1;
                for (other, group) in group_of.iter_mut().enumerate() {
                    if group.is_none() && is_near(host, other) {
                        *group = Some(number);
                        members.push(other);
                    }
                }
            }
            members.sort_unstable();
            groups.push(members);
        }
        groups
    }

    /// The description, as the reader of topologies takes it.
    pub fn describe(&self, groups: &[Vec<usize>], trunks: &[Trunk]) -> String {
        let best: Vec<f64> =
            (0..self.names.len()).map(|host| self.best(host).bytes_per_s.max(1.0)).collect();
        let base = best.iter().copied().fold(1.0, f64::max);
        let mut text = format!(
            "# Measured between {} hosts, one pair after the other: from, to, latency, bandwidth\n",
            self.names.len()
        );
        for (from, ways) in self.names.iter().zip(&self.ways) {
            for (to, way) in self.names.iter().zip(ways) {
                let Some(way) = way else { continue };
                let (us, mb) = (way.latency_s * 1e6, way.bytes_per_s / 1e6);
                let _ = writeln!(text, "# {from} {to} {us:.1} us {mb:.2} MB/s");
            }
        }
        let _ = writeln!(text, "graph\nbandwidth {:.3}M", (base / 1e6).max(0.001));
        let _ = writeln!(text, "node {}", self.names.join(" "));
        let switch = |group: usize| format!("switch-{}", group + 1);
        let switches: Vec<String> = (0..groups.len()).map(switch).collect();
        let _ = writeln!(text, "switch {}", switches.join(" "));
        let speed = |bytes_per_s: f64| (bytes_per_s / base).clamp(1e-5, 1e6);
        for (group, members) in groups.iter().enumerate() {
            for host in members {
                let (name, speed) = (&self.names[*host], speed(best[*host]));
                let _ = writeln!(text, "link {name} {} {speed:.5}", switch(group));
            }
        }
        for trunk in trunks {
            let ((one, other), speed) = (trunk.groups, speed(trunk.bytes_per_s));
            let _ = writeln!(text, "link {} {} {speed:.5}", switch(one), switch(other));
        }
        text
    }
}

/// Pairs of hosts that send at one time from one group to another.
pub fn at_once(from: &[usize], to: &[usize]) -> Vec<(usize, usize)> {
    from.iter().copied().zip(to.iter().copied()).take(MOST_AT_ONCE).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader;

    fn measured(count: usize, way: impl Fn(usize, usize) -> (f64, f64)) -> Measured {
        let mut all = Measured::new((0..count).map(|n| format!("10.80.0.{n}")).collect());
        for from in 0..count {
            for to in (0..count).filter(|to| *to != from) {
                let (latency_s, bytes_per_s) = way(from, to);
                all.ways[from][to] = Some(Way { latency_s, bytes_per_s });
            }
        }
        all
    }

    #[test]
    fn hosts_that_are_far_or_slow_to_each_other_are_of_two_groups() {
        let flat = measured(4, |from, to| (20e-6 + (from + to) as f64 * 1e-6, 1e9));
        assert_eq!(flat.groups(), [vec![0, 1, 2, 3]]);
        let slow = measured(5, |from, to| (20e-6, if from % 2 == to % 2 { 1e9 } else { 0.5e9 }));
        assert_eq!(slow.groups(), [vec![0, 2, 4], vec![1, 3]]);
        let far = measured(4, |from, to| (if from / 2 == to / 2 { 20e-6 } else { 5e-3 }, 1e9));
        assert_eq!(far.groups(), [vec![0, 1], vec![2, 3]]);
        let alone = measured(3, |from, to| if from + to == 1 { (20e-6, 1e9) } else { (1e-2, 1e7) });
        assert_eq!(alone.groups(), [vec![0, 1], vec![2]]);
        assert_eq!(measured(2, |_, _| (1e-2, 1e6)).groups(), [vec![0, 1]]);
    }

    #[test]
    fn what_is_measured_is_a_network() {
        let two =
            measured(4, |from, to| if from / 2 == to / 2 { (20e-6, 1e9) } else { (1e-3, 2e8) });
        let groups = two.groups();
        let text = two.describe(&groups, &[Trunk { groups: (0, 1), bytes_per_s: 2.5e8 }]);
        let network = reader::read_topology(&text).unwrap();
        assert_eq!((network.nodes(), network.hardware.link_bytes_per_s), (4, 1e9));
        let mut links = Vec::new();
        let host = |name| network.host(name).unwrap();
        network.shape.route(host("10.80.0.0"), host("10.80.0.3"), 0, &mut links);
        let speeds: Vec<f64> = links.iter().map(|link| network.shape.capacity(*link)).collect();
        assert_eq!(speeds, [1.0, 0.25, 1.0]);
        assert!(text.contains("# 10.80.0.0 10.80.0.3 1000.0 us 200.00 MB/s"), "{text}");
    }

    #[test]
    fn pairs_at_one_time_have_no_host_in_common() {
        assert_eq!(at_once(&[0, 2, 5], &[1, 7]), [(0, 1), (2, 7)]);
        let many: Vec<usize> = (0..40).collect();
        assert_eq!(at_once(&many, &many).len(), MOST_AT_ONCE);
    }
}
