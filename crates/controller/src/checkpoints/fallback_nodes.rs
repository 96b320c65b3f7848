//! `--fallback-every` over nodes: snapshots of ranks that else have their checkpoints alone, and
//! the return of all of them.
//!
//! All ranks are stopped as for a set (`protocol::coordinated_snapshot`); what each has sent by
//! then lies beside its image, in place of what it sends while the image is written. So each image
//! is one that its rank alone can come back from, too, and they count as others do, one by one.
//! When all do, the planner pins them.
//!
//! Kept true: nobody was repeating itself when it was taken, nor was behind what another had
//! received of it, as one may be that came back on another node; all return to one snapshot, whose
//! images are there for each of them, under new epochs and with empty segments; where none is whole
//! any more that is told, and all go back to the job's folder or to the beginning.

use crate::Job;
use crate::checkpoints::fallback_model::{Snapshot, UnderWay};
use crate::checkpoints::model;
use crate::checkpoints::model::{Checkpoints, SetOf};
use crate::saving::model::LogSaving;
use eyrie_control::Meta;
use eyrie_control::node::{CheckpointResult, ToNode};
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Input, Planner};
use eyrie_state::wall_clock::time_of_day;
use std::collections::BTreeMap;

impl Checkpoints {
    /// The newest, for people.
    pub fn newest_snapshot(&self) -> Option<String> {
        let Snapshot { generation, at, .. } = self.fallback.kept.last()?;
        Some(format!("the snapshot of {} (checkpoint {generation})", time_of_day(*at)))
    }
}

impl Job {
    /// Whether ranks of this job can be stopped together, and their images kept: what routers hold
    /// is in no image.
    pub(crate) fn may_have_snapshots(&self) -> bool {
        !self.many() || self.spec.placement.routers == 0
    }

    /// Whether nothing is in the way over nodes. Nodes that leave are, but for those that wait for
    /// an image which only the vault has, as it may be of the snapshot before. What a rank that has
    /// ended sent last lies where it ended, in no image.
    pub(crate) fn can_take_snapshot(&self) -> bool {
        let planner = self.recovery.planner.as_ref();
        let stays = self.leaving.nodes.is_empty() || planner.is_some_and(Planner::only_detained);
        let gone = self.ranks.all.iter().any(|r| r.gone);
        let placed = planner.is_some_and(Planner::placed) && !gone;
        !self.many() || (placed && stays)
    }

    /// Has all nodes bring their ranks to stand.
    pub(crate) fn order_snapshot(&mut self, generation: u32) {
        let under_way = self.checkpoints.fallback.under_way.as_ref();
        let Some(hold) = under_way.map(|u| u.hold) else { return };
        let set = self.order_set(generation, 0..self.size(), hold);
        if let Some(under_way) = &mut self.checkpoints.fallback.under_way {
            under_way.set = Some(set);
        }
        self.outside.reach("snapshot-1");
    }

    /// The checkpoint of a rank is written, or will not be.
    pub(crate) fn snapshot_part_over(
        &mut self,
        rank: u32,
        generation: u32,
        result: &CheckpointResult,
    ) {
        let under_way = self.checkpoints.fallback.under_way.as_mut();
        let this = |u: &&mut UnderWay| u.generation == generation && u.set.is_some();
        let Some(under_way) = under_way.filter(this) else { return };
        if let CheckpointResult::Taken(taken) = result
            && let Some(behind) = behind(rank, &taken.meta, &under_way.sent)
        {
            under_way.failed.get_or_insert(behind);
        }
        self.outside.reach("snapshot-3");
        self.take_part(SetOf::Snapshot, rank, result);
    }

    /// The image of a rank counts.
    pub(crate) fn snapshot_part_counts(&mut self, rank: u32, generation: u32) {
        let under_way =
            self.checkpoints.fallback.under_way.as_mut().filter(|u| u.generation == generation);
        let Some(under_way) = under_way else { return };
        under_way.left.remove(&rank);
        self.snapshot_over();
    }

    /// There will be no image of this rank, of this generation or of the one that is being taken.
    pub(crate) fn snapshot_without(&mut self, rank: u32, generation: Option<u32>) {
        let this = |g: u32| generation.is_none_or(|lost| lost == g);
        let under_way = self.checkpoints.fallback.under_way.as_mut();
        let Some(under_way) = under_way.filter(|u| u.set.is_some() && this(u.generation)) else {
            return;
        };
        if !under_way.left.remove(&rank) {
            return;
        }
        under_way.failed.get_or_insert_default();
        self.lose_part(SetOf::Snapshot, rank, Err(String::new()));
        self.snapshot_over();
    }

    /// A rank whose image of the snapshot neither is on its way nor counts is not waited for.
    pub(crate) fn give_up_stranded(&mut self) {
        let Some(under_way) =
            self.checkpoints.fallback.under_way.as_ref().filter(|u| u.set.is_some())
        else {
            return;
        };
        let this = Some(under_way.generation);
        let comes = |r: &crate::Rank| {
            r.capture.generation == this || r.pending.as_ref().map(|p| p.generation) == this
        };
        let left = under_way.left.iter();
        let stranded: Vec<u32> =
            left.copied().filter(|rank| !comes(&self.ranks.all[*rank as usize])).collect();
        stranded.into_iter().for_each(|rank| self.snapshot_without(rank, this));
    }

    /// No copy of this rank's image in a snapshot is left.
    pub(crate) fn snapshot_lost(&mut self, generation: u32, rank: u32) {
        let is_it = |s: &Snapshot| s.generation == generation;
        let Some(at) = self.checkpoints.fallback.kept.iter().find(|s| is_it(s)).map(|s| s.at)
        else {
            return;
        };
        self.checkpoints.fallback.kept.retain(|s| !is_it(s));
        self.let_snapshot_go(generation);
        self.tell_snapshots();
        self.journal.say(format!(
            "the snapshot of {} (checkpoint {generation}) is lost: no copy of rank {rank}'s image \
             is left",
            time_of_day(at)
        ));
    }

    /// No process is left: all nodes begin anew, and then all ranks return to the newest snapshot.
    /// False: there is none.
    pub(crate) fn return_over_nodes(&mut self) -> bool {
        let Some(newest) = self.checkpoints.fallback.kept.last().map(|s| s.generation) else {
            return false;
        };
        (self.checkpoints.fallback.under_way, self.checkpoints.fallback.holds) = (None, false);
        (self.checkpoints.fallback.returning, self.checkpoints.fallback.needed) =
            (Some(newest), true);
        self.checkpoints.fallback.since.clear();
        self.stop_flush();
        self.abandon_round();
        self.checkpoints.router_pauses.clear();
        self.recovery.rollbacks += 1;
        self.recovery.planned = false;
        self.all_stay("all ranks returned to a snapshot: ask again");
        self.recovery.lost_images.clear();
        for rank in 0..self.size() {
            let r = self.ranks.rank(rank);
            let uncounted = [r.pending.take().map(|p| p.generation), r.capture.generation.take()];
            (r.restore.order, r.capture.partner, r.coming_back.later, r.coming_back.elsewhere) =
                (None, None, None, false);
            (r.gone, r.falls, r.swap, r.saving) = (false, false, None, LogSaving::No);
            let generations: Vec<u32> = uncounted.into_iter().flatten().collect();
            if !generations.is_empty() {
                self.nodes.to_all(&ToNode::Remove { rank, generations });
            }
            self.give_up_output(rank);
        }
        let now = self.ranks_ms();
        self.checkpoints.scheduler = model::scheduler(&self.spec, now);
        self.outside.reach("return-1");
        self.renew_nodes();
        true
    }

    /// All nodes are there again: all ranks come back from the newest snapshot that is whole. If
    /// none is, nothing of what was counts any more.
    pub(crate) fn plan_return(&mut self, members: &[Member]) -> bool {
        if self.checkpoints.fallback.returning.take().is_none() {
            return false;
        }
        while let Some(newest) = self.checkpoints.fallback.kept.last() {
            let (generation, at, at_ms) = (newest.generation, newest.at, newest.at_ms);
            let Some(planner) = &self.recovery.planner else { break };
            if let Some(rank) = planner.lacks_on(generation, members) {
                self.snapshot_lost(generation, rank);
                continue;
            }
            for rank in 0..self.size() {
                let r = self.ranks.rank(rank);
                r.latest.take_if(|latest| latest.taken.meta.generation != generation);
                let unneeded = r.retention.go_back(generation);
                self.remove_images(rank, unneeded);
                self.reaches_newest(rank);
            }
            match self.spec.protection.ft.goes_back_alone() {
                true => self.tell_return(generation, at, at_ms),
                false => self.tell_back(generation, "all ranks go on as larger recovery units"),
            }
            self.outside.reach("return-2");
            self.recovery.planned = true;
            self.renew_vault(members);
            self.plan(Input::Return { generation, members: members.to_vec() });
            return true;
        }
        self.journal.say("no good snapshot is left");
        // That they go back is counted already.
        self.recovery.rollbacks = self.recovery.rollbacks.saturating_sub(1);
        self.forget_all();
        false
    }
}

/// Who had sent less than this rank had received of it: one that came back on another node, and had
/// not repeated all of that yet.
fn behind(rank: u32, meta: &Meta, sent: &BTreeMap<u32, Vec<u64>>) -> Option<String> {
    let had = meta.need.iter().zip(&meta.front).map(|(need, front)| *need.max(front));
    let ahead = |(from, had): &(u32, u64)| {
        let upto = sent.get(from).and_then(|to| to.get(rank as usize));
        upto.is_none_or(|upto| upto < had)
    };
    let (from, _) = (0u32..).zip(had).find(ahead)?;
    Some(match sent.contains_key(&from) {
        true => format!("rank {from} repeats itself"),
        // It began under another controller.
        false => String::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_sent_less_than_another_has_received_repeats_itself() {
        let meta = |need, front| Meta { need, front, ..Meta::start("job", 1, 2) };
        let sent = |zero: u64| BTreeMap::from([(0, vec![9, zero]), (1, vec![0, 4])]);
        assert_eq!(behind(1, &meta(vec![5, 4], vec![7, 4]), &sent(7)), None);
        let why = Some(String::from("rank 0 repeats itself"));
        assert_eq!(behind(1, &meta(vec![5, 4], vec![7, 4]), &sent(6)), why);
        assert_eq!(behind(1, &meta(vec![5, 4], vec![0, 4]), &sent(4)), why);
        // What was sent is not known to a controller that follows.
        assert_eq!(behind(1, &meta(vec![5, 4], vec![5, 4]), &BTreeMap::new()), Some(String::new()));
    }
}
