//! Nodes that the controller reaches, and that do not reach each other: a firewall between hosts,
//! an interface that not all of them see. Nothing goes between their ranks, so the job would wait
//! for ever; one of the two has to go.
//!
//! Pure: the caller says which links are missed, for how long, and that both their ends live. Kept
//! true: nobody goes before a link has been missed for as long as the longest silence that is borne
//! of a node; who goes is an end of such a link, the one that most others miss, or misses most, so
//! that of a node that is cut off from several only that one goes.

use crate::timing::Detector;
use std::collections::BTreeSet;

impl Detector {
    /// A link that is missed for so long is told of.
    pub const fn told_ms(&self) -> u64 {
        self.silence_most_ms / 4
    }

    /// How long a link is missed before one of its ends goes.
    pub const fn missed_ms(&self) -> u64 {
        self.silence_most_ms
    }
}

/// A link that is wanted and does not come about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Missed {
    pub from: u32,
    pub to: u32,
    pub for_ms: u64,
}

impl Missed {
    /// The other end, if `node` is one.
    fn other(&self, node: u32) -> Option<u32> {
        match node {
            n if n == self.from => Some(self.to),
            n if n == self.to => Some(self.from),
            _ => None,
        }
    }
}

/// The node that has to go, if one has. Among those that as many others miss it is the one with the
/// fewest ranks, as fewest have to come back; then the last, as the ranks began on the first.
pub fn gives_way(
    detector: &Detector,
    missed: &[Missed],
    ranks: impl Fn(u32) -> usize,
) -> Option<u32> {
    let told: Vec<&Missed> = missed.iter().filter(|m| m.for_ms >= detector.told_ms()).collect();
    let others = |node: u32| {
        let others: BTreeSet<u32> = told.iter().filter_map(|m| m.other(node)).collect();
        others.len()
    };
    let over = told.iter().filter(|m| m.for_ms >= detector.missed_ms());
    let ends = over.flat_map(|m| [m.from, m.to]);
    ends.max_by_key(|node| (others(*node), std::cmp::Reverse(ranks(*node)), *node))
}

#[cfg(test)]
mod tests {
    use super::*;

    const D: Detector = Detector::DEFAULT;
    const TOLD_MS: u64 = D.told_ms();
    const BORNE_MS: u64 = D.missed_ms();

    fn missed(links: &[(u32, u32)], for_ms: u64) -> Vec<Missed> {
        links.iter().map(|(from, to)| Missed { from: *from, to: *to, for_ms }).collect()
    }

    fn one(_: u32) -> usize {
        1
    }

    #[test]
    fn nobody_goes_before_its_time() {
        assert_eq!(gives_way(&D, &[], one), None);
        assert_eq!(gives_way(&D, &missed(&[(0, 1), (1, 0)], BORNE_MS - 1), one), None);
        assert_eq!(gives_way(&D, &missed(&[(0, 1)], BORNE_MS), one), Some(1));
    }

    #[test]
    fn who_is_missed_by_most_goes_whichever_end_tells() {
        let cut_off = [(0, 2), (1, 2), (3, 2), (2, 0)];
        assert_eq!(gives_way(&D, &missed(&cut_off, BORNE_MS), one), Some(2));
        // Also with more ranks than the others, and when it is the only one that tells.
        assert_eq!(gives_way(&D, &missed(&cut_off, BORNE_MS), |n| n as usize), Some(2));
        assert_eq!(gives_way(&D, &missed(&[(2, 0), (2, 1), (2, 3)], BORNE_MS), one), Some(2));
        // The same link missed from both ends counts once.
        let twice = missed(&[(0, 1), (1, 0), (1, 2)], BORNE_MS);
        assert_eq!(gives_way(&D, &twice, one), Some(1));
    }

    #[test]
    fn what_is_missed_for_less_than_that_counts_only_when_it_is_told() {
        let mut all = missed(&[(0, 3)], BORNE_MS);
        all.extend(missed(&[(0, 1), (0, 2)], TOLD_MS));
        assert_eq!(gives_way(&D, &all, one), Some(0));
        let mut all = missed(&[(0, 3)], BORNE_MS);
        all.extend(missed(&[(0, 1), (0, 2)], TOLD_MS - 1));
        assert_eq!(gives_way(&D, &all, one), Some(3));
        // An end of what is missed for long goes, and nobody else.
        let mut all = missed(&[(0, 3)], BORNE_MS);
        all.extend(missed(&[(1, 2), (2, 4), (2, 5)], TOLD_MS));
        assert_eq!(gives_way(&D, &all, one), Some(3));
    }

    #[test]
    fn of_two_the_one_with_fewer_ranks_goes_then_the_last() {
        let pair = missed(&[(1, 4)], BORNE_MS);
        assert_eq!(gives_way(&D, &pair, |n| if n == 1 { 0 } else { 2 }), Some(1));
        assert_eq!(gives_way(&D, &pair, |n| if n == 4 { 0 } else { 2 }), Some(4));
        assert_eq!(gives_way(&D, &pair, one), Some(4));
    }

    #[test]
    fn one_after_the_other_goes_until_all_that_are_left_reach_each_other() {
        let mut links = vec![(0, 1), (1, 2), (2, 0), (3, 4)];
        let mut gone = Vec::new();
        while let Some(node) = gives_way(&D, &missed(&links, BORNE_MS), one) {
            links.retain(|(from, to)| ![*from, *to].contains(&node));
            gone.push(node);
        }
        assert_eq!(gone, [2, 4, 1]);
    }
}
