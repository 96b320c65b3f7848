//! `--fallback-every`: of a job whose ranks are checkpointed each by itself (`--ft logged`) all
//! ranks now and then have their checkpoints together (over nodes: `fallback_nodes`). Such a
//! snapshot is an image of every rank and what was on its way between them, of one moment. To it
//! all return together when one of them does not repeat what is recorded of it, or no good image of
//! it is left: for that nothing of what was recorded since has to be right.
//!
//! Kept true: a snapshot counts when all of it is on disk, and no rank was repeating itself when it
//! was taken; the one before stays until then, and one more beyond that; its images count as
//! checkpoints of their ranks, also if it does not come about; one that all ranks return to in vain
//! is given up (`monitor`).

use crate::checkpoints::fallback_model::{Fallback, KEPT_OVER_NODES, Snapshot, UnderWay};
use crate::checkpoints::model::{Checkpoints, place};
use crate::saving::model::LogSaving;
use crate::{Job, monitor};
use eyrie_control::node::{CheckpointResult, ToNode};
use eyrie_control::{CheckpointPolicy, EventKind, Fallback as Every, FallbackStatus};
use eyrie_protocol::recovery::Input;
use eyrie_protocol::retention::KEPT;
use eyrie_state::saved_job;
use eyrie_state::wall_clock::{time_of_day, unix_ms};
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// Until the next attempt, when one did not come about.
const PAUSE_MS: u64 = 1000;

/// Beginning of the names of what there was between the ranks.
const NAME: &str = "snapshot.";

/// Whether a file tells what there was between the ranks of a snapshot.
pub(crate) fn is_snapshot(name: &str) -> bool {
    name.starts_with(NAME)
}

impl Fallback {
    /// The file that tells that of this one.
    fn name_of(&self, generation: u32) -> String {
        match self.as_set == Some(generation) {
            true => saved_job::segment_name(generation),
            false => format!("{NAME}{generation}"),
        }
    }

    /// Whether it is being written in this file.
    pub(crate) fn is_taking_as(&self, name: &str) -> bool {
        self.under_way.as_ref().is_some_and(|u| self.name_of(u.generation) == name)
    }
}

impl Checkpoints {
    /// The checkpoint of a rank is over, which may have been part of a snapshot.
    pub fn snapshot_part(&mut self, rank: u32, generation: u32, result: &CheckpointResult) {
        let this = |u: &&mut UnderWay| u.generation == generation;
        let Some(under_way) = self.fallback.under_way.as_mut().filter(this) else {
            return;
        };
        under_way.left.remove(&rank);
        match result {
            CheckpointResult::Taken(_) => {}
            CheckpointResult::Failed { text, .. } | CheckpointResult::NoPartner(text) => {
                under_way.failed = Some(format!("rank {rank}: {text}"));
            }
            CheckpointResult::Died => drop(under_way.failed.get_or_insert_default()),
        }
    }
}

impl Job {
    /// Whether this job has snapshots.
    fn has_snapshots(&self) -> bool {
        let wanted = match self.spec.protection.fallback {
            Every::Off => false,
            // The others say in which order ranks have their checkpoints.
            Every::Auto => self.spec.protection.checkpoint_policy == CheckpointPolicy::Auto,
            Every::Every(_) => true,
        };
        let logged = self.spec.protection.ft.goes_back_alone() && self.may_have_snapshots();
        logged && wanted && !self.spec.storage.keep && self.protected()
    }

    /// Whether no checkpoint is to begin, as one of all ranks together is the next. Begins it as
    /// soon as nothing is in the way.
    pub(crate) fn snapshot_if_due(&mut self) -> bool {
        if self.checkpoints.fallback.under_way.is_some() {
            self.give_up_stranded();
            self.stand_no_longer();
            return true;
        }
        let (now, asked) = (self.ranks_ms(), self.spec.protection.fallback);
        let in_time = self.checkpoints.fallback.missing(asked, self.ranks.live_ranks()) == Some(0)
            && now >= self.checkpoints.fallback.rests_until_ms(asked);
        // With one a restart has nothing to repeat.
        let shares = self.shares_from_snapshot();
        let wanted = match &self.saving.under_way {
            Some(save) => save.takes_snapshot(),
            None => in_time,
        };
        let rests = shares && now < self.checkpoints.fallback.not_before_ms;
        let due = (self.has_snapshots() && wanted) || (shares && !rests);
        let runs = |r: &crate::Rank| r.gone || (r.proc.is_some() && r.starting.is_none());
        let all = self.ranks.all.iter().all(runs) && self.ranks.live_ranks().next().is_some();
        let all = all && self.can_take_snapshot() && self.nodes.are_reached(0..self.size());
        if !due || !all || !(shares || self.checkpoints.scheduler.is_due(now)) {
            return false;
        }
        if !self.ranks.all.iter().any(|r| r.capture.generation.is_some() || r.pending.is_some()) {
            self.begin_snapshot(now);
        }
        true
    }

    fn begin_snapshot(&mut self, now: u64) {
        let clock = self.clock.now();
        let mut generation = 0;
        for rank in 0..self.size() {
            generation = generation.max(self.ranks.rank(rank).retention.begin());
        }
        let mut ranks = Vec::new();
        for rank in 0..self.size() {
            let r = self.ranks.rank(rank);
            r.retention.skip_to(generation);
            let Some(start) = r.proc.as_ref().map(|p| p.start) else { continue };
            r.capture.generation = Some(generation);
            r.capture.incarnation = r.incarnation;
            r.moves.ordered(clock);
            ranks.push((rank, start));
            self.checkpoints.scheduler.begin(rank, now);
            self.checkpoints.scheduler.had_turn(rank, now);
            if self.many() {
                // It is told with the node's part.
                continue;
            }
            let mut event = self.clock.event(EventKind::Checkpointing);
            (event.rank, event.generation) = (Some(rank), Some(generation));
            self.journal.log_event(event);
        }
        let left = ranks.iter().map(|r| r.0).collect();
        let gone = self.ranks.all.iter().map(|r| r.gone).collect();
        // Over nodes what ranks have sent lies beside their images.
        let (at, at_ms, segment, failed) = (clock.wall, now, self.many(), None);
        let shares = self.shares_from_snapshot();
        let hold = self.saving.under_way.is_some() || shares;
        let (set, sent) = (None, BTreeMap::new());
        self.checkpoints.fallback.holds = hold;
        self.checkpoints.fallback.as_set = Some(generation).filter(|_| shares && !self.many());
        self.checkpoints.fallback.under_way =
            Some(UnderWay { generation, at, at_ms, left, gone, segment, hold, failed, set, sent });
        if self.many() {
            return self.order_snapshot(generation);
        }
        let segment = self.checkpoints.fallback.name_of(generation);
        let incremental = self.spec.protection.incremental;
        self.nodes.to_all(&ToNode::CheckpointAll { ranks, generation, incremental, hold, segment });
    }

    /// What was between the ranks is written, or not.
    pub(crate) fn snapshot_segment(&mut self, name: &str, result: Result<u64, String>) {
        let this = self.checkpoints.fallback.is_taking_as(name);
        let Some(under_way) = self.checkpoints.fallback.under_way.as_mut().filter(|_| this) else {
            return self.remove_snapshot_file(name);
        };
        under_way.segment = true;
        if let Err(why) = result {
            let failed = under_way.failed.get_or_insert_default();
            if failed.is_empty() {
                *failed = why;
            }
        }
        self.snapshot_over();
    }

    /// Has a snapshot count of which all is there, or gives it up.
    pub(crate) fn snapshot_over(&mut self) {
        let over = |u: &mut UnderWay| u.left.is_empty() && u.segment;
        let Some(under_way) = self.checkpoints.fallback.under_way.take_if(over) else { return };
        let UnderWay { generation, at, at_ms, gone, hold, failed, .. } = under_way;
        let lacks = |(r, gone): (&crate::Rank, &bool)| {
            !gone && (r.gone || r.retention.newest().is_none_or(|k| k.generation != generation))
        };
        let lacking = self.ranks.all.iter().zip(&gone).any(lacks);
        if let Some(why) = failed.or_else(|| lacking.then(String::new)) {
            if hold {
                self.saving.under_way.iter_mut().for_each(|s| s.takes_no_snapshot());
                self.end_snapshot_hold();
            }
            return self.snapshot_failed(generation, why);
        }
        for rank in (0..self.size()).filter(|rank| !gone[*rank as usize]) {
            self.ranks.rank(rank).retention.pin(generation);
        }
        let most = if self.many() { KEPT_OVER_NODES } else { KEPT };
        let cost_ms = self.cost_of(0..self.size(), generation).ms();
        let fallback = &mut self.checkpoints.fallback;
        fallback.kept.push(Snapshot { generation, at, at_ms, gone });
        (fallback.last, fallback.told) = (Some((at_ms, cost_ms)), None);
        fallback.since.clear();
        let surplus = fallback.kept.len().saturating_sub(most);
        let old: Vec<Snapshot> = fallback.kept.drain(..surplus).collect();
        old.iter().for_each(|snapshot| self.let_snapshot_go(snapshot.generation));
        let mut event = self.clock.event(EventKind::Snapshot);
        event.generation = Some(generation);
        event.text = format!("all ranks can return to {}", time_of_day(at));
        self.journal.log_event(event);
        self.tell_snapshots();
        self.plan(Input::Pin { generation });
        if hold {
            self.stand_for_units(generation);
        }
    }

    fn snapshot_failed(&mut self, generation: u32, why: String) {
        self.remove_snapshot_file(&self.checkpoints.fallback.name_of(generation));
        self.stood_in_vain(&why);
        self.checkpoints.fallback.not_before_ms = self.ranks_ms().saturating_add(PAUSE_MS);
        (0..self.size()).for_each(|rank| self.checkpoints.renew_asks(rank));
        if why.is_empty() {
            return;
        }
        let mut event = self.clock.event(EventKind::CheckpointFailed);
        event.generation = Some(generation);
        event.text = format!("no snapshot of all ranks: {why}");
        self.journal.log_event(event);
        self.checkpoints.fallback.told = Some(why);
    }

    /// Ranks that stand to be larger units go on when the snapshot will not count, though some of
    /// it is still being written, copied or brought into the vault.
    fn stand_no_longer(&mut self) {
        let fallback = &self.checkpoints.fallback;
        let stands = fallback.holds && self.saving.under_way.is_none();
        if stands && fallback.is_taking() && !fallback.holds_well() {
            self.end_snapshot_hold();
        }
    }

    /// Ranks that are stopped with one, or are to be, go on.
    pub(crate) fn end_snapshot_hold(&mut self) {
        self.checkpoints.fallback.under_way.iter_mut().for_each(|u| u.hold = false);
        if std::mem::take(&mut self.checkpoints.fallback.holds) {
            self.release_all();
        }
    }

    /// No files of this one are needed any more.
    pub(crate) fn let_snapshot_go(&mut self, generation: u32) {
        for rank in 0..self.size() {
            let unneeded = self.ranks.rank(rank).retention.unpin(generation);
            self.remove_images(rank, unneeded);
        }
        self.plan(Input::Unpin { generation });
        self.remove_snapshot_file(&self.checkpoints.fallback.name_of(generation));
    }

    fn remove_snapshot_file(&self, name: &str) {
        self.remove_image_file(name);
    }

    pub(crate) fn tell_snapshots(&mut self) {
        let count = self.checkpoints.fallback.kept.len() as u32;
        self.step(monitor::Input::Snapshots { count });
    }

    /// All ranks returned to the newest one in vain.
    pub(crate) fn give_up_newest_snapshot(&mut self) {
        let Some(Snapshot { generation, at, .. }) = self.checkpoints.fallback.kept.pop() else {
            return;
        };
        self.let_snapshot_go(generation);
        self.journal.say(format!(
            "the snapshot of {} (checkpoint {generation}) is given up: all ranks returned to it \
             {} times without getting further than before",
            time_of_day(at),
            monitor::RETURNS
        ));
    }

    /// Those of which an image turned out to be bad are none any more.
    pub(crate) fn drop_bad_snapshots(&mut self) {
        let ranks = &self.ranks.all;
        let whole = |s: &Snapshot| {
            let has =
                |(r, gone): (&crate::Rank, &bool)| *gone || r.retention.is_pinned(s.generation);
            ranks.iter().zip(&s.gone).all(has)
        };
        let kept = std::mem::take(&mut self.checkpoints.fallback.kept);
        let (good, bad): (Vec<_>, Vec<_>) = kept.into_iter().partition(whole);
        self.checkpoints.fallback.kept = good;
        if !bad.is_empty() {
            bad.iter().for_each(|snapshot| self.let_snapshot_go(snapshot.generation));
            self.tell_snapshots();
        }
    }

    /// There are none any more: ranks begin anew, or the job is saved.
    pub(crate) fn forget_snapshots(&mut self) {
        let fallback = std::mem::take(&mut self.checkpoints.fallback);
        self.checkpoints.fallback.needed = fallback.needed;
        if let Some(under_way) = &fallback.under_way {
            self.remove_snapshot_file(&fallback.name_of(under_way.generation));
        }
        if !fallback.kept.is_empty() {
            fallback.kept.iter().for_each(|snapshot| self.let_snapshot_go(snapshot.generation));
            self.tell_snapshots();
        }
    }

    /// A rank has ended: it may come back with all others, from a snapshot, and else never.
    pub(crate) fn forget_images_but_snapshots(&mut self, rank: u32) {
        if self.checkpoints.fallback.kept.is_empty() {
            return self.forget_images(rank);
        }
        let unneeded = self.ranks.rank(rank).retention.end();
        self.remove_images(rank, unneeded);
    }

    /// No process is left: all ranks return to the newest snapshot. False: there is none.
    pub(crate) fn return_to_snapshot(&mut self) -> bool {
        if self.many() {
            return self.return_over_nodes();
        }
        let told = !self.checkpoints.fallback.kept.is_empty();
        self.drop_bad_snapshots();
        let Some(newest) = self.checkpoints.fallback.kept.last() else {
            if told {
                self.journal.say("no good snapshot is left: all ranks go back to the beginning");
            }
            return false;
        };
        let (generation, at, at_ms) = (newest.generation, newest.at, newest.at_ms);
        let gone = newest.gone.clone();
        if let Some(unfinished) = self.checkpoints.fallback.under_way.take() {
            let name = self.checkpoints.fallback.name_of(unfinished.generation);
            self.remove_snapshot_file(&name);
        }
        let now = self.ranks_ms();
        self.recovery.rollbacks += 1;
        for (rank, gone) in (0u32..).zip(gone) {
            self.rank_returns(rank, generation, gone, now);
        }
        let fallback = &mut self.checkpoints.fallback;
        (fallback.returning, fallback.needed) = (Some(generation), true);
        fallback.since.clear();
        self.tell_return(generation, at, at_ms);
        let segment = self.checkpoints.fallback.name_of(generation);
        self.nodes.to_all(&ToNode::Reload { segment });
        true
    }

    /// All ranks return to this snapshot.
    pub(crate) fn tell_return(&mut self, generation: u32, at: SystemTime, at_ms: u64) {
        let lost = self.ranks_ms().saturating_sub(at_ms);
        let lost = Duration::from_millis(lost).as_secs_f64();
        let text = format!(
            "all ranks returned to the snapshot of {} (checkpoint {generation}), {lost:.1} s of \
             work lost: {}",
            time_of_day(at),
            self.recovery.monitor.why_back()
        );
        self.tell_back(generation, &text);
        self.journal.say(format!("{text}; what was printed so far is not printed again"));
    }

    /// There is no snapshot: all ranks go back to what is in the job's folder, or begin anew.
    pub(crate) fn tell_restart(&mut self) {
        let place = match self.saving.archive.holds() {
            true => {
                format!("what the job's folder has (checkpoint {})", self.saving.archive.newest())
            }
            false => String::from("the beginning"),
        };
        let text = format!("all ranks go back to {place}: {}", self.recovery.monitor.why_back());
        self.tell_back(0, &text);
    }

    pub(crate) fn rank_returns(&mut self, rank: u32, generation: u32, gone: bool, now: u64) {
        let r = self.ranks.rank(rank);
        (r.restore.order, r.capture.partner, r.gone) = (None, None, gone);
        (r.saving, r.falls, r.swap) = (LogSaving::No, false, None);
        r.latest.take_if(|latest| latest.taken.meta.generation != generation);
        let unneeded = r.retention.go_back(generation);
        if let Some(capturing) = r.capture.generation.take() {
            // The node removes what there is of it.
            let free = self.checkpoints.loans.written((rank, capturing), []);
            self.nodes.remove_files(&free);
            self.checkpoints.scheduler.finished(rank, now);
        }
        self.remove_images(rank, unneeded);
        self.give_up_output(rank);
        if gone {
            return self.recovery.monitor.set_gone(rank);
        }
        self.reaches_newest(rank);
    }

    /// It is as far as its newest checkpoint.
    pub(crate) fn reaches_newest(&mut self, rank: u32) {
        let point = self.ranks.all[rank as usize].retention.newest().map(|kept| place(&kept.point));
        if let Some(place) = point {
            self.step(monitor::Input::Reached { rank, place });
        }
    }

    /// What was between the ranks then is there again, or cannot be had.
    pub(crate) fn snapshot_reloaded(&mut self, name: &str, result: Result<(), String>) {
        let fallback = &self.checkpoints.fallback;
        let this = fallback.returning.is_some_and(|g| fallback.name_of(g) == name);
        let returning = self.checkpoints.fallback.returning.take_if(|_| this);
        let Some(generation) = returning else { return };
        if let Err(why) = result {
            self.checkpoints.fallback.kept.retain(|snapshot| snapshot.generation != generation);
            self.let_snapshot_go(generation);
            self.tell_snapshots();
            let why = format!("the snapshot {generation} cannot be used: {why}");
            return self.step(monitor::Input::Unrecoverable { why });
        }
        for rank in 0..self.size() {
            if self.recovery.monitor.may_start(rank) {
                self.recover(rank);
            }
        }
    }

    pub(crate) fn fallback_status(&self) -> Option<FallbackStatus> {
        let asked = self.spec.protection.fallback;
        let every = self.checkpoints.fallback.every(asked).filter(|_| self.has_snapshots())?;
        let newest = self.checkpoints.fallback.kept.last();
        let rests = self.checkpoints.fallback.rests_until_ms(asked).saturating_sub(self.ranks_ms());
        let mut next = match self.checkpoints.fallback.missing(asked, self.ranks.live_ranks()) {
            _ if self.checkpoints.fallback.under_way.is_some() => String::from("under way"),
            Some(missing @ 1..) => format!("after {missing} more checkpoints of each rank"),
            _ if rests > 0 => format!("in {:.1} s, by what one costs", rests as f64 / 1e3),
            _ => String::from("with the next checkpoint"),
        };
        next += &format!(" (every {every} checkpoints)");
        if let Some(why) = &self.checkpoints.fallback.told {
            next += &format!("; the last one did not come about: {why}");
        }
        Some(FallbackStatus {
            checkpoint: newest.map(|s| s.generation),
            unix_ms: newest.map(|s| unix_ms(s.at)),
            kept: self.checkpoints.fallback.kept.len() as u32,
            next,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoints::fallback_model::USUAL;

    fn after(checkpoints: &[u32]) -> Fallback {
        let mut fallback = Fallback::default();
        for (rank, count) in (0..).zip(checkpoints) {
            (0..*count).for_each(|_| fallback.count(rank));
        }
        fallback
    }

    #[test]
    fn a_snapshot_is_in_place_of_every_so_many_checkpoints() {
        let all = |f: &Fallback, every| f.missing(every, 0..3);
        assert_eq!(all(&Fallback::default(), Every::Off), None);
        assert_eq!(all(&Fallback::default(), Every::Every(1)), Some(0));
        assert_eq!(all(&Fallback::default(), Every::Every(3)), Some(2));
        assert_eq!(all(&after(&[2, 2, 1]), Every::Every(3)), Some(1), "of the one with fewest");
        assert_eq!(after(&[2, 2]).missing(Every::Every(3), 0..2), Some(0));
        assert_eq!(all(&after(&[4, 4, 4]), Every::Every(3)), Some(0));
    }

    #[test]
    fn left_to_itself_it_takes_no_more_than_a_part_of_the_time_until_one_is_needed() {
        let mut fallback = after(&[1, 1]);
        assert_eq!(fallback.missing(Every::Auto, 0..2), Some(0), "the first comes soon");
        fallback.last = Some((5000, 20.0));
        assert_eq!(fallback.missing(Every::Auto, 0..2), Some(USUAL - 2));
        assert_eq!(fallback.rests_until_ms(Every::Auto), 7000);
        assert_eq!(fallback.rests_until_ms(Every::Every(3)), 5000);
        fallback.needed = true;
        assert_eq!(fallback.missing(Every::Auto, 0..2), Some(0));
        assert_eq!(fallback.rests_until_ms(Every::Auto), 5040);
    }
}
