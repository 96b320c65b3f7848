//! Taking checkpoints.

use super::state::capture::Wanted;
use super::state::image_copy::{Copy, NotThere};
use super::state::standing::Standing;
use super::{Agent, Msg};
use crate::checkpoint::{self, CheckpointError, GoOn, Order, Report};
use eyrie_control::Orphans;
use eyrie_control::node::{CheckpointOrder, CheckpointResult, FromNode, Taken};
use eyrie_exchange::image_files::{self, image_name, image_path};
use eyrie_image::{Mode, Tap, Tracker, Tracking};
use eyrie_process::cores;
use eyrie_process::stop_points;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Agent {
    pub(super) fn order_checkpoint(&mut self, order: CheckpointOrder) {
        let CheckpointOrder { rank, start, generation, incremental, hold, .. } = order;
        let mut copy = Copy::to(order.partner, order.missing, order.key);
        copy.known = self.known_there(rank, &copy);
        self.rank(rank).capture.copy = Some(copy);
        self.checkpoint(Wanted { rank, start, generation, incremental, hold });
    }

    /// Has a checkpoint taken. Where its image goes is called before the rank is stopped.
    pub(super) fn checkpoint(&mut self, wanted: Wanted) {
        let Wanted { rank, start, generation, hold, .. } = wanted;
        if hold {
            self.rank(rank).capture.hold = Some(Arc::default());
        }
        let lives = self.proc(rank, start).is_some();
        let Some(begin) = self.pouring(rank, generation).filter(|_| lives) else {
            return self.freeze(wanted, None);
        };
        let tell = self.tell.clone();
        let call = move || drop(tell.send(Msg::Poured { wanted, tap: begin() }));
        if std::thread::Builder::new().name("eyrie-pour".into()).spawn(call).is_err() {
            self.freeze(wanted, None);
        }
    }

    /// Has the rank stopped for a checkpoint.
    pub(super) fn freeze(&mut self, wanted: Wanted, tap: Option<Box<dyn Tap>>) {
        let Wanted { rank, start, generation, incremental, hold } = wanted;
        let Some(pid) = self.proc(rank, start).map(|p| p.pid) else {
            self.falls_out(rank);
            let result = CheckpointResult::Died;
            return self.say(FromNode::CheckpointOver { rank, start, generation, result });
        };
        let stands = self.rank(rank).stand.standing.as_ref().is_some_and(|s| !s.is_slow());
        if stands || self.suspension.is_leaderless() {
            self.rank(rank).capture.later = Some((wanted, tap));
            return self.tend_standing(rank);
        }
        self.reach(6);
        // Else others wait until this rank was stopped: all of a set, or its router.
        let standing = self.rank(rank).stand.standing.as_ref();
        let hardly_runs = !hold && standing.is_some_and(Standing::hardly_runs);
        let ahead = !hold && !self.is_of_set(rank, generation) && self.spec.placement.routers == 0;
        let order = Order {
            segment: Arc::clone(&self.segment),
            job: self.place.id.clone(),
            rank,
            pid,
            safe_point: Duration::from_millis(self.spec.timing.intervals.limits.safe_point_ms),
            generation,
            path: self.image_file(rank, generation),
            freeze: self.spec.protection.freeze,
            // It may have been called off by now.
            hold: self.rank(rank).capture.hold.clone().filter(|_| hold),
            alone: self.spec.protection.orphans == Orphans::Refuse,
            hardly_runs,
            ahead: ahead.then(Arc::default),
            called_off: Arc::default(),
            bound: self.rank(rank).binding.processors.as_deref().map(cores::mask),
            given: self.given(rank, start),
            tracker: self.tracker(rank, incremental),
            tap,
        };
        let r = self.rank(rank);
        r.capture.ahead = order.ahead.clone();
        r.capture.spoilt.clear();
        r.capture.storing = Some(Arc::clone(&order.called_off));
        (r.capture.generation, r.capture.freezing) = (Some(generation), Some(start));
        if hold {
            r.stand.slowed = None;
        }
        let (tell, leaves) = (self.tell.clone(), hold && self.leaving.leaves());
        let report = move |report| {
            if leaves && matches!(report, Report::Over(..)) {
                stop_points::reach("leave-5");
            }
            let _ = tell.send(Msg::Checkpoint { rank, generation, start, report });
        };
        let started = match &mut self.rank(rank).stand.standing {
            Some(standing) => standing
                .hand(move |frozen| checkpoint::run(order, frozen, report))
                .map_err(CheckpointError::Thread),
            None => checkpoint::start(order, report),
        };
        if let Err(error) = started {
            self.let_go(rank);
            self.checkpoint_over(rank, start, generation, Err(error));
        }
    }

    /// What is known of the rank's last image, to be given back by the checkpoint.
    fn tracker(&mut self, rank: u32, incremental: bool) -> Box<Tracker> {
        let wish = if incremental { Tracking::from_env() } else { Tracking::Off };
        let tracker = self.rank(rank).capture.tracker.take();
        let mut tracker = tracker.unwrap_or_else(|| Box::new(Tracker::new(wish)));
        tracker.follow_children();
        tracker.keep_files(self.spec.protection.files_limit_bytes);
        if let Some(watch) = &self.images.watch {
            tracker.watch(Arc::clone(watch));
        }
        if let Some(pool) = &self.images.pool {
            tracker.join(pool, rank);
        }
        tracker
    }

    /// A checkpoint thread says how it stands.
    pub(super) fn checkpoint_report(
        &mut self,
        rank: u32,
        generation: u32,
        start: u64,
        report: Report,
    ) {
        let stale = self.rank(rank).capture.generation != Some(generation);
        match report {
            Report::Standing(stands) if self.is_of_set(rank, generation) => {
                self.stands(rank, start, generation, stands);
            }
            Report::Standing(stands) => {
                let pipes = self.pipes(rank, start).filter(|_| !stale);
                let _ = stands.answer.send(pipes.map(GoOn::alone));
            }
            Report::LetGo { stands } if !stale => {
                self.let_router_go(rank, generation);
                self.let_go(rank);
                self.handed_back(rank, start, stands);
            }
            Report::Over(result, mut tracker) if !stale => {
                // One that was restored meanwhile is another process.
                let anew = std::mem::take(&mut self.rank(rank).capture.anew);
                if anew || self.proc(rank, start).is_none() {
                    tracker.restart();
                }
                self.rank(rank).capture.tracker = Some(tracker);
                self.checkpoint_over(rank, start, generation, *result);
            }
            // All ranks went back since.
            Report::LetGo { stands } => {
                self.let_go_late(rank, start);
                self.handed_back(rank, start, stands);
            }
            Report::Over(..) => self.remove_images(rank, &[generation]),
        }
    }

    fn let_go(&mut self, rank: u32) {
        self.falls_out(rank);
        self.untouched(rank);
    }

    /// So is what was the rank's process before all went back.
    fn let_go_late(&mut self, rank: u32, start: u64) {
        if self.rank(rank).capture.freezing == Some(start) {
            self.untouched(rank);
        }
    }

    fn untouched(&mut self, rank: u32) {
        let r = self.rank(rank);
        (r.capture.freezing, r.capture.ahead, r.capture.storing) = (None, None, None);
        if let Some(search) = r.restart.find_later.take() {
            self.find(rank, search);
        }
        self.tend_standing(rank);
        self.tend_cut();
    }

    fn checkpoint_over(
        &mut self,
        rank: u32,
        start: u64,
        generation: u32,
        result: Result<checkpoint::Taken, CheckpointError>,
    ) {
        self.reach(8);
        let copy = self.rank(rank).capture.copy.take();
        if let Ok(taken) = &result
            && let Some(why) = self.is_spoilt(rank, &taken.needs)
        {
            return self.checkpoint_failed(rank, start, generation, why);
        }
        let result = match (result, copy) {
            (Ok(taken), Some(copy)) if self.network.is_some() => {
                return self.copy_out(rank, start, generation, taken, copy);
            }
            (result, _) => result,
        };
        self.rank(rank).capture.generation = None;
        let result = match result {
            Ok(taken) => {
                self.rank(rank).capture.tracker.iter_mut().for_each(|t| t.lend());
                self.tell_checkpoint(rank, generation);
                CheckpointResult::Taken(Box::new(told(taken)))
            }
            Err(error) if error.is_death() => CheckpointResult::Died,
            Err(error) => {
                // It may have been held for it.
                self.let_rank_go(rank);
                let lasting = error.is_lasting();
                CheckpointResult::Failed { text: error.to_string(), lasting }
            }
        };
        self.say(FromNode::CheckpointOver { rank, start, generation, result });
    }

    /// The image is on its partner, too, or could not be brought there.
    pub(super) fn copied(
        &mut self,
        rank: u32,
        start: u64,
        generation: u32,
        taken: checkpoint::Taken,
        result: Result<(), NotThere>,
    ) {
        if self.rank(rank).capture.generation != Some(generation) {
            return self.remove_images(rank, &[generation]);
        }
        self.reach(9);
        let spoilt = self.is_spoilt(rank, &taken.needs);
        if let Some(why) = result.err().or(spoilt) {
            return self.checkpoint_failed(rank, start, generation, why);
        }
        self.rank(rank).capture.generation = None;
        self.is_there(rank, generation);
        self.tell_checkpoint(rank, generation);
        if self.proc(rank, start).is_some() {
            // The image is behind it, and the node may be lost with what is in the pipes.
            self.drain(rank);
        }
        let result = CheckpointResult::Taken(Box::new(told(taken)));
        self.let_out(FromNode::CheckpointOver { rank, start, generation, result });
    }

    /// Lets the rank's tools know of its newest checkpoint.
    fn tell_checkpoint(&self, rank: u32, generation: u32) {
        let newest = &self.segment.rank(rank).checkpoint;
        newest.fetch_max(u64::from(generation), Ordering::Relaxed);
    }

    /// Why an image that needs the files of these generations is not to count, if so.
    fn is_spoilt(&mut self, rank: u32, needs: &[u32]) -> Option<NotThere> {
        let bad = needs.iter().find(|file| self.rank(rank).capture.spoilt.contains(file))?;
        Some(NotThere::once(format!("it builds on checkpoint {bad}, which was found damaged")))
    }

    /// No partner has it: it does not count.
    pub(super) fn checkpoint_failed(
        &mut self,
        rank: u32,
        start: u64,
        generation: u32,
        why: NotThere,
    ) {
        let NotThere { text, lasting, lost } = why;
        self.remove_images(rank, &[generation]);
        let r = self.rank(rank);
        r.capture.generation = None;
        // The next image must not build on this one.
        r.capture.tracker = None;
        self.let_rank_go(rank);
        let result = match lost {
            true => CheckpointResult::NoPartner(text),
            false => CheckpointResult::Failed { text, lasting },
        };
        self.say(FromNode::CheckpointOver { rank, start, generation, result });
    }

    pub(super) fn image_file(&self, rank: u32, generation: u32) -> PathBuf {
        image_path(&self.place.images, rank, generation)
    }

    /// Nothing new may refer to these images.
    pub(super) fn withdraw(&self, rank: u32, generations: &[u32]) {
        if let Some(pool) = &self.images.pool {
            generations.iter().for_each(|g| pool.withdraw(&image_name(rank, *g)));
        }
    }

    /// No kept checkpoint needs these.
    pub(super) fn give_up_images(&self, rank: u32, generations: &[u32]) {
        self.images.inspection.without(rank, generations);
        self.remove_images(rank, generations);
    }

    pub(super) fn remove_images(&self, rank: u32, generations: &[u32]) {
        image_files::remove(&self.place.images, rank, generations);
    }
}

fn told(taken: checkpoint::Taken) -> Taken {
    let checkpoint::Taken { meta, report, frozen, took, spent, needs, borrows, tracking } = taken;
    Taken {
        meta,
        bytes: report.bytes,
        unchanged_bytes: report.referred_pages * 4096,
        shared_bytes: report.shared_pages * 4096,
        tracking,
        mode: report.mode.mode.name().to_string(),
        why: report.mode.why.clone(),
        took_ms: took.as_secs_f64() * 1e3,
        frozen_ms: frozen.as_secs_f64() * 1e3,
        cpu_ms: spent.cpu_ms,
        busy: spent.busy,
        is_synchronous: report.mode.mode == Mode::Sync,
        needs,
        borrows,
    }
}
