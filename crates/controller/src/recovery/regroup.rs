//! Ranks that come back alone are to have memory in common (`MPI_Win_allocate_shared`), and wait in
//! that call: the job goes on with larger recovery units, in which those that share any come back
//! together.
//!
//! All ranks come to stand for a snapshot, as for `--fallback-every`; when it counts, all processes
//! end, and come back from it as units. So it is the first set of each unit, no work is lost, and
//! nobody has stored anything by then. Where there can be no snapshot all ranks begin anew. All
//! ranks of a node become a unit, also of nodes that share nothing yet; on one node all ranks do.
//!
//! Kept true: the change is made when no process is left, and stands in one record of the journal
//! with the orders that follow from it; nodes hear of it before anything else of what follows,
//! those that join later when they do; a job changes once, and never back.

use crate::checkpoints::model::{Units, scheduler};
use crate::journal::Entry;
use crate::recovery::model::Sharing;
use crate::{Job, monitor};
use eyrie_control::Protection;
use eyrie_control::node::ToNode;
use eyrie_protocol::recovery::Input;
use eyrie_protocol::units::Extent;
use eyrie_state::units;
use std::collections::BTreeMap;

/// After so many snapshots in vain all ranks begin anew.
const MOST_FAILURES: u32 = 5;

impl Job {
    /// A rank waits to be one unit with another one.
    pub(crate) fn wants_unit(&mut self, rank: u32, start: u64, peer: u32) {
        let may = units::with_shared_memory(&self.spec).is_some();
        if self.ranks.proc(rank, start).is_some() && may && self.recovery.sharing.is_none() {
            let sharing = Sharing { rank, peer, failures: 0, snapshot: None };
            self.recovery.sharing = Some(sharing);
        }
    }

    /// Whether ranks are to come to stand so that they can be larger units afterwards.
    pub(crate) fn shares_from_snapshot(&self) -> bool {
        let Some(sharing) = &self.recovery.sharing else { return false };
        let patient = sharing.failures < MOST_FAILURES && self.saving.under_way.is_none();
        // What a rank that has ended sent last is in no image.
        let gone = self.many() && self.ranks.all.iter().any(|r| r.gone);
        let counted =
            !self.many() || units::counted_by(self.nodes.placement.homes(), &self.spec).is_some();
        patient && !gone && counted && self.may_have_snapshots() && self.protected()
    }

    /// Where no snapshot can be had all ranks begin anew as larger units.
    pub(crate) fn tend_sharing(&mut self) {
        let waits = self.saving.restarting || self.saving.under_way.is_some();
        if self.recovery.sharing.is_some() && !waits && !self.shares_from_snapshot() {
            self.end_for_units();
        }
    }

    /// All ranks stand with this snapshot, which counts.
    pub(crate) fn stand_for_units(&mut self, generation: u32) {
        if self.saving.under_way.is_some() {
            return;
        }
        let Some(sharing) = &mut self.recovery.sharing else { return };
        sharing.snapshot = Some(generation);
        self.end_for_units();
    }

    /// It did not come about.
    pub(crate) fn stood_in_vain(&mut self, why: &str) {
        // Who repeats itself, or comes back, is waited for.
        let passes = why.is_empty() || why.contains("repeats itself");
        if let Some(sharing) = self.recovery.sharing.as_mut().filter(|_| !passes) {
            sharing.failures += 1;
        }
    }

    fn end_for_units(&mut self) {
        let Some(Sharing { rank, peer, .. }) = self.recovery.sharing else { return };
        if !self.recovery.monitor.running() {
            return;
        }
        let why = format!("rank {rank} shares memory with rank {peer} (MPI_Win_allocate_shared)");
        // That they die is no fault of theirs.
        (0..self.size()).for_each(|rank| self.ranks.rank(rank).falls = true);
        self.step(monitor::Input::Regroup { why });
    }

    /// No process is left: all ranks go on as larger units.
    pub(crate) fn regroup(&mut self) {
        let sharing = self.recovery.sharing.take();
        let Some(larger) = units::with_shared_memory(&self.spec) else {
            return self.restart_all();
        };
        self.outside.reach("regroup-1");
        if self.saving.archive.holds() {
            // Its images are of moments of their own.
            self.give_archive_up();
        }
        let snapshot = sharing.and_then(|s| s.snapshot);
        let kept = self.checkpoints.fallback.kept.last().map(|s| s.generation);
        let snapshot = snapshot.filter(|generation| kept == Some(*generation));
        self.tell_units_of(&larger, snapshot.is_some());
        let counted = units::counted_by(self.nodes.placement.homes(), &self.spec);
        match (snapshot, counted) {
            (Some(generation), _) if !self.many() => self.go_on_as_one(generation, larger),
            (Some(_), Some(homes)) => {
                self.set_mode(larger, homes);
                self.return_over_nodes();
            }
            _ => {
                let homes = units::first_placement(&self.spec).homes().to_vec();
                self.forget_all();
                self.set_mode(larger, homes);
                if self.renew_nodes() {
                    self.start_all();
                }
            }
        }
    }

    fn tell_units_of(&self, larger: &Protection, goes_on: bool) {
        let (why, name) = (self.recovery.monitor.why_back(), larger.ft.name());
        let who = match larger.ft.extent() {
            Some(Extent::Job) => "all ranks",
            Some(Extent::Cluster) => "the ranks of each cluster",
            _ => "the ranks of each node",
        };
        let all = match goes_on {
            true => "",
            false => {
                "; for that all ranks begin anew, and what was printed so far is not printed again"
            }
        };
        self.journal.say(format!("{why}: from now on {who} come back together (--ft {name}){all}"));
    }

    /// On one node: the snapshot is the first set of all ranks.
    fn go_on_as_one(&mut self, generation: u32, larger: Protection) {
        let kept = std::mem::take(&mut self.checkpoints.fallback.kept);
        let mut gone = Vec::new();
        for snapshot in kept {
            match snapshot.generation == generation {
                true => gone = snapshot.gone,
                false => self.let_snapshot_go(snapshot.generation),
            }
        }
        let now = self.ranks_ms();
        for (rank, gone) in (0u32..).zip(&gone) {
            self.rank_returns(rank, generation, *gone, now);
            self.ranks.rank(rank).retention.unpin(generation);
        }
        self.checkpoints.fallback = Default::default();
        self.tell_snapshots();
        self.set_mode(larger, self.spec.placement.homes.clone());
        self.checkpoints.coordinated.iter_mut().for_each(|t| t.take_over(generation, gone.clone()));
        if let Err(error) = self.write_coordinated(generation, &BTreeMap::new()) {
            tracing::warn!(%error, "the job cannot be restarted before its next checkpoint");
        }
        self.go_back_with_segment();
    }

    /// The snapshot that all ranks went on from is let go when each has a later set: until then all
    /// return to it if what is recorded of them is lost, as before nodes hold it of each other.
    pub(crate) fn outgrow_first_set(&mut self) {
        let Some(first) = self.checkpoints.fallback.kept.last().map(|s| s.generation) else {
            return;
        };
        let later = |r: &crate::Rank| r.retention.newest().is_some_and(|k| k.generation > first);
        if self.ranks.all.iter().all(|r| r.gone || later(r)) {
            self.forget_snapshots();
        }
    }

    /// Ranks come back in this way from now on, wherever that is known.
    fn set_mode(&mut self, larger: Protection, homes: Vec<u32>) {
        units::set_mode(&mut self.spec, larger.clone(), homes.clone());
        self.outside.launcher.set_mode(larger.clone(), homes.clone());
        if let Some(head) = &mut self.journal.head {
            units::set_mode(&mut head.spec, larger.clone(), homes.clone());
            let head = head.clone();
            self.journal.note(|| Entry::Head(Box::new(head)));
        }
        self.nodes.to_all(&ToNode::Units { spec: Box::new(self.spec.clone()) });
        let partition = units::recovery_units(&self.spec);
        let (of, map) = (partition.by_rank().to_vec(), homes);
        let on_nodes = partition.extent() == Extent::Node;
        self.checkpoints.units = Units::new(partition);
        self.checkpoints.scheduler = scheduler(&self.spec, self.ranks_ms());
        self.begin_coordinated();
        self.number_sets_on();
        self.plan(Input::Regroup { of, on_nodes, map });
    }

    /// A node that joins may have been started before that changed.
    pub(crate) fn tell_units(&self, node: u32) {
        if self.spec.protection.ft.has_units() && !self.spec.placement.homes.is_empty() {
            let spec = Box::new(self.spec.clone());
            self.nodes.all[node as usize].send(ToNode::Units { spec });
        }
    }
}
