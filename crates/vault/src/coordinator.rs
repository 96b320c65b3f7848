//! The commit of a generation over all members, from the controller's side: without I/O.
//!
//! Every member has written its payload and offers it; all encode; each says when what it has is
//! durable; only when all have said so is the generation decided, and the record that says so is
//! written by every member. It counts when in some group more members have that record than may be
//! lost. Until the decision any failure ends it everywhere.
//!
//! Kept true: it is committed whole or nowhere. See `recovery` for what follows of half a commit.

use crate::change::Runs;
use crate::flow::{self, Encoder};
use crate::geometry::{CHUNK_BYTES, Geometry};
use crate::record::{Commit, MAX_WHY_BYTES, Made, Summary};
use crate::scheme::Scheme;
use std::collections::{BTreeMap, BTreeSet};

/// What the controller is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A member wrote its payload. Of the summary all is known but the parity.
    Offered(Summary),
    /// The same, of a payload that is as that of an earlier generation but for these chunks.
    Changed(Summary, Runs),
    /// All that a member has is durable.
    Prepared(Summary),
    /// A member has the record of the commit, durably.
    Committed { node: u32 },
    /// A member cannot go on.
    Failed { node: u32, why: String },
    /// A member is gone.
    Lost { node: u32 },
}

impl Event {
    /// Bytes of the payload that is offered; none if nothing is.
    pub fn payload(&self) -> u64 {
        match self {
            Event::Offered(offer) | Event::Changed(offer, _) => offer.payload,
            _ => 0,
        }
    }
}

/// What the controller is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Tell the members of a group to encode payloads of these lengths, in the order of the group.
    Encode { group: usize, payloads: Vec<u64>, encoder: Encoder },
    /// The same, by updating the parity of the earlier generation: these chunks differ, of each
    /// member.
    Update { group: usize, payloads: Vec<u64>, changed: Vec<Runs>, encoder: Encoder },
    /// Tell all members to commit.
    Commit(Commit),
    /// Tell all members to remove what they have of the generation.
    Abort,
    /// It is over.
    Ended(Outcome),
}

/// How it ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The generation exists, and does whichever members are lost from now on, as many as the
    /// scheme tolerates.
    Committed,
    /// It does not exist.
    Aborted { why: String },
    /// It was decided, but too many members were lost at once to know that it will last.
    Uncertain,
}

/// Picks the encoder for payloads of these lengths.
pub type Choose = Box<dyn Fn(&[u64]) -> Encoder>;

/// Whether to update, and why: by the lengths of the payloads, and how many bytes of each changed.
pub type Prefer = Box<dyn Fn(&[u64], &[u64]) -> (bool, String)>;

/// The generation whose parity may be updated.
pub struct Base {
    pub commit: Commit,
    /// An encoder to use whatever the bytes say.
    pub encoder: Option<Encoder>,
    pub prefer: Prefer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Offering,
    Preparing,
    Committing,
    Ended,
}

/// The controller of one generation.
pub struct Coordinator {
    vault: [u8; 16],
    generation: u64,
    term: u64,
    scheme: Scheme,
    groups: Vec<Vec<u32>>,
    choose: Choose,
    base: Option<Base>,
    made: Made,
    why: String,
    phase: Phase,
    offers: BTreeMap<u32, Summary>,
    changed: BTreeMap<u32, Runs>,
    prepared: BTreeMap<u32, Summary>,
    committed: BTreeSet<u32>,
    lost: BTreeSet<u32>,
}

impl Coordinator {
    pub fn new(
        vault: [u8; 16],
        (generation, term): (u64, u64),
        scheme: Scheme,
        groups: Vec<Vec<u32>>,
        choose: Choose,
    ) -> Coordinator {
        Coordinator {
            vault,
            generation,
            term,
            scheme,
            groups,
            choose,
            base: None,
            made: Made::Anew,
            why: String::new(),
            phase: Phase::Offering,
            offers: BTreeMap::new(),
            changed: BTreeMap::new(),
            prepared: BTreeMap::new(),
            committed: BTreeSet::new(),
            lost: BTreeSet::new(),
        }
    }

    /// The same, of payloads that are those of an earlier generation with changes.
    #[must_use]
    pub fn over(self, base: Option<Base>) -> Coordinator {
        Coordinator { base, ..self }
    }

    /// Why it is made so.
    #[must_use]
    pub fn because(self, why: String) -> Coordinator {
        Coordinator { why, ..self }
    }

    pub fn handle(&mut self, event: Event) -> Vec<Action> {
        match (self.phase, event) {
            (Phase::Ended, _) => Vec::new(),
            (Phase::Committing, Event::Lost { node } | Event::Failed { node, .. }) => {
                self.lost.insert(node);
                self.count()
            }
            (_, Event::Lost { node }) => self.abort(format!("node {node} is lost")),
            (_, Event::Failed { node, why }) => self.abort(format!("node {node}: {why}")),
            (Phase::Offering, Event::Offered(offer)) => {
                self.offers.insert(offer.node, offer);
                self.encode()
            }
            (Phase::Offering, Event::Changed(offer, runs)) => {
                self.changed.insert(offer.node, runs);
                self.offers.insert(offer.node, offer);
                self.encode()
            }
            (Phase::Preparing, Event::Prepared(summary)) => {
                self.prepared.insert(summary.node, summary);
                self.decide()
            }
            (Phase::Committing, Event::Committed { node }) => {
                self.committed.insert(node);
                self.count()
            }
            // Late or doubled.
            _ => Vec::new(),
        }
    }

    fn abort(&mut self, why: String) -> Vec<Action> {
        self.phase = Phase::Ended;
        vec![Action::Abort, Action::Ended(Outcome::Aborted { why })]
    }

    fn all(&self) -> impl Iterator<Item = u32> {
        self.groups.iter().flatten().copied()
    }

    fn encode(&mut self) -> Vec<Action> {
        if !self.all().all(|node| self.offers.contains_key(&node)) {
            return Vec::new();
        }
        self.phase = Phase::Preparing;
        if let Some(actions) = self.update() {
            return actions;
        }
        let encode = |(group, nodes): (usize, &Vec<u32>)| {
            let payloads = self.payloads(nodes);
            let encoder = (self.choose)(&payloads);
            Action::Encode { group, payloads, encoder }
        };
        self.groups.iter().enumerate().map(encode).collect()
    }

    fn payloads(&self, nodes: &[u32]) -> Vec<u64> {
        let payload = |node: &u32| self.offers.get(node).map_or(0, |offer| offer.payload);
        nodes.iter().map(payload).collect()
    }

    /// What is to be done to update the parity of an earlier generation; `None`: it is not to be.
    fn update(&mut self) -> Option<Vec<Action>> {
        let base = self.base.as_ref()?;
        let nodes = |group: &Vec<Summary>| group.iter().map(|s| s.node).collect::<Vec<u32>>();
        let same = base.commit.scheme == self.scheme
            && base.commit.groups.iter().map(nodes).eq(self.groups.iter().cloned());
        let of = |node: &u32| self.changed.get(node).cloned();
        let changed = |nodes: &Vec<u32>| nodes.iter().map(of).collect::<Option<Vec<Runs>>>();
        let changed: Vec<Vec<Runs>> = self.groups.iter().map(changed).collect::<Option<_>>()?;
        let bytes = |runs: &Runs| runs.count() * CHUNK_BYTES;
        let all: Vec<u64> = changed.iter().flatten().map(bytes).collect();
        let (update, mut why) = (base.prefer)(&self.payloads(&self.groups.concat()), &all);
        why.truncate(why.floor_char_boundary(MAX_WHY_BYTES));
        self.why = why;
        if !update || !same {
            return None;
        }
        let Base { commit, encoder: fixed, .. } = base;
        let laid = commit.made.laid(commit.generation);
        let mut actions = Vec::new();
        for (group, changed) in changed.into_iter().enumerate() {
            let payloads = self.payloads(&self.groups[group]);
            let new = Geometry::new(self.scheme, laid, &payloads)?;
            let old = commit.geometry(group)?;
            let encoder = fixed.unwrap_or_else(|| least(&new, &old, &changed));
            actions.push(Action::Update { group, payloads, changed, encoder });
        }
        self.made = Made::Updated { base: commit.generation, laid, bytes: all.iter().sum() };
        Some(actions)
    }

    fn decide(&mut self) -> Vec<Action> {
        let of = |node: &u32| self.prepared.get(node).cloned();
        let group = |nodes: &Vec<u32>| nodes.iter().map(of).collect::<Option<Vec<Summary>>>();
        let Some(groups) = self.groups.iter().map(group).collect::<Option<Vec<_>>>() else {
            return Vec::new();
        };
        self.phase = Phase::Committing;
        let (vault, generation, term) = (self.vault, self.generation, self.term);
        let (scheme, made, why) = (self.scheme, self.made, self.why.clone());
        vec![Action::Commit(Commit { vault, generation, term, scheme, made, why, groups })]
    }

    fn count(&mut self) -> Vec<Action> {
        let heard = |node: &u32| self.committed.contains(node) || self.lost.contains(node);
        if !self.all().all(|node| heard(&node)) {
            return Vec::new();
        }
        self.phase = Phase::Ended;
        // A member that was lost after it had the record does not count.
        let has = |node: &&u32| self.committed.contains(node) && !self.lost.contains(node);
        let enough = |nodes: &Vec<u32>| nodes.iter().filter(has).count() > self.scheme.tolerates();
        let lasts = self.groups.iter().any(enough);
        vec![Action::Ended(if lasts { Outcome::Committed } else { Outcome::Uncertain })]
    }
}

/// The encoder with which the busiest link has least to carry: rows that only some members changed
/// are longer on their way through a chain than straight to where they belong.
fn least(new: &Geometry, old: &Geometry, changed: &[Runs]) -> Encoder {
    let busiest =
        |encoder: &Encoder| flow::busiest(&flow::differences(new, old, changed, *encoder));
    Encoder::ALL.into_iter().min_by_key(busiest).unwrap_or(Encoder::Broadcast)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(node: u32) -> Summary {
        let none = [0; 16];
        Summary {
            node,
            payload: 10,
            manifest_bytes: 10,
            manifest_hash: none,
            parity_hash: none,
            needs: Vec::new(),
        }
    }

    fn begun() -> Coordinator {
        let scheme = "rs:2+1".parse().unwrap();
        let choose = Box::new(|_: &[u64]| Encoder::Pipeline);
        Coordinator::new([7; 16], (4, 1), scheme, vec![vec![0, 1, 2]], choose)
    }

    fn prepared() -> Coordinator {
        let mut it = begun();
        for node in 0..3 {
            it.handle(Event::Offered(summary(node)));
        }
        for node in 0..2 {
            assert_eq!(it.handle(Event::Prepared(summary(node))), []);
        }
        it
    }

    #[test]
    fn it_commits_when_all_are_prepared_and_counts_when_all_have_the_record() {
        let mut it = begun();
        assert_eq!(it.handle(Event::Offered(summary(0))), []);
        assert_eq!(it.handle(Event::Offered(summary(0))), [], "doubled");
        assert_eq!(it.handle(Event::Offered(summary(1))), []);
        let encode = it.handle(Event::Offered(summary(2)));
        let encoder = Encoder::Pipeline;
        assert_eq!(encode, [Action::Encode { group: 0, payloads: vec![10; 3], encoder }]);
        let mut it = prepared();
        let commit = it.handle(Event::Prepared(summary(2)));
        assert!(matches!(&commit[..], [Action::Commit(c)] if c.generation == 4));
        assert_eq!(it.handle(Event::Committed { node: 0 }), []);
        assert_eq!(it.handle(Event::Committed { node: 2 }), []);
        let ended = it.handle(Event::Committed { node: 1 });
        assert_eq!(ended, [Action::Ended(Outcome::Committed)]);
        assert_eq!(it.handle(Event::Lost { node: 1 }), []);
    }

    #[test]
    fn whatever_fails_before_the_decision_ends_it() {
        let gone = |node| Event::Lost { node };
        let full = |node| Event::Failed { node, why: "no space".into() };
        for event in [gone(1), full(1)] {
            for mut it in [begun(), prepared()] {
                let actions = it.handle(event.clone());
                assert_eq!(actions[0], Action::Abort);
                assert!(matches!(&actions[1], Action::Ended(Outcome::Aborted { .. })));
                assert_eq!(it.handle(Event::Prepared(summary(2))), []);
            }
        }
    }

    #[test]
    fn it_lasts_only_if_more_have_the_record_than_may_be_lost() {
        let mut it = prepared();
        it.handle(Event::Prepared(summary(2)));
        it.handle(Event::Committed { node: 0 });
        it.handle(Event::Committed { node: 1 });
        assert_eq!(it.handle(Event::Lost { node: 2 }), [Action::Ended(Outcome::Committed)]);
        let mut it = prepared();
        it.handle(Event::Prepared(summary(2)));
        it.handle(Event::Committed { node: 0 });
        it.handle(Event::Lost { node: 0 });
        it.handle(Event::Committed { node: 1 });
        assert_eq!(it.handle(Event::Lost { node: 2 }), [Action::Ended(Outcome::Uncertain)]);
    }
}
