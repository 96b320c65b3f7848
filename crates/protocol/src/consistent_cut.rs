//! One moment at which no rank of a job runs: each node stops its ranks, reads what is to be read,
//! says so, and lets them go on when that is ordered, or by itself when it takes too long.
//!
//! Pure, run by the controller. Kept true: a moment counts only if every node had stopped its ranks
//! before the first one was told to let them go on, and none did so by itself; all that take part
//! are told to, once, whatever happens.

use std::collections::BTreeSet;

/// How it stands with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Tell these that their ranks go on.
    GoOn(BTreeSet<u32>),
    /// All ranks go on; why it does not count.
    Over(Option<String>),
}

/// The moment, until all ranks go on.
#[derive(Debug, Clone)]
pub struct ConsistentCut {
    /// Nodes whose ranks do not all stand yet.
    moving: BTreeSet<u32>,
    /// Nodes of which it is not known that their ranks go on.
    standing: BTreeSet<u32>,
    told: bool,
    failed: Option<String>,
}

impl ConsistentCut {
    pub fn new(nodes: BTreeSet<u32>) -> ConsistentCut {
        ConsistentCut { moving: nodes.clone(), standing: nodes, told: false, failed: None }
    }

    /// The ranks of a node stand, and what is to be read is read; or that cannot be had.
    pub fn stands(&mut self, node: u32, result: Result<(), String>) -> Vec<Verdict> {
        self.moving.remove(&node);
        if let Err(why) = result {
            self.failed.get_or_insert(why);
        }
        self.verdict()
    }

    /// The ranks of a node go on. `whole`: they stood until that was ordered.
    pub fn goes_on(&mut self, node: u32, whole: bool) -> Vec<Verdict> {
        let awaited = self.standing.remove(&node);
        if awaited && !(whole && self.told) {
            self.failed.get_or_insert_with(|| String::from("not all ranks stood long enough"));
        }
        self.verdict()
    }

    /// A node that is lost says nothing any more.
    pub fn lost(&mut self, node: u32) -> Vec<Verdict> {
        if self.standing.remove(&node) {
            self.failed.get_or_insert_with(|| String::from("a node is lost"));
        }
        self.verdict()
    }

    fn verdict(&mut self) -> Vec<Verdict> {
        let mut all = Vec::new();
        let stood = self.moving.is_empty() || self.failed.is_some();
        if stood && !std::mem::replace(&mut self.told, true) && !self.standing.is_empty() {
            all.push(Verdict::GoOn(self.standing.clone()));
        }
        if self.standing.is_empty() {
            all.push(Verdict::Over(self.failed.clone()));
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> BTreeSet<u32> {
        BTreeSet::from([0, 1, 2])
    }

    fn failed(all: &[Verdict]) -> &str {
        match all {
            [Verdict::Over(Some(why))] => why,
            _ => panic!("{all:?}"),
        }
    }

    #[test]
    fn ranks_go_on_when_the_last_one_stands() {
        let mut cut = ConsistentCut::new(all());
        assert_eq!(cut.stands(1, Ok(())), []);
        assert_eq!(cut.stands(0, Ok(())), []);
        assert_eq!(cut.stands(2, Ok(())), [Verdict::GoOn(all())]);
        assert_eq!(cut.goes_on(0, true), []);
        assert_eq!(cut.goes_on(2, true), []);
        assert_eq!(cut.goes_on(1, true), [Verdict::Over(None)]);
    }

    #[test]
    fn one_that_cannot_be_stopped_lets_all_go() {
        let mut cut = ConsistentCut::new(all());
        assert_eq!(cut.stands(1, Err("busy".into())), [Verdict::GoOn(all())]);
        assert_eq!(cut.goes_on(1, false), []);
        assert_eq!(cut.stands(0, Ok(())), []);
        assert_eq!(cut.goes_on(0, true), []);
        assert_eq!(failed(&cut.goes_on(2, true)), "busy");
    }

    #[test]
    fn one_that_did_not_wait_makes_it_void() {
        // Before the last one stands.
        let mut cut = ConsistentCut::new(all());
        cut.stands(0, Ok(()));
        assert_eq!(cut.goes_on(0, false), [Verdict::GoOn(BTreeSet::from([1, 2]))]);
        assert_eq!(cut.stands(1, Ok(())), []);
        assert_eq!(cut.goes_on(1, true), []);
        assert!(failed(&cut.goes_on(2, true)).contains("long enough"));
        // After it, when the order is on its way.
        let mut cut = ConsistentCut::new(all());
        (0..3).for_each(|node| drop(cut.stands(node, Ok(()))));
        cut.goes_on(0, true);
        cut.goes_on(1, false);
        assert!(failed(&cut.goes_on(2, true)).contains("long enough"));
    }

    #[test]
    fn nobody_waits_for_a_node_that_is_lost() {
        let mut cut = ConsistentCut::new(all());
        cut.stands(0, Ok(()));
        cut.stands(1, Ok(()));
        assert_eq!(cut.lost(2), [Verdict::GoOn(BTreeSet::from([0, 1]))]);
        cut.goes_on(0, true);
        assert_eq!(failed(&cut.lost(1)), "a node is lost");
        // One that does not take part is none of its business.
        let mut cut = ConsistentCut::new(all());
        assert_eq!(cut.lost(7), []);
    }
}
