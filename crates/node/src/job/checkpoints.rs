//! Taking checkpoints, trimming the logs after them, and finding log space by them.

use super::{Ask, Job, Latest, Msg, Rank, Replay};
use crate::checkpoint::{self, CheckpointError, Order, Pipes, Report, Taken};
use crate::futex;
use crate::input::queued;
use crate::loans::File;
use crate::monitor::{self, Said};
use crate::outlet::Outlet;
use crate::reap;
use eyrie_control::{Dedup, EventKind, Ft, NodeMsg};
use eyrie_image::{Pool, Sharing, Tracker, Tracking};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Failed attempts of a rank whose checkpoint is needed for log space, before protection is
/// given up.
const NEEDED_ATTEMPTS: u32 = 3;
/// How often the job is looked at when something may change without a bell.
const WATCH: Duration = Duration::from_millis(100);
/// The same when nothing is expected.
const IDLE: Duration = Duration::from_secs(2);

/// Where the ranks of a job lend and borrow pages of their images, if they do.
pub(super) fn pool(dedup: Dedup) -> Option<Arc<Pool>> {
    match dedup {
        Dedup::Auto => Some(Pool::new(Sharing::Auto)),
        Dedup::On => Some(Pool::new(Sharing::On)),
        Dedup::Off => None,
    }
}

impl Job {
    /// Starts the checkpoints that are due.
    pub(super) fn schedule(&mut self) {
        if !self.monitor.running() || self.spec.ft != Ft::Logged {
            return;
        }
        while let Some(rank) = self.scheduler.pick(self.now_ms()) {
            self.begin_checkpoint(rank);
        }
    }

    /// How long the main loop may sleep.
    pub fn next_look(&self) -> Duration {
        let pressed = |r| self.segment.rank(r).pressure.load(Ordering::Relaxed) != 0;
        let watched = self.verify.is_some()
            || self.ranks.iter().any(|r| r.replay != Replay::No)
            || (0..self.spec.size).any(pressed);
        let most = if watched { WATCH } else { IDLE };
        let due = self.scheduler.next_due_ms().map(|at| at.saturating_sub(self.now_ms()));
        due.map_or(most, |ms| most.min(Duration::from_millis(ms.max(1))))
    }

    /// Called when that time is over.
    pub fn tick(&mut self) {
        self.look();
        self.watch_forced_run();
        if self.ranks.iter().all(|r| r.capturing.is_none()) {
            reap::collect_orphans(&self.processes());
        }
        self.schedule();
    }

    fn begin_checkpoint(&mut self, rank: u32) {
        let Some(proc) = &self.ranks[rank as usize].proc else {
            let now = self.now_ms();
            return self.scheduler.finished(rank, now);
        };
        let (pid, epoch) = (proc.pid, proc.epoch);
        let generation = self.rank(rank).retention.begin();
        let order = Order {
            segment: Arc::clone(&self.segment),
            job: self.place.id.clone(),
            rank,
            pid,
            generation,
            path: self.image_file(rank, generation),
            tracker: self.tracker(rank),
        };
        self.rank(rank).capturing = Some(generation);
        self.rank(rank).freezing = true;
        let mut event = self.event(EventKind::Checkpointing);
        event.rank = Some(rank);
        event.generation = Some(generation);
        self.log_event(event);
        let tell = self.tell.clone();
        let report = move |report| {
            let _ = tell.send(Msg::Checkpoint { rank, generation, epoch, report });
        };
        if let Err(error) = checkpoint::start(order, report) {
            self.let_go(rank);
            self.checkpoint_over(rank, generation, Err(error));
        }
    }

    /// What is known of the rank's last image, to be given back by the checkpoint.
    fn tracker(&mut self, rank: u32) -> Box<Tracker> {
        let wish = if self.spec.incremental { Tracking::from_env() } else { Tracking::Off };
        let tracker = self.rank(rank).tracker.take();
        let mut tracker = tracker.unwrap_or_else(|| Box::new(Tracker::new(wish)));
        if let Some(pool) = &self.pool {
            tracker.join(pool, rank);
        }
        tracker
    }

    /// A checkpoint thread says how it stands.
    pub(super) fn checkpoint_report(
        &mut self,
        rank: u32,
        generation: u32,
        epoch: u64,
        report: Report,
    ) {
        let stale = self.rank(rank).capturing != Some(generation);
        match report {
            Report::Standing(answer) => {
                let _ = answer.send(self.pipes(rank, epoch).filter(|_| !stale));
            }
            Report::LetGo if !stale => self.let_go(rank),
            Report::Over(result, mut tracker) if !stale => {
                // One that was restored meanwhile is another process.
                let same = self.rank(rank).proc.as_ref().is_some_and(|p| p.epoch == epoch);
                if !same {
                    tracker.restart();
                }
                self.rank(rank).tracker = Some(tracker);
                self.checkpoint_over(rank, generation, *result);
            }
            Report::LetGo => {}
            // All ranks went back to the beginning since.
            Report::Over(..) => {
                let _ = eyrie_image::remove_image(&self.image_file(rank, generation));
            }
        }
    }

    /// Where a rank that stands still is in its standard streams.
    fn pipes(&self, rank: u32, epoch: u64) -> Option<Pipes> {
        let r = &self.ranks[rank as usize];
        let proc = r.proc.as_ref().filter(|p| p.epoch == epoch && !p.mute)?;
        let written = |i: usize| r.tapes[i].position() + queued(proc.pipes[i].get_ref().as_fd());
        let input = if rank == 0 { self.input.consumed() } else { 0 };
        Some(Pipes { output: [written(0), written(1)], input })
    }

    fn let_go(&mut self, rank: u32) {
        self.rank(rank).freezing = false;
        if std::mem::take(&mut self.rank(rank).recover_later) && self.monitor.may_start(rank) {
            self.recover(rank);
        }
    }

    fn checkpoint_over(
        &mut self,
        rank: u32,
        generation: u32,
        result: Result<Taken, CheckpointError>,
    ) {
        let now = self.now_ms();
        self.rank(rank).capturing = None;
        self.scheduler.finished(rank, now);
        let borrowed = match &result {
            Ok(taken) if !self.rank(rank).gone => taken.borrows.clone(),
            _ => Vec::new(),
        };
        let free = self.loans.written((rank, generation), borrowed);
        self.remove_files(&free);
        match result {
            Ok(_) if self.rank(rank).gone => self.remove_files(&[(rank, generation)]),
            Ok(taken) => self.complete(rank, generation, taken),
            Err(error) => self.checkpoint_failed(rank, generation, &error),
        }
        self.relieve();
    }

    fn complete(&mut self, rank: u32, generation: u32, taken: Taken) {
        let Taken { meta, report, needs, .. } = &taken;
        let surplus = self.rank(rank).retention.complete(generation, meta.point(), needs.clone());
        self.discard(rank, surplus);
        if let Some(tracker) = &mut self.rank(rank).tracker {
            tracker.lend();
        }
        let (bytes, shared_bytes) = (report.bytes, report.shared_pages * 4096);
        let unchanged_bytes = report.referred_pages * 4096;
        let (mode, why) = (report.mode.mode.name(), report.mode.why.clone());
        let (took_ms, frozen_ms) =
            (taken.took.as_secs_f64() * 1e3, taken.frozen.as_secs_f64() * 1e3);
        let r = self.rank(rank);
        r.reason = None;
        r.failures = 0;
        r.latest = Some(Latest {
            generation,
            at: Instant::now(),
            bytes,
            unchanged_bytes,
            tracking: taken.tracking,
            mode,
            why,
            took: taken.took,
            frozen: taken.frozen,
        });
        self.trim(rank);
        let mut event = self.event(EventKind::Checkpointed);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.took_ms = Some(took_ms);
        event.bytes = Some(bytes);
        event.text = format!("rank stood still for {frozen_ms:.2} ms ({mode})");
        if shared_bytes > 0 {
            let mib = shared_bytes as f64 / f64::from(1 << 20);
            event.text += &format!("; {mib:.1} MiB lie in images of other ranks");
        }
        self.log_event(event);
        let answer = NodeMsg::Checkpointed { rank, generation, bytes, took_ms, frozen_ms };
        self.answer_asks(rank, Some(generation), &answer);
    }

    /// Gives up image files that `rank` does not need any more. They go when no other rank needs
    /// them either, for an image that it has or one that is being written.
    pub(super) fn discard(&mut self, rank: u32, generations: Vec<u32>) {
        for generation in generations {
            let file = (rank, generation);
            let mut unfinished = Vec::new();
            if let Some(pool) = &self.pool {
                pool.withdraw(&checkpoint::image_name(rank, generation));
                let capturing = |(r, other): (u32, &Rank)| Some((r, other.capturing?));
                unfinished = (0..).zip(&self.ranks).filter_map(capturing).collect();
            }
            let free = self.loans.give_up(file, unfinished.into_iter());
            self.remove_files(&free);
        }
    }

    /// No image is needed any more, whoever refers to it.
    pub(super) fn forget_loans(&mut self) {
        if let Some(pool) = &self.pool {
            pool.clear();
        }
        let left = self.loans.clear();
        self.remove_files(&left);
        // Images that are still being written will be removed.
        self.ranks.iter_mut().for_each(|r| r.capturing = None);
    }

    fn remove_files(&self, files: &[File]) {
        for &(rank, generation) in files {
            // One that cannot be removed goes with the job's folder.
            let _ = eyrie_image::remove_image(&self.image_file(rank, generation));
        }
    }

    /// Gives up what no kept checkpoint of `rank` needs.
    fn trim(&mut self, rank: u32) {
        let floor = self.rank(rank).retention.floor().clone();
        for (source, need) in (0..self.size()).zip(&floor.need) {
            self.segment.channel(source, rank).trim.fetch_max(*need, Ordering::Release);
        }
        self.segment.rank(rank).det_trim.fetch_max(floor.det_pos, Ordering::Release);
        self.ring_pressed();
    }

    /// Rings the ranks that wait for log space.
    pub(super) fn ring_pressed(&self) {
        for ctl in (0..self.spec.size).map(|r| self.segment.rank(r)) {
            if ctl.pressure.load(Ordering::Acquire) != 0 {
                futex::ring(&ctl.doorbell);
            }
        }
    }

    fn checkpoint_failed(&mut self, rank: u32, generation: u32, error: &CheckpointError) {
        if error.is_death() {
            // Those who wait for it are served after the recovery.
            return;
        }
        let reason = error.to_string();
        let r = self.rank(rank);
        r.failures = if error.is_lasting() { NEEDED_ATTEMPTS } else { r.failures + 1 };
        let news = r.reason.as_deref() != Some(&reason);
        r.reason = Some(reason.clone());
        if news {
            self.say(format!(
                "no checkpoint of rank {rank}: {reason}; the job goes on, the last checkpoint stays"
            ));
            let mut event = self.event(EventKind::CheckpointFailed);
            event.rank = Some(rank);
            event.generation = Some(generation);
            event.text = reason.clone();
            self.log_event(event);
        }
        let answer = NodeMsg::CheckpointFailed { rank, reason };
        self.answer_asks(rank, Some(generation), &answer);
    }

    /// Looks at all control blocks after a bell.
    pub(super) fn look(&mut self) {
        for rank in 0..self.size() {
            if self.monitor.listens_to(rank) {
                match self.said(rank) {
                    Said::Nothing | Said::Running => {}
                    said => self.step(monitor::Input::Reported { rank, said }),
                }
            }
            self.look_at_replay(rank);
        }
        self.relieve();
    }

    fn look_at_replay(&mut self, rank: u32) {
        let state = self.rank(rank).replay;
        if state == Replay::No || self.rank(rank).proc.is_none() {
            return;
        }
        let ctl = self.segment.rank(rank);
        let replaying = ctl.replaying.load(Ordering::Acquire) != 0;
        let count = ctl.replayed.load(Ordering::Acquire);
        if replaying && state == Replay::Expected {
            self.rank(rank).replay = Replay::Seen;
            let mut event = self.event(EventKind::Replaying);
            event.rank = Some(rank);
            self.log_event(event);
        } else if !replaying && (state == Replay::Seen || count > 0) {
            self.rank(rank).replay = Replay::No;
            let since = self.rank(rank).died_at;
            let mut event = self.event(EventKind::CaughtUp);
            event.rank = Some(rank);
            event.count = Some(count);
            event.took_ms = since.map(|at| at.elapsed().as_secs_f64() * 1e3);
            event.text = format!("{count} events and sends reproduced");
            self.log_event(event);
        }
    }

    /// A rank waits for log space: brings forward the checkpoint that frees most of it.
    fn relieve(&mut self) {
        for rank in 0..self.size() {
            let ctl = self.segment.rank(rank);
            if ctl.pressure.load(Ordering::Acquire) == 0 || !self.monitor.listens_to(rank) {
                continue;
            }
            if self.verify.is_some() {
                let text = format!("rank {rank} records more than the logs of `eyrie verify` hold");
                return self.step(monitor::Input::Fatal { text, code: 1 });
            }
            if self.spec.ft != Ft::Logged || self.unprotected.is_some() {
                continue;
            }
            let Some(target) = self.relief_for(rank) else { continue };
            let r = self.rank(target);
            if r.failures >= NEEDED_ATTEMPTS {
                let why = r.reason.clone().unwrap_or_default();
                let text = format!(
                    "the log of rank {rank} is full and rank {target} cannot be checkpointed: {why}"
                );
                return self.give_up_protection(text);
            }
            if !self.scheduler.busy(target) {
                self.scheduler.request(target);
            }
        }
    }

    /// The live rank whose checkpoints would free most log of `rank`.
    fn relief_for(&self, rank: u32) -> Option<u32> {
        let live = |r: u32| self.ranks[r as usize].proc.is_some();
        let ctl = self.segment.rank(rank);
        let held = ctl.det_tail.load(Ordering::Acquire) - ctl.det_trim.load(Ordering::Acquire);
        if held >= self.segment.geometry().det_words / 8 * 7 && live(rank) {
            return Some(rank);
        }
        let gain = |r: u32| {
            let channel = self.segment.channel(rank, r);
            let need = channel.need.load(Ordering::Acquire);
            need.saturating_sub(channel.trim.load(Ordering::Acquire))
        };
        let best = (0..self.spec.size).filter(|r| live(*r)).max_by_key(|r| gain(*r))?;
        (gain(best) > 0).then_some(best)
    }

    fn give_up_protection(&mut self, why: String) {
        self.say(format!(
            "WARNING: {why}\nthe job goes on WITHOUT protection: a rank that dies from now on ends \
             it (a larger --log-limit helps)"
        ));
        let mut event = self.event(EventKind::Unprotected);
        event.text = why.clone();
        self.log_event(event);
        self.unprotected = Some(why);
        self.segment.header().unprotected.store(1, Ordering::Release);
        for rank in 0..self.size() {
            self.scheduler.set_live(rank, false);
            self.fail_asks(rank, "the job runs without protection");
            futex::ring(&self.segment.rank(rank).doorbell);
        }
    }

    /// A client wants checkpoints of one rank or of all, and waits for them.
    pub fn ask_checkpoint(&mut self, rank: Option<u32>, outlet: Outlet) -> Result<(), String> {
        if self.spec.ft != Ft::Logged {
            return Err(format!("the job runs with --ft {}", self.spec.ft.name()));
        }
        if let Some(why) = &self.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        let ranks = match rank {
            Some(r) if r >= self.size() => return Err(format!("there is no rank {r}")),
            Some(r) => r..r + 1,
            None => 0..self.size(),
        };
        let mut left = Vec::new();
        for r in ranks {
            if self.rank(r).gone {
                let reason = String::from("it has ended");
                outlet.send(&NodeMsg::CheckpointFailed { rank: r, reason });
            } else {
                // One that is being recovered is asked when it runs again.
                self.scheduler.request(r);
                left.push((r, self.rank(r).capturing.unwrap_or(0)));
            }
        }
        if left.is_empty() {
            outlet.send(&NodeMsg::Done);
        } else {
            self.asks.push(Ask { outlet, left });
        }
        self.schedule();
        Ok(())
    }

    /// A rank runs again: those who wait for its checkpoint get it now.
    pub(super) fn renew_asks(&mut self, rank: u32) {
        if self.asks.iter().any(|ask| ask.left.iter().any(|(r, _)| *r == rank)) {
            self.scheduler.request(rank);
        }
    }

    pub(super) fn fail_asks(&mut self, rank: u32, reason: &str) {
        let answer = NodeMsg::CheckpointFailed { rank, reason: reason.to_string() };
        self.answer_asks(rank, None, &answer);
    }

    fn answer_asks(&mut self, rank: u32, generation: Option<u32>, answer: &NodeMsg) {
        for ask in &mut self.asks {
            let before = ask.left.len();
            ask.left.retain(|(r, after)| *r != rank || generation.is_some_and(|g| g <= *after));
            if ask.left.len() < before {
                ask.outlet.send(answer);
                if ask.left.is_empty() {
                    ask.outlet.send(&NodeMsg::Done);
                }
            }
        }
        self.asks.retain(|ask| !ask.left.is_empty() && !ask.outlet.is_closed());
    }

    /// A client kills ranks as a fault would.
    pub fn inject(&mut self, ranks: &[u32]) -> Result<(), String> {
        let missing = |r: &&u32| self.ranks.get(**r as usize).is_none_or(|r| r.proc.is_none());
        if let Some(rank) = ranks.iter().find(missing) {
            return Err(format!("rank {rank} has no process"));
        }
        for rank in ranks {
            let r = self.rank(*rank);
            r.injected_at = Some(Instant::now());
            let Some(proc) = &r.proc else { continue };
            // SAFETY: our own child, not collected yet.
            unsafe { libc::kill(proc.pid, libc::SIGKILL) };
            let mut event = self.event(EventKind::Injected);
            event.rank = Some(*rank);
            event.text = String::from("SIGKILL");
            self.log_event(event);
        }
        Ok(())
    }
}
