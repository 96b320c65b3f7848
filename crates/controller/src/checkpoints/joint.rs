//! Checkpoints of several ranks over nodes, whoever they are: a recovery unit of any size, or all
//! ranks of a job whose ranks else have their checkpoints alone (`--fallback-every`).
//!
//! A set is an image of each, of one moment (`protocol::coordinated_snapshot`): each node brings
//! its ranks to stand and says so, hears when those of all nodes do, and tells how each image came
//! out. What differs is when a set is due, and what follows when it counts or does not: that is
//! with its unit (`units`, `coordinated_nodes`) or the snapshot (`fallback_nodes`).
//!
//! Kept true: no rank of a set goes on before all of it stand, on whichever nodes; if one part
//! fails the set is given up as a whole, when it is known how all others came out.

use crate::checkpoints::model::{Checkpoints, SetOf, Voided};
use crate::{Capture, Job};
use eyrie_control::node::{CheckpointResult, SetPart, ToNode};
use eyrie_control::signals::SIGCONT;
use eyrie_protocol::coordinated_snapshot::{CoordinatedSnapshot, Verdict};
use eyrie_protocol::cross_node_sockets::SocketEnd;
use eyrie_protocol::recovery::Input;
use std::collections::BTreeMap;

impl Checkpoints {
    /// The sets that are being taken.
    fn sets(&mut self) -> impl Iterator<Item = (SetOf, &mut CoordinatedSnapshot)> {
        let all = self.coordinated.iter_mut().flat_map(|t| &mut t.taking);
        let all = all.map(|t| (SetOf::Unit(0), &mut t.set));
        let snapshot = self.fallback.under_way.iter_mut().flat_map(|u| &mut u.set);
        all.chain(self.units.sets()).chain(snapshot.map(|set| (SetOf::Snapshot, set)))
    }

    /// A part of a unit's set was refused, for what lasts or for what passes.
    fn refused(&mut self, unit: u32, lasting: bool) {
        match &mut self.coordinated {
            Some(coordinated) => coordinated.refused(lasting),
            None => self.units.refused(unit, lasting),
        }
    }

    fn set(&mut self, of: SetOf) -> Option<&mut CoordinatedSnapshot> {
        self.sets().find(|one| one.0 == of).map(|one| one.1)
    }

    /// Whose set of this number a node takes part in.
    fn set_at(&mut self, node: u32, generation: u32) -> Option<SetOf> {
        let here = |set: &CoordinatedSnapshot| set.nodes().contains(&node);
        self.sets().find(|one| one.1.generation() == generation && here(one.1)).map(|one| one.0)
    }

    /// Whose set of this number is being taken of a rank.
    fn set_with(&mut self, rank: u32, generation: u32) -> Option<SetOf> {
        let has = |set: &CoordinatedSnapshot| set.ranks().any(|one| one == rank);
        self.sets().find(|one| one.1.generation() == generation && has(one.1)).map(|one| one.0)
    }
}

impl Job {
    /// Has the nodes of these ranks bring them to stand. With `hold` they do not go on after it.
    pub(crate) fn order_set(
        &mut self,
        generation: u32,
        ranks: impl IntoIterator<Item = u32>,
        hold: bool,
    ) -> CoordinatedSnapshot {
        let home = |rank: u32| (rank, self.nodes.placement.home(rank));
        let homes: BTreeMap<u32, u32> = ranks.into_iter().map(home).collect();
        let mut parts: BTreeMap<u32, Vec<SetPart>> = BTreeMap::new();
        for (rank, node) in &homes {
            parts.entry(*node).or_default().extend(self.part_of_rank(*rank, generation));
        }
        let incremental = self.spec.protection.incremental;
        for (node, parts) in parts {
            let order = ToNode::CheckpointSet { parts, generation, incremental, hold };
            self.nodes.all[node as usize].send(order);
        }
        CoordinatedSnapshot::new(generation, homes)
    }

    /// The ranks of a node stand, or cannot be had to.
    pub(crate) fn node_stands(
        &mut self,
        node: u32,
        generation: u32,
        result: Result<Vec<SocketEnd>, String>,
        sent: Vec<(u32, Vec<u64>)>,
    ) {
        let result = result.map_err(|why| format!("{}: {why}", self.nodes.node_name(node)));
        let Some(of) = self.checkpoints.set_at(node, generation) else {
            return self.nodes.all[node as usize].send(ToNode::GoOn { generation, keep: false });
        };
        let result = match of {
            SetOf::Unit(_) => {
                self.outside.reach("set-1");
                result
            }
            SetOf::Snapshot => {
                self.checkpoints.fallback.note_sent(sent);
                self.outside.reach("snapshot-2");
                // Ranks that come back alone have no connections of their own any more then.
                result.map(|_| Vec::new())
            }
        };
        let verdict = self.checkpoints.set(of).and_then(|set| set.stands(node, result));
        self.tell_verdict(of, verdict);
    }

    /// A node has read what came over connections between nodes, or could not.
    pub(crate) fn node_has_read(&mut self, node: u32, generation: u32, result: Result<(), String>) {
        let result = result.map_err(|why| format!("{}: {why}", self.nodes.node_name(node)));
        let Some(of) = self.checkpoints.set_at(node, generation) else { return };
        let verdict = self.checkpoints.set(of).and_then(|set| set.has_read(node, result));
        self.tell_verdict(of, verdict);
    }

    /// Tells the nodes of a set that its ranks go on, or read first what is between them.
    pub(crate) fn tell_verdict(&mut self, of: SetOf, verdict: Option<Verdict>) {
        // Those of a unit on one node go on by themselves.
        let by_themselves = self.checkpoints.units.partition().stay_on_a_node();
        let Some((verdict, set)) = verdict.zip(self.checkpoints.set(of)) else { return };
        let generation = set.generation();
        if verdict == Verdict::Read {
            for (node, joints) in set.matched_ends().clone() {
                self.nodes.all[node as usize].send(ToNode::ReadFar { generation, joints });
            }
            return;
        }
        let (nodes, failed) = (set.nodes(), set.failed().map(String::from));
        if of == SetOf::Snapshot {
            self.checkpoints.fallback.fails(failed);
        }
        let keep = verdict == Verdict::Keep;
        for node in nodes.into_iter().filter(|_| !by_themselves) {
            self.nodes.all[node as usize].send(ToNode::GoOn { generation, keep });
        }
    }

    /// A rank's image of its unit's set is on its node and its partner, or will not be.
    pub(crate) fn set_part(
        &mut self,
        node: u32,
        rank: u32,
        generation: u32,
        result: CheckpointResult,
    ) {
        let Some(of) = self.checkpoints.set_with(rank, generation) else {
            return self.nodes.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        };
        self.outside.reach("set-2");
        self.take_part(of, rank, &result);
        if let CheckpointResult::Taken(taken) = result {
            let incarnation = self.ranks.rank(rank).capture.incarnation;
            self.image_taken(node, rank, Capture { generation, incarnation, taken });
        }
        self.end_set(self.checkpoints.units.turn(rank));
    }

    /// How a rank's part of a set came out.
    pub(crate) fn take_part(&mut self, of: SetOf, rank: u32, result: &CheckpointResult) {
        let by_themselves = self.checkpoints.units.partition().stay_on_a_node();
        let waited = by_themselves || self.checkpoints.set(of).is_none_or(|set| set.is_told());
        let part = match result {
            CheckpointResult::Taken(_) if !waited => {
                Err(format!("rank {rank} has not waited for the others"))
            }
            CheckpointResult::Taken(_) => Ok(()),
            CheckpointResult::Failed { text, .. } | CheckpointResult::NoPartner(text) => {
                Err(format!("rank {rank}: {text}"))
            }
            // Where each comes back alone that is told by itself.
            CheckpointResult::Died if of == SetOf::Snapshot => Err(String::new()),
            CheckpointResult::Died => Err(format!("rank {rank} did not come to stand")),
        };
        match (of, result) {
            (SetOf::Unit(unit), CheckpointResult::Failed { lasting, .. }) => {
                self.checkpoints.refused(unit, *lasting);
            }
            (SetOf::Unit(unit), CheckpointResult::NoPartner(_)) => {
                self.checkpoints.refused(unit, false);
            }
            _ => {}
        }
        self.lose_part(of, rank, part);
    }

    /// The same where that is known without a word of its node.
    pub(crate) fn lose_part(&mut self, of: SetOf, rank: u32, part: Result<(), String>) {
        let verdict = self.checkpoints.set(of).and_then(|set| set.part(rank, part));
        self.tell_verdict(of, verdict);
    }

    /// Of a set of all ranks that does not count yet an image is of no use: it is given up as a
    /// whole.
    pub(crate) fn spoil_coordinated(&mut self, generation: u32, why: String) {
        let all = SetOf::Unit(0);
        if self.checkpoints.coordinated.is_none() {
            return;
        }
        let set = self.checkpoints.set(all).filter(|set| set.generation() == generation);
        let verdict = set.and_then(|set| set.spoil(why));
        self.tell_verdict(all, verdict);
        self.end_set(0);
    }

    /// Gives up a unit's set of which one part is missing, when it is known how all others came
    /// out.
    pub(crate) fn end_set(&mut self, unit: u32) {
        let now = self.ranks_ms();
        let one = self.checkpoints.coordinated.as_mut().and_then(|t| t.void_snapshot(now));
        let voided = one.or_else(|| self.checkpoints.units.end(unit));
        let Some(Voided { set, lasting, hold }) = voided else { return };
        if hold {
            self.nodes.to_all(&ToNode::Signal { signal: SIGCONT });
        }
        let (generation, why) = (set.generation(), set.failed().unwrap_or_default());
        self.throw_away(&set);
        self.plan(Input::VoidUnit { unit, generation });
        match self.checkpoints.coordinated.is_some() {
            true => self.coordinated_failed(generation, why.to_string(), lasting),
            false => self.unit_failed(unit, generation, why, lasting),
        }
    }

    /// What was written of a set is of no use.
    pub(crate) fn throw_away(&mut self, set: &CoordinatedSnapshot) {
        let generation = set.generation();
        for rank in set.ranks() {
            let r = self.ranks.rank(rank);
            (r.capture.generation, r.capture.partner) = (None, None);
            r.pending.take_if(|p| p.generation == generation);
            self.image_stands(rank, generation, None);
            self.nodes.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        }
    }
}
