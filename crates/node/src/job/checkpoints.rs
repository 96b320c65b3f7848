//! When checkpoints are taken, what is kept of them, and log space that is had by them.

use super::books::Moment;
use super::failures::Failures;
use super::together::Together;
use super::{Ask, Capture, Job, Latest, Rank};
use crate::crew::Daemon;
use crate::loans::File;
use crate::monitor;
use crate::outlet::Outlet;
use crate::points;
use crate::recovery::Input;
use crate::retention::Point;
use crate::scheduler::{Policy, Scheduler};
use crate::units;
use eyrie_control::node::{CheckpointOrder, CheckpointResult, Taken, ToNode};
use eyrie_control::{CheckpointPolicy, Dedup, EventKind, Ft, JobSpec, Meta, NodeMsg};
use eyrie_protocol::interval::Cost;
use std::time::{Duration, Instant};

/// Longest sleep of the main loop.
const IDLE: Duration = Duration::from_secs(2);

/// The order of checkpoints that a job is to have.
pub(super) fn scheduler(spec: &JobSpec, now_ms: u64) -> Scheduler {
    let policy = match spec.checkpoint_policy {
        CheckpointPolicy::Sequential => Policy::Sequential,
        CheckpointPolicy::Batch => Policy::Batch,
        CheckpointPolicy::Timer => Policy::Timer,
        CheckpointPolicy::Auto => Policy::Auto,
    };
    let of_ranks = spec.ft == Ft::Logged || spec.ft.has_units();
    let every_ms = if of_ranks { spec.checkpoint_every_ms } else { 0 };
    // Of recovery units all ranks have their turn together.
    let turns = units::of(spec).into_iter().max().map_or(spec.size, |last| last + 1);
    Scheduler::with(policy, turns, every_ms, spec.checkpoint_first_ms, now_ms)
}

impl Job {
    /// Starts the checkpoints that are due.
    pub fn schedule(&mut self) {
        self.tend_halt();
        self.tend_scrub();
        self.tend_input();
        self.forward_unfinished();
        if self.monitor.running() {
            self.tend_troubles();
            self.tend_repeated();
        }
        if !self.monitor.running() || !self.spec.ft.protects() {
            return;
        }
        let halted = self.is_halted();
        // Also of ranks that do not run nodes may leave.
        let round = self.together.as_ref().is_some_and(|t| t.round.is_some());
        let out = self.is_swapped() && self.together.as_ref().is_some_and(Together::is_wanted);
        if halted && self.asks.is_empty() && !round && !out {
            return self.tick_plan();
        }
        self.tell_wait();
        if self.together.is_some() {
            return self.schedule_together();
        }
        self.tick_plan();
        if !halted && (self.cut_if_due() || self.snapshot_if_due()) {
            return;
        }
        while let Some(turn) = self.scheduler.pick(self.ranks_ms()) {
            if !self.units.exist() {
                self.begin_checkpoint(turn, false);
            } else if !self.begin_unit(turn, false) {
                break;
            }
        }
    }

    /// How long the main loop may sleep.
    pub fn next_look(&self) -> Duration {
        let due = match &self.together {
            Some(together) => Some(together.due_ms()),
            None => self.scheduler.next_due_ms(),
        };
        let due = [due, self.flush_due_ms()].into_iter().flatten().min();
        let due = due.filter(|_| !self.is_halted()).map(|at| at.saturating_sub(self.ranks_ms()));
        let lapses = self.halt.rule.due_ms().map(|at| at.saturating_sub(self.now_ms()));
        let due = due.into_iter().chain(lapses).min();
        let others = self
            .next_leave()
            .min(self.next_swap())
            .min(self.next_trouble())
            .min(self.next_repeated());
        let others = others.min(self.next_input()).min(self.next_unfinished());
        due.map_or(IDLE, |ms| IDLE.min(Duration::from_millis(ms.max(1)))).min(others)
    }

    /// With `hold` the rank does not go on after it.
    pub(super) fn begin_checkpoint(&mut self, rank: u32, hold: bool) {
        if self.rank(rank).proc.is_none() {
            let now = self.ranks_ms();
            return self.scheduler.finished(rank, now);
        }
        let generation = self.rank(rank).retention.begin();
        self.rank(rank).capturing = Some(generation);
        let mut event = self.event(EventKind::Checkpointing);
        event.rank = Some(rank);
        event.generation = Some(generation);
        self.log_event(event);
        self.checkpoint_when_quiet(rank, generation, hold);
    }

    /// Has the checkpoint taken that was begun.
    pub(super) fn order_checkpoint(&mut self, rank: u32, generation: u32, hold: bool) {
        let Some(start) = self.rank(rank).proc.as_ref().map(|p| p.start) else {
            self.no_capture(rank);
            return self.pause_over(rank, generation);
        };
        let partner = self.planner.as_ref().and_then(|p| p.partner(rank));
        let r = self.rank(rank);
        (r.partner, r.captured) = (partner, r.incarnation);
        r.moves.ordered();
        // It may refer to any of these. What is there is not sent again.
        let missing = r.retention.files();
        let partner = partner.map(|m| m.node);
        let key = partner.and_then(|to| self.invite(rank, generation, to));
        let incremental = self.spec.incremental;
        let order =
            CheckpointOrder { rank, start, generation, incremental, partner, missing, hold, key };
        self.to_home(rank, ToNode::Checkpoint(order));
    }

    pub(super) fn checkpoint_over(
        &mut self,
        node: u32,
        rank: u32,
        generation: u32,
        result: CheckpointResult,
    ) {
        if let CheckpointResult::Taken(taken) = &result {
            self.mark_output(rank, taken.meta.output);
        }
        if self.units.exist() {
            return self.unit_part(node, rank, generation, result);
        }
        if self.rank(rank).capturing != Some(generation) {
            // All ranks went back to the beginning since.
            return self.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        }
        self.pause_over(rank, generation);
        if self.together.is_some() && self.many() {
            return self.part_over(node, rank, generation, result);
        }
        if self.together.is_some() {
            return self.set_part(rank, generation, result);
        }
        self.snapshot_part_over(rank, generation, &result);
        if self.many()
            && let CheckpointResult::Taken(taken) = result
        {
            let incarnation = self.rank(rank).captured;
            return self.image_taken(node, rank, Capture { generation, incarnation, taken });
        }
        self.snapshot_part(rank, generation, &result);
        let now = self.ranks_ms();
        self.rank(rank).capturing = None;
        self.scheduler.finished(rank, now);
        let useless = self.rank(rank).gone;
        let borrowed = match &result {
            CheckpointResult::Taken(taken) if !useless => taken.borrows.clone(),
            _ => Vec::new(),
        };
        let free = self.loans.written((rank, generation), borrowed);
        self.remove_files(&free);
        match result {
            CheckpointResult::Taken(_) if useless => self.remove_images(rank, vec![generation]),
            CheckpointResult::Taken(taken) => self.complete(rank, generation, taken),
            CheckpointResult::Failed { text, lasting } => {
                // What was poured of it lies at another node.
                self.remove_files(&[(rank, generation)]);
                self.checkpoint_failed(rank, generation, text, lasting);
                self.image_stands(rank, generation, None);
            }
            CheckpointResult::NoPartner(text) => {
                self.remove_files(&[(rank, generation)]);
                // That the node is lost is told, if it is. If it is not, this comes again.
                let again = self.rank(rank).partnerless == Some(text.clone());
                self.rank(rank).partnerless = Some(text.clone());
                match again {
                    true => self.checkpoint_failed(rank, generation, text, false),
                    false => self.checkpoint_missed(rank, generation, text),
                }
                self.image_stands(rank, generation, None);
            }
            // Those who wait for it are served after the recovery.
            CheckpointResult::Died => {}
        }
        self.snapshot_over();
    }

    pub(super) fn complete(&mut self, rank: u32, generation: u32, taken: Box<Taken>) {
        let (point, needs) = (point(&taken.meta), taken.needs.clone());
        let place = place(&point);
        let surplus = self.rank(rank).retention.complete(generation, point, needs);
        if self.together.is_none() && !self.units.exist() {
            self.scheduler.cost(self.cost(&taken));
        }
        self.remove_images(rank, surplus);
        let (bytes, took_ms, frozen_ms) = (taken.bytes, taken.took_ms, taken.frozen_ms);
        let mut event = self.event(EventKind::Checkpointed);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.took_ms = Some(took_ms);
        event.bytes = Some(bytes);
        event.text = format!("rank stood still for {frozen_ms:.2} ms ({})", taken.mode);
        if taken.shared_bytes > 0 {
            let mib = taken.shared_bytes as f64 / f64::from(1 << 20);
            event.text += &format!("; {mib:.1} MiB lie in images of other ranks");
        }
        let r = self.rank(rank);
        r.reason = None;
        r.failures = Failures::default();
        r.partnerless = None;
        r.latest = Some(Latest { at: Moment::now(), taken });
        // Gives up what no kept checkpoint of the rank needs.
        let Point { need, det_pos, .. } = r.retention.floor().clone();
        if self.spec.routers > 0 {
            points::reach("pause-10");
        }
        self.to_all(&ToNode::Trim { rank, need, det_pos });
        self.log_event(event);
        let answer = NodeMsg::Checkpointed { rank, generation, bytes, took_ms, frozen_ms };
        self.answer_asks(rank, Some(generation), &answer);
        self.fallback.count(rank);
        self.step(monitor::Input::Reached { rank, place });
        self.swap_image(rank, generation, true);
    }

    /// What it cost the program. How much a round of the vault takes of processors is not known:
    /// all of its time counts.
    fn cost(&self, taken: &Taken) -> Cost {
        let vault_ms = self.vault_cost_ms();
        Cost {
            took_ms: taken.took_ms + vault_ms,
            stood_ms: taken.frozen_ms + vault_ms,
            cpu_ms: taken.cpu_ms,
            busy: taken.busy,
            whole: taken.is_synchronous,
        }
    }

    /// What a set of these ranks cost, of whose images this one is the newest that counts.
    pub(super) fn cost_of(&self, ranks: impl Iterator<Item = u32>, generation: u32) -> Cost {
        Cost::of_set(ranks.filter_map(|rank| {
            let latest = self.ranks[rank as usize].latest.as_ref();
            let latest = latest.filter(|l| l.taken.meta.generation == generation)?;
            Some((self.placement.home(rank), self.cost(&latest.taken)))
        }))
    }

    /// Gives up image files that `rank` does not need any more. They go when no other rank needs
    /// them either, for an image that it has or one that is being written.
    pub(super) fn remove_images(&mut self, rank: u32, generations: Vec<u32>) {
        if generations.is_empty() || self.holds_back(rank, &generations) {
            return;
        }
        let mut unfinished = Vec::new();
        if self.shares() {
            self.to_all(&ToNode::Withdraw { rank, generations: generations.clone() });
            let capturing = |(r, other): (u32, &Rank)| Some((r, other.capturing?));
            unfinished = (0..).zip(&self.ranks).filter_map(capturing).collect();
        }
        for generation in generations {
            let free = self.loans.give_up((rank, generation), unfinished.iter().copied());
            self.remove_files(&free);
        }
    }

    /// Whether images may refer to those of other ranks.
    fn shares(&self) -> bool {
        self.spec.dedup != Dedup::Off && !self.many()
    }

    /// No image is needed any more, whoever refers to it.
    pub(super) fn forget_loans(&mut self) {
        let left = self.loans.clear();
        self.remove_files(&left);
        // Images that are still being written will be removed.
        (0..self.size()).for_each(|rank| self.rank(rank).capturing = None);
    }

    pub(super) fn remove_files(&self, files: &[File]) {
        for &(rank, generation) in files {
            self.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        }
    }

    /// Removes all images of a rank.
    pub(super) fn forget_images(&mut self, rank: u32) {
        let files = self.rank(rank).retention.files();
        self.remove_images(rank, files);
    }

    /// There is none for a reason that is told of elsewhere.
    fn checkpoint_missed(&mut self, rank: u32, generation: u32, reason: String) {
        self.rank(rank).failures.one_more(false);
        let mut event = self.event(EventKind::CheckpointFailed);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.text = reason.clone();
        self.log_event(event);
        let answer = NodeMsg::CheckpointFailed { rank, reason };
        self.answer_asks(rank, Some(generation), &answer);
    }

    pub(super) fn checkpoint_failed(
        &mut self,
        rank: u32,
        generation: u32,
        reason: String,
        lasting: bool,
    ) {
        let r = self.rank(rank);
        r.failures.one_more(lasting);
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

    /// A rank waits for log space: brings forward the checkpoint that frees most of it.
    pub(super) fn relieve(&mut self, rank: u32, start: u64, relief: &[u32]) {
        // One that stands still waits for nothing.
        let halted = self.is_halted();
        if halted || self.proc(rank, start).is_none() || !self.monitor.listens_to(rank) {
            return;
        }
        if self.verify.is_some() {
            // Room in the log comes as receivers go on; outcomes are kept to the end.
            if relief != [rank] {
                return;
            }
            let text = format!(
                "rank {rank} records more than the logs of `eyrie verify` hold; if it asks for \
                 the time all the while: --clocks plain"
            );
            return self.fatal(text);
        }
        if !self.protected() {
            return;
        }
        let live = |r: &&u32| self.ranks.get(**r as usize).is_some_and(|r| r.proc.is_some());
        let Some(&target) = relief.iter().find(live) else { return };
        if let Some(why) = self.no_more_of_unit(target) {
            let text = format!("the log of rank {rank} is full and {why}");
            return self.give_up_protection(text);
        }
        let r = self.rank(target);
        if r.failures.given_up() {
            let why = r.reason.clone().unwrap_or_default();
            let text = format!(
                "the log of rank {rank} is full and rank {target} cannot be checkpointed: {why}"
            );
            return self.give_up_protection(text);
        }
        let pauses = r.failures.pause().is_some();
        let turn = self.units.turn(target);
        // It is told again that the log is full.
        if !pauses && !self.scheduler.busy(turn) {
            self.scheduler.request(turn);
        }
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
        self.to_all(&ToNode::Unprotect);
        for rank in 0..self.size() {
            self.scheduler.set_live(self.units.turn(rank), false);
            self.fail_asks(rank, "the job runs without protection");
            if self.rank(rank).gone {
                self.plan(Input::RankReleased { rank });
            }
        }
    }

    /// A client wants checkpoints of one rank or of all, and waits for them.
    pub fn ask_checkpoint(&mut self, rank: Option<u32>, outlet: Outlet) -> Result<(), String> {
        if !self.spec.ft.protects() {
            return Err(format!("the job runs with --ft {}", self.spec.ft.name()));
        }
        if let Some(why) = &self.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        self.swapped_out()?;
        if self.together.is_some() {
            self.request_together(rank)?;
        }
        let ranks = match rank {
            Some(r) if r >= self.size() => return Err(format!("there is no rank {r}")),
            Some(r) => r..r + 1,
            None => 0..self.size(),
        };
        let mut left = Vec::new();
        for r in ranks {
            let ended = self.rank(r).gone.then(|| String::from("it has ended"));
            if let Some(reason) = ended.or_else(|| self.no_more_of_unit(r)) {
                outlet.send(&NodeMsg::CheckpointFailed { rank: r, reason });
            } else {
                // One that is being recovered is asked when it runs again.
                self.scheduler.request(self.units.turn(r));
                left.push((r, self.rank(r).capturing.unwrap_or(0)));
            }
        }
        if left.is_empty() {
            outlet.send(&NodeMsg::Done);
        } else {
            self.asks.push(Ask { outlet: Some(outlet), left, ends: false, failed: None });
        }
        self.schedule();
        Ok(())
    }

    /// A rank runs again: those who wait for its checkpoint get it now.
    pub(super) fn renew_asks(&mut self, rank: u32) {
        let turn = self.units.turn(rank);
        let waits = |ask: &Ask| ask.left.iter().any(|(r, _)| self.units.turn(*r) == turn);
        if self.asks.iter().any(waits) {
            self.scheduler.request(turn);
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
                ask.answer(answer, &mut self.commit.answers);
            }
        }
        let (over, left) = std::mem::take(&mut self.asks).into_iter().partition(|a| a.is_over());
        self.asks = left;
        let over: Vec<Ask> = over;
        for ask in over.into_iter().filter(|a| a.ends) {
            self.all_checkpointed(ask.failed);
        }
    }

    /// A client kills nodes as a fault would.
    pub fn inject_nodes(&mut self, nodes: &[u32]) -> Result<(), String> {
        if !self.many() {
            return Err(String::from("the job's only node is its daemon (see eyrie run --nodes)"));
        }
        let missing = |n: &&u32| !self.placement.is_live(**n);
        if let Some(node) = nodes.iter().find(missing) {
            return Err(format!("there is no live node {node}"));
        }
        for node in nodes {
            let n = &mut self.nodes[*node as usize];
            n.injected_at = Some(Instant::now());
            n.daemon.iter().for_each(|d| d.kill());
            if n.daemon.as_ref().is_some_and(Daemon::is_left) {
                n.send(ToNode::Dismissed);
            }
            let mut event = self.event(EventKind::Injected);
            event.node = Some(*node);
            event.text = String::from("SIGKILL");
            self.log_event(event);
        }
        Ok(())
    }

    /// A client kills ranks as a fault would.
    pub fn inject(&mut self, ranks: &[u32]) -> Result<(), String> {
        let missing = |r: &&u32| self.ranks.get(**r as usize).is_none_or(|r| r.proc.is_none());
        if let Some(rank) = ranks.iter().find(missing) {
            return Err(format!("rank {rank} has no process"));
        }
        for node in 0..self.nodes.len() {
            let here = |r: &u32| self.placement.home(*r) as usize == node;
            let ranks: Vec<u32> = ranks.iter().copied().filter(here).collect();
            if !ranks.is_empty() {
                self.nodes[node].send(ToNode::Kill { ranks });
            }
        }
        for rank in ranks {
            self.rank(*rank).injected_at = Some(Instant::now());
            let mut event = self.event(EventKind::Injected);
            event.rank = Some(*rank);
            event.text = String::from("SIGKILL");
            self.log_event(event);
        }
        Ok(())
    }
}

impl Ask {
    /// One of its ranks has a checkpoint, or will have none.
    fn answer(&mut self, answer: &NodeMsg, told: &mut Vec<(Outlet, NodeMsg)>) {
        if let NodeMsg::CheckpointFailed { rank, reason } = answer {
            self.failed.get_or_insert_with(|| format!("no checkpoint of rank {rank}: {reason}"));
        }
        if let Some(outlet) = &self.outlet {
            told.push((outlet.clone(), answer.clone()));
            if self.left.is_empty() && !self.ends {
                told.push((outlet.clone(), NodeMsg::Done));
            }
        }
    }

    fn is_over(&self) -> bool {
        let closed = self.outlet.as_ref().is_some_and(Outlet::is_closed);
        self.left.is_empty() || (closed && !self.ends)
    }
}

/// Where a rank stood when its image was taken.
pub(super) fn point(meta: &Meta) -> Point {
    Point { need: meta.need.clone(), det_pos: meta.det_pos, output: meta.output }
}

/// A mark that grows along the program, however it comes there.
pub(super) fn place(point: &Point) -> u64 {
    let streams = point.need.iter().chain(&point.output);
    streams.fold(point.det_pos, |sum, at| sum.wrapping_add(*at))
}
