//! `--fallback-every` over nodes: snapshots of ranks that else have their checkpoints alone, and
//! the return of all of them.
//!
//! All ranks are stopped as for a set (`protocol::sets`); what each has sent by then lies beside
//! its image, in place of what it sends while the image is written. So each image is one that its
//! rank alone can come back from, too, and they count as others do, one by one. When all do, the
//! planner pins them.
//!
//! Kept true: nobody was repeating itself when it was taken, nor was behind what another had
//! received of it, as one may be that came back on another node; all return to one snapshot, whose
//! images are there for each of them, under new epochs and with empty segments; where none is whole
//! any more that is told, and all go back to the job's folder or to the beginning.

use super::fallback::{Snapshot, time_of_day};
use super::{Job, checkpoints, saving};
use crate::membership::Member;
use crate::points;
use crate::recovery::{Input, Planner};
use eyrie_control::Meta;
use eyrie_control::node::{CheckpointResult, SetPart, ToNode};
use eyrie_protocol::joints::End;
use eyrie_protocol::sets::{Set, Verdict};
use std::collections::BTreeMap;

impl Job {
    /// Whether ranks of this job can be stopped together, and their images kept: with `--vault`
    /// other than copies generations go as their ranks' newest do.
    pub(super) fn may_have_snapshots(&self) -> bool {
        !self.many() || (!self.spec.is_vaulted() && self.spec.routers == 0)
    }

    /// Whether nothing is in the way over nodes. What a rank that has ended sent last lies where it
    /// ended, in no image.
    pub(super) fn can_take_snapshot(&self) -> bool {
        let placed = self.planner.as_ref().is_some_and(Planner::placed);
        let stays = self.leaves.is_empty() && self.ranks.iter().all(|r| !r.gone);
        !self.many() || (placed && stays)
    }

    /// Has all nodes bring their ranks to stand.
    pub(super) fn order_snapshot(&mut self, generation: u32) {
        let homes: BTreeMap<u32, u32> =
            (0..self.size()).map(|rank| (rank, self.placement.home(rank))).collect();
        let mut parts: BTreeMap<u32, Vec<SetPart>> = BTreeMap::new();
        for (rank, home) in &homes {
            let part = self.set_part_of(*rank, generation);
            parts.entry(*home).or_default().extend(part);
        }
        let Some(under_way) = &mut self.fallback.under_way else { return };
        under_way.set = Some(Set::new(generation, homes));
        let (incremental, hold) = (self.spec.incremental, under_way.hold);
        for (node, parts) in parts {
            let order = ToNode::CheckpointSet { parts, generation, incremental, hold };
            self.nodes[node as usize].send(order);
        }
        points::reach("snapshot-1");
    }

    /// The ranks of a node stand, or cannot be had to.
    pub(super) fn snapshot_stands(
        &mut self,
        node: u32,
        generation: u32,
        result: Result<Vec<End>, String>,
        sent: Vec<(u32, Vec<u64>)>,
    ) {
        let under_way = self.fallback.under_way.as_mut().filter(|u| u.generation == generation);
        let Some((under_way, set)) = under_way.and_then(|u| Some((&mut u.sent, u.set.as_mut()?)))
        else {
            return self.nodes[node as usize].send(ToNode::GoOn { generation, keep: false });
        };
        under_way.extend(sent);
        points::reach("snapshot-2");
        // Ranks that come back alone have no connections of their own any more when they do.
        let verdict = set.stands(node, result.map(|_| Vec::new()));
        self.tell_snapshot_verdict(verdict);
    }

    fn tell_snapshot_verdict(&mut self, verdict: Option<Verdict>) {
        let Some(under_way) = &mut self.fallback.under_way else { return };
        let Some((verdict, set)) = verdict.zip(under_way.set.as_ref()) else { return };
        let (generation, keep) = (under_way.generation, verdict == Verdict::Keep);
        if let Some(why) = set.failed() {
            under_way.failed.get_or_insert_with(|| why.to_string());
        }
        for node in set.nodes() {
            self.nodes[node as usize].send(ToNode::GoOn { generation, keep });
        }
    }

    /// The checkpoint of a rank is written, or will not be.
    pub(super) fn snapshot_part_over(
        &mut self,
        rank: u32,
        generation: u32,
        result: &CheckpointResult,
    ) {
        let under_way = self.fallback.under_way.as_mut().filter(|u| u.generation == generation);
        let Some((under_way, mut set)) = under_way.and_then(|u| u.set.take().map(|set| (u, set)))
        else {
            return;
        };
        let why = match result {
            CheckpointResult::Taken(taken) => {
                if let Some(behind) = behind(rank, &taken.meta, &under_way.sent) {
                    under_way.failed.get_or_insert(behind);
                }
                Ok(())
            }
            CheckpointResult::Failed { text, .. } | CheckpointResult::NoPartner(text) => {
                Err(format!("rank {rank}: {text}"))
            }
            // That is told by itself.
            CheckpointResult::Died => Err(String::new()),
        };
        let verdict = set.part(rank, why);
        under_way.set = Some(set);
        points::reach("snapshot-3");
        self.tell_snapshot_verdict(verdict);
    }

    /// The image of a rank counts.
    pub(super) fn snapshot_part_counts(&mut self, rank: u32, generation: u32) {
        let under_way = self.fallback.under_way.as_mut().filter(|u| u.generation == generation);
        let Some(under_way) = under_way else { return };
        under_way.left.remove(&rank);
        self.snapshot_over();
    }

    /// There will be no image of this rank, of this generation or of the one that is being taken.
    pub(super) fn snapshot_without(&mut self, rank: u32, generation: Option<u32>) {
        let this = |g: u32| generation.is_none_or(|lost| lost == g);
        let under_way = self.fallback.under_way.as_mut();
        let Some(under_way) = under_way.filter(|u| u.set.is_some() && this(u.generation)) else {
            return;
        };
        if !under_way.left.remove(&rank) {
            return;
        }
        under_way.failed.get_or_insert_default();
        let verdict = under_way.set.as_mut().and_then(|set| set.part(rank, Err(String::new())));
        self.tell_snapshot_verdict(verdict);
        self.snapshot_over();
    }

    /// A rank whose image of the snapshot neither is on its way nor counts is not waited for.
    pub(super) fn give_up_stranded(&mut self) {
        let Some(under_way) = self.fallback.under_way.as_ref().filter(|u| u.set.is_some()) else {
            return;
        };
        let this = Some(under_way.generation);
        let comes = |r: &super::Rank| {
            r.capturing == this || r.pending.as_ref().map(|p| p.generation) == this
        };
        let left = under_way.left.iter();
        let stranded: Vec<u32> =
            left.copied().filter(|rank| !comes(&self.ranks[*rank as usize])).collect();
        stranded.into_iter().for_each(|rank| self.snapshot_without(rank, this));
    }

    /// No copy of this rank's image in a snapshot is left.
    pub(super) fn snapshot_lost(&mut self, generation: u32, rank: u32) {
        let is_it = |s: &Snapshot| s.generation == generation;
        let Some(at) = self.fallback.kept.iter().find(|s| is_it(s)).map(|s| s.at) else { return };
        self.fallback.kept.retain(|s| !is_it(s));
        self.let_snapshot_go(generation);
        self.tell_snapshots();
        self.say(format!(
            "the snapshot of {} (checkpoint {generation}) is lost: no copy of rank {rank}'s image \
             is left",
            time_of_day(at)
        ));
    }

    /// The newest, for people.
    pub(super) fn newest_snapshot(&self) -> Option<String> {
        let Snapshot { generation, at, .. } = self.fallback.kept.last()?;
        Some(format!("the snapshot of {} (checkpoint {generation})", time_of_day(*at)))
    }

    /// No process is left: all nodes begin anew, and then all ranks return to the newest snapshot.
    /// False: there is none.
    pub(super) fn return_over_nodes(&mut self) -> bool {
        let Some(newest) = self.fallback.kept.last().map(|s| s.generation) else { return false };
        (self.fallback.under_way, self.fallback.holds) = (None, false);
        (self.fallback.returning, self.fallback.needed) = (Some(newest), true);
        self.fallback.since.clear();
        self.stop_flush();
        self.pauses.clear();
        self.rollbacks += 1;
        self.planned = false;
        self.all_stay("all ranks returned to a snapshot: ask again");
        self.gone.clear();
        for rank in 0..self.size() {
            let r = self.rank(rank);
            let uncounted = [r.pending.take().map(|p| p.generation), r.capturing.take()];
            (r.order, r.partner, r.later, r.elsewhere) = (None, None, None, false);
            (r.gone, r.falls, r.swap, r.saving) = (false, false, None, saving::Saving::No);
            let generations: Vec<u32> = uncounted.into_iter().flatten().collect();
            if !generations.is_empty() {
                self.to_all(&ToNode::Remove { rank, generations });
            }
            self.give_up_output(rank);
        }
        let now = self.ranks_ms();
        self.scheduler = checkpoints::scheduler(&self.spec, now);
        points::reach("return-1");
        self.renew_nodes();
        true
    }

    /// All nodes are there again: all ranks come back from the newest snapshot that is whole. If
    /// none is, nothing of what was counts any more.
    pub(super) fn plan_return(&mut self, members: &[Member]) -> bool {
        if self.fallback.returning.take().is_none() {
            return false;
        }
        while let Some(newest) = self.fallback.kept.last() {
            let (generation, at, at_ms) = (newest.generation, newest.at, newest.at_ms);
            let Some(planner) = &self.planner else { break };
            if let Some(rank) = planner.lacks_on(generation, members) {
                self.snapshot_lost(generation, rank);
                continue;
            }
            for rank in 0..self.size() {
                let r = self.rank(rank);
                r.latest.take_if(|latest| latest.taken.meta.generation != generation);
                let unneeded = r.retention.go_back(generation);
                self.remove_images(rank, unneeded);
                self.reaches_newest(rank);
            }
            self.tell_return(generation, at, at_ms);
            points::reach("return-2");
            self.planned = true;
            self.plan(Input::Return { generation, members: members.to_vec() });
            return true;
        }
        self.say("no good snapshot is left");
        // That they go back is counted already.
        self.rollbacks = self.rollbacks.saturating_sub(1);
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
