//! When checkpoints are taken, what is kept of them, and log space that is had by them.

pub(crate) mod coordinated;
pub(crate) mod coordinated_model;
pub(crate) mod coordinated_nodes;
pub(crate) mod failures;
pub(crate) mod fallback;
pub(crate) mod fallback_model;
pub(crate) mod fallback_nodes;
pub(crate) mod joint;
pub(crate) mod model;
pub(crate) mod router_pause;
pub(crate) mod units;

use crate::checkpoints::coordinated_model::Coordinated;
use crate::checkpoints::failures::Failures;
use crate::checkpoints::model::{place, point};
use crate::outside::ClientHandle;
use crate::recovery::model::Strategy;
use crate::{Ask, Capture, Job, Latest, Rank, monitor};
use eyrie_control::account::stood_text;
use eyrie_control::node::{CheckpointOrder, CheckpointResult, Taken, ToNode};
use eyrie_control::{Dedup, EventKind, NodeMsg};
use eyrie_protocol::interval::Cost;
use eyrie_protocol::recovery::Input;
use eyrie_protocol::retention::Point;
use std::time::Duration;

/// Longest sleep of the main loop.
const IDLE: Duration = Duration::from_secs(2);

impl Job {
    /// How long checkpoints of a rank fail before they are given up.
    pub(crate) fn checkpoint_patience(&self) -> Duration {
        Duration::from_millis(self.spec.timing.intervals.retries.checkpoints_ms)
    }

    /// Starts the checkpoints that are due.
    pub fn schedule(&mut self) {
        self.tend_suspension();
        self.tend_scrub();
        self.tend_input();
        self.forward_unfinished();
        self.tend_samples();
        if self.recovery.monitor.running() {
            self.tend_retries();
            self.tend_repeated_deaths();
            self.tend_sharing();
            self.tend_save();
        }
        if !self.recovery.monitor.running() || !self.spec.protection.ft.protects() {
            return;
        }
        let suspended = self.suspension.is_suspended();
        // Also of ranks that do not run nodes may leave.
        let round = self.checkpoints.coordinated.as_ref().is_some_and(|t| t.round.is_some());
        let out = self.is_swapped()
            && self.checkpoints.coordinated.as_ref().is_some_and(Coordinated::is_wanted);
        if suspended && self.checkpoints.asks.is_empty() && !round && !out {
            return self.tick_plan();
        }
        self.tell_wait();
        if self.checkpoints.coordinated.is_some() {
            return self.schedule_coordinated();
        }
        self.tick_plan();
        if !suspended && (self.cut_if_due() || self.snapshot_if_due()) {
            return;
        }
        while let Some(turn) = self.checkpoints.scheduler.pick(self.ranks_ms()) {
            if !self.begin_turn(turn, false) {
                break;
            }
        }
    }

    /// How long the main loop may sleep.
    pub fn next_look(&self) -> Duration {
        let due = match &self.checkpoints.coordinated {
            Some(coordinated) => Some(coordinated.due_ms()),
            None => self.checkpoints.scheduler.next_due_ms(),
        };
        let due = [due, self.flush_due_ms()].into_iter().flatten().min();
        let due = due
            .filter(|_| !self.suspension.is_suspended())
            .map(|at| at.saturating_sub(self.ranks_ms()));
        let lapses = self.suspension.rule.due_ms().map(|at| at.saturating_sub(self.clock.now_ms()));
        let due = due.into_iter().chain(lapses).min();
        let others = self
            .leaving
            .next_leave()
            .min(self.next_swap())
            .min(self.next_retry())
            .min(self.next_repeated_death());
        let others = others
            .min(self.console.next_input())
            .min(self.next_unfinished())
            .min(self.next_timer());
        let others = others.min(self.next_sample()).min(self.next_save());
        due.map_or(IDLE, |ms| IDLE.min(Duration::from_millis(ms.max(1)))).min(others)
    }

    /// With `hold` the rank does not go on after it.
    pub(crate) fn begin_checkpoint(&mut self, rank: u32, hold: bool) {
        if self.ranks.rank(rank).proc.is_none() {
            let now = self.ranks_ms();
            return self.checkpoints.scheduler.finished(rank, now);
        }
        let generation = self.ranks.rank(rank).retention.begin();
        self.ranks.rank(rank).capture.generation = Some(generation);
        let mut event = self.clock.event(EventKind::Checkpointing);
        event.rank = Some(rank);
        event.generation = Some(generation);
        self.journal.log_event(event);
        self.checkpoint_when_quiet(rank, generation, hold);
    }

    /// Has the checkpoint taken that was begun.
    pub(crate) fn order_checkpoint(&mut self, rank: u32, generation: u32, hold: bool) {
        let clock = self.clock.now();
        let Some(start) = self.ranks.rank(rank).proc.as_ref().map(|p| p.start) else {
            self.no_capture(rank);
            return self.pause_over(rank, generation);
        };
        let partner = self.recovery.planner.as_ref().and_then(|p| p.partner(rank));
        let r = self.ranks.rank(rank);
        (r.capture.partner, r.capture.incarnation) = (partner, r.incarnation);
        r.moves.ordered(clock);
        // It may refer to any of these. What is there is not sent again.
        let missing = r.retention.files();
        let partner = partner.map(|m| m.node);
        let key = partner.and_then(|to| self.invite(rank, generation, to));
        let incremental = self.spec.protection.incremental;
        let order =
            CheckpointOrder { rank, start, generation, incremental, partner, missing, hold, key };
        self.nodes.to_home(rank, ToNode::Checkpoint(order));
    }

    pub(crate) fn checkpoint_over(
        &mut self,
        node: u32,
        rank: u32,
        generation: u32,
        result: CheckpointResult,
    ) {
        if let CheckpointResult::Taken(taken) = &result {
            self.mark_output(rank, taken.meta.output);
        }
        if self.many() && !self.checkpoints.units.partition().are_ranks() {
            return self.set_part(node, rank, generation, result);
        }
        if self.ranks.rank(rank).capture.generation != Some(generation) {
            // All ranks went back to the beginning since.
            return self.nodes.to_all(&ToNode::Remove { rank, generations: vec![generation] });
        }
        self.pause_over(rank, generation);
        if self.strategy() == Strategy::Segment {
            return self.coordinated_part(rank, generation, result);
        }
        self.snapshot_part_over(rank, generation, &result);
        if self.many()
            && let CheckpointResult::Taken(taken) = result
        {
            let incarnation = self.ranks.rank(rank).capture.incarnation;
            return self.image_taken(node, rank, Capture { generation, incarnation, taken });
        }
        self.checkpoints.snapshot_part(rank, generation, &result);
        let now = self.ranks_ms();
        self.ranks.rank(rank).capture.generation = None;
        self.checkpoints.scheduler.finished(rank, now);
        let useless = self.ranks.rank(rank).gone;
        let borrowed = match &result {
            CheckpointResult::Taken(taken) if !useless => taken.borrows.clone(),
            _ => Vec::new(),
        };
        let free = self.checkpoints.loans.written((rank, generation), borrowed);
        self.nodes.remove_files(&free);
        match result {
            CheckpointResult::Taken(_) if useless => self.remove_images(rank, vec![generation]),
            CheckpointResult::Taken(taken) => self.complete(rank, generation, taken),
            CheckpointResult::Failed { text, lasting } => {
                // What was poured of it lies at another node.
                self.nodes.remove_files(&[(rank, generation)]);
                self.checkpoint_failed(rank, generation, text, lasting);
                self.image_stands(rank, generation, None);
            }
            CheckpointResult::NoPartner(text) => {
                self.nodes.remove_files(&[(rank, generation)]);
                // That the node is lost is told, if it is. If it is not, this comes again.
                let again = self.ranks.rank(rank).failing.partnerless == Some(text.clone());
                self.ranks.rank(rank).failing.partnerless = Some(text.clone());
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

    pub(crate) fn complete(&mut self, rank: u32, generation: u32, taken: Box<Taken>) {
        let clock = self.clock.now();
        let (point, needs) = (point(&taken.meta), taken.needs.clone());
        let place = place(&point);
        let surplus = self.ranks.rank(rank).retention.complete(generation, point, needs);
        if self.checkpoints.units.partition().are_ranks() {
            self.checkpoints.scheduler.cost(self.cost(&taken));
        }
        self.remove_images(rank, surplus);
        let (bytes, took_ms, frozen_ms) = (taken.bytes, taken.took_ms, taken.frozen_ms);
        let mut event = self.clock.event(EventKind::Checkpointed);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.took_ms = Some(took_ms);
        event.bytes = Some(bytes);
        event.text = stood_text(frozen_ms, &taken.mode);
        if taken.shared_bytes > 0 {
            let mib = taken.shared_bytes as f64 / f64::from(1 << 20);
            event.text += &format!("; {mib:.1} MiB lie in images of other ranks");
        }
        let r = self.ranks.rank(rank);
        r.failing.reason = None;
        r.failing.failures = Failures::default();
        r.failing.partnerless = None;
        r.latest = Some(Latest { at: clock.moment(), taken });
        // Gives up what no kept checkpoint of the rank needs.
        let Point { need, det_pos, .. } = r.retention.floor().clone();
        if self.spec.placement.routers > 0 {
            self.outside.reach("pause-10");
        }
        self.nodes.to_all(&ToNode::Trim { rank, need, det_pos });
        self.journal.log_event(event);
        let answer = NodeMsg::Checkpointed { rank, generation, bytes, took_ms, frozen_ms };
        self.answer_asks(rank, Some(generation), &answer, false);
        self.checkpoints.fallback.count(rank);
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
    pub(crate) fn cost_of(&self, ranks: impl Iterator<Item = u32>, generation: u32) -> Cost {
        Cost::of_set(ranks.filter_map(|rank| {
            let latest = self.ranks.all[rank as usize].latest.as_ref();
            let latest = latest.filter(|l| l.taken.meta.generation == generation)?;
            Some((self.nodes.placement.home(rank), self.cost(&latest.taken)))
        }))
    }

    /// Gives up image files that `rank` does not need any more. They go when no other rank needs
    /// them either, for an image that it has or one that is being written.
    pub(crate) fn remove_images(&mut self, rank: u32, generations: Vec<u32>) {
        if generations.is_empty() || self.saving.holds_back(rank, &generations) {
            return;
        }
        let mut unfinished = Vec::new();
        if self.shares() {
            self.nodes.to_all(&ToNode::Withdraw { rank, generations: generations.clone() });
            let capturing = |(r, other): (u32, &Rank)| Some((r, other.capture.generation?));
            unfinished = (0..).zip(&self.ranks.all).filter_map(capturing).collect();
        }
        for generation in generations {
            let free =
                self.checkpoints.loans.give_up((rank, generation), unfinished.iter().copied());
            self.nodes.remove_files(&free);
        }
    }

    /// Whether images may refer to those of other ranks.
    fn shares(&self) -> bool {
        self.spec.protection.dedup != Dedup::Off && !self.many()
    }

    /// No image is needed any more, whoever refers to it.
    pub(crate) fn forget_loans(&mut self) {
        let left = self.checkpoints.loans.clear();
        self.nodes.remove_files(&left);
        // Images that are still being written will be removed.
        (0..self.size()).for_each(|rank| self.ranks.rank(rank).capture.generation = None);
    }

    /// Removes all images of a rank.
    pub(crate) fn forget_images(&mut self, rank: u32) {
        let files = self.ranks.rank(rank).retention.files();
        self.remove_images(rank, files);
    }

    /// There is none for a reason that is told of elsewhere.
    fn checkpoint_missed(&mut self, rank: u32, generation: u32, reason: String) {
        let clock = self.clock.now();
        self.ranks.rank(rank).failing.failures.one_more(clock, false);
        let mut event = self.clock.event(EventKind::CheckpointFailed);
        event.rank = Some(rank);
        event.generation = Some(generation);
        event.text = reason.clone();
        self.journal.log_event(event);
        self.refuse_asks(rank, Some(generation), &reason, false);
    }

    pub(crate) fn checkpoint_failed(
        &mut self,
        rank: u32,
        generation: u32,
        reason: String,
        lasting: bool,
    ) {
        let clock = self.clock.now();
        let r = self.ranks.rank(rank);
        r.failing.failures.one_more(clock, lasting);
        let is_same =
            |r: &Rank| r.failing.reason.as_deref().is_some_and(|old| failures::alike(old, &reason));
        let news = !is_same(r);
        let stays = r.retention.newest().map_or("", |_| ", the last checkpoint stays");
        // Of what fails at many ranks alike, as where a disk is full, one line is enough. A save
        // tells of it by itself.
        let told =
            self.ranks.all.iter().any(is_same) || self.save_waits_for(rank, Some(generation));
        if news && !told {
            self.journal
                .say(format!("no checkpoint of rank {rank}: {reason}; the job goes on{stays}"));
        }
        self.ranks.rank(rank).failing.reason = Some(reason.clone());
        if news {
            let mut event = self.clock.event(EventKind::CheckpointFailed);
            event.rank = Some(rank);
            event.generation = Some(generation);
            event.text = reason.clone();
            self.journal.log_event(event);
        }
        self.refuse_asks(rank, Some(generation), &reason, lasting);
    }

    /// A rank waits for log space: brings forward the checkpoint that frees most of it.
    pub(crate) fn relieve(&mut self, rank: u32, start: u64, relief: &[u32]) {
        let clock = self.clock.now();
        // One that stands still waits for nothing.
        let suspended = self.suspension.is_suspended();
        if suspended
            || self.ranks.proc(rank, start).is_none()
            || !self.recovery.monitor.listens_to(rank)
        {
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
        let live = |r: &&u32| self.ranks.all.get(**r as usize).is_some_and(|r| r.proc.is_some());
        let Some(&target) = relief.iter().find(live) else { return };
        if let Some(why) = self.why_unit_ended(target) {
            let text = format!("the log of rank {rank} is full and {why}");
            return self.give_up_protection(text);
        }
        let patience = self.checkpoint_patience();
        let r = self.ranks.rank(target);
        if r.failing.failures.given_up(patience, clock) {
            let why = r.failing.reason.clone().unwrap_or_default();
            let text = format!(
                "the log of rank {rank} is full and rank {target} cannot be checkpointed: {why}"
            );
            return self.give_up_protection(text);
        }
        let pauses = r.failing.failures.pause(clock).is_some();
        let turn = self.checkpoints.units.turn(target);
        // It is told again that the log is full.
        if !pauses && !self.checkpoints.scheduler.busy(turn) {
            self.checkpoints.scheduler.request(turn);
        }
    }

    fn give_up_protection(&mut self, why: String) {
        self.journal.say(format!(
            "WARNING: {why}\nthe job goes on WITHOUT protection: a rank that dies from now on ends \
             it (a larger --log-limit helps)"
        ));
        let mut event = self.clock.event(EventKind::Unprotected);
        event.text = why.clone();
        self.journal.log_event(event);
        self.recovery.unprotected = Some(why);
        self.nodes.to_all(&ToNode::Unprotect);
        for rank in 0..self.size() {
            self.checkpoints.scheduler.set_live(self.checkpoints.units.turn(rank), false);
            self.fail_asks(rank, "the job runs without protection", true);
            if self.ranks.rank(rank).gone {
                self.plan(Input::RankReleased { rank });
            }
        }
    }

    /// A client wants checkpoints of one rank or of all, and waits for them.
    pub fn ask_checkpoint(
        &mut self,
        rank: Option<u32>,
        client: ClientHandle,
    ) -> Result<(), String> {
        if !self.spec.protection.ft.protects() {
            return Err(format!("the job runs with --ft {}", self.spec.protection.ft.name()));
        }
        if let Some(why) = &self.recovery.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        self.swapped_out()?;
        if self.checkpoints.coordinated.is_some() {
            self.request_coordinated(rank)?;
        }
        let ranks = match rank {
            Some(r) if r >= self.size() => return Err(format!("there is no rank {r}")),
            Some(r) => r..r + 1,
            None => 0..self.size(),
        };
        let mut left = Vec::new();
        for r in ranks {
            let ended = self.ranks.rank(r).gone.then(|| String::from("it has ended"));
            if let Some(reason) = ended.or_else(|| self.why_unit_ended(r)) {
                client.send(&NodeMsg::CheckpointFailed { rank: r, reason });
            } else {
                // One that is being recovered is asked when it runs again.
                self.checkpoints.scheduler.request(self.checkpoints.units.turn(r));
                left.push((r, self.ranks.rank(r).capture.generation.unwrap_or(0)));
            }
        }
        if left.is_empty() {
            client.send(&NodeMsg::Done);
        } else {
            self.checkpoints.asks.push(Ask {
                client: Some(client),
                left,
                ends: false,
                failed: None,
            });
        }
        self.schedule();
        Ok(())
    }

    pub(crate) fn fail_asks(&mut self, rank: u32, reason: &str, lasting: bool) {
        self.refuse_asks(rank, None, reason, lasting);
    }

    /// There is no checkpoint for those who wait for it. A save is tried again.
    fn refuse_asks(&mut self, rank: u32, generation: Option<u32>, reason: &str, lasting: bool) {
        let again =
            self.save_waits_for(rank, generation) && self.saves_again(rank, reason, lasting);
        let answer = NodeMsg::CheckpointFailed { rank, reason: reason.to_string() };
        self.answer_asks(rank, generation, &answer, again);
    }

    /// With `again` those who want to save the job wait on.
    fn answer_asks(&mut self, rank: u32, generation: Option<u32>, answer: &NodeMsg, again: bool) {
        for ask in self.checkpoints.asks.iter_mut().filter(|a| !(again && a.ends)) {
            let before = ask.left.len();
            ask.left.retain(|(r, after)| *r != rank || generation.is_some_and(|g| g <= *after));
            if ask.left.len() < before {
                ask.answer(answer, &mut self.journal.commit.answers);
            }
        }
        let (over, left) =
            std::mem::take(&mut self.checkpoints.asks).into_iter().partition(|a| a.is_over());
        self.checkpoints.asks = left;
        let over: Vec<Ask> = over;
        for ask in over.into_iter().filter(|a| a.ends) {
            self.all_checkpointed(ask.failed);
        }
    }

    /// A client kills nodes as a fault would.
    pub fn inject_nodes(&mut self, nodes: &[u32]) -> Result<(), String> {
        let clock = self.clock.now();
        if !self.many() {
            return Err(String::from("the job's only node is its daemon (see eyrie run --nodes)"));
        }
        let missing = |n: &&u32| !self.nodes.placement.is_live(**n);
        if let Some(node) = nodes.iter().find(missing) {
            return Err(format!("there is no live node {node}"));
        }
        for node in nodes {
            let n = &mut self.nodes.all[*node as usize];
            n.injected_at = Some(clock.moment());
            self.outside.launcher.kill_daemon(*node);
            if n.daemon.as_ref().is_some_and(|d| d.left) {
                n.send(ToNode::Dismissed);
            }
            let mut event = self.clock.event(EventKind::Injected);
            event.node = Some(*node);
            event.text = String::from("SIGKILL");
            self.journal.log_event(event);
        }
        Ok(())
    }

    /// A client kills ranks as a fault would.
    pub fn inject(&mut self, ranks: &[u32]) -> Result<(), String> {
        let clock = self.clock.now();
        let missing = |r: &&u32| self.ranks.all.get(**r as usize).is_none_or(|r| r.proc.is_none());
        if let Some(rank) = ranks.iter().find(missing) {
            return Err(format!("rank {rank} has no process"));
        }
        for node in 0..self.nodes.all.len() {
            let here = |r: &u32| self.nodes.placement.home(*r) as usize == node;
            let ranks: Vec<u32> = ranks.iter().copied().filter(here).collect();
            if !ranks.is_empty() {
                self.nodes.all[node].send(ToNode::Kill { ranks });
            }
        }
        for rank in ranks {
            self.ranks.rank(*rank).deaths.injected_at = Some(clock.moment());
            let mut event = self.clock.event(EventKind::Injected);
            event.rank = Some(*rank);
            event.text = String::from("SIGKILL");
            self.journal.log_event(event);
        }
        Ok(())
    }
}
