//! Looking at the control blocks of the ranks: what they say, and how they are.

use super::Agent;
use super::state::binding::WATCH_BOUND;
use super::state::restart::Replay;
use eyrie_control::node::{Beside, FromNode, NodeLook, RankLook, Refusals};
use eyrie_control::{MOST_TARGETS, Said, Sent};
use eyrie_ledger::{segment, unit};
use eyrie_link::Links;
use eyrie_process::cores;
use eyrie_process::foreign_mpi;
use eyrie_process::memory;
use eyrie_process::reap;
use eyrie_state::samples;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How often the ranks are looked at when something may change without a bell.
const WATCH: Duration = Duration::from_millis(100);
/// The same when nothing is expected.
const IDLE: Duration = Duration::from_secs(2);
/// How often it is looked for another MPI library while no rank has called ours: so often soon, and
/// at most.
const SOON_LOOKS: u32 = 100;
const MOST_LOOKS: u32 = 400;

impl Agent {
    /// How long the main loop may sleep.
    pub(super) fn next_look(&self) -> Duration {
        let pressed = |r| self.segment.rank(r).pressure.load(Ordering::Relaxed) != 0;
        let watched = self.verify.is_some()
            || self.network.as_ref().is_some_and(|n| n.watch.is_some())
            || self.is_restless()
            || self.logs.owes_acks()
            || self.ranks.iter().any(|r| r.restart.replay != Replay::No)
            || (self.processes.mpi_looks < SOON_LOOKS && self.awaits_init())
            || (0..self.spec.program.size).any(pressed);
        match (watched, self.has_lent_cores()) {
            (true, _) => WATCH,
            (false, true) => WATCH_BOUND,
            (false, false) => IDLE,
        }
    }

    /// Whether no process of a rank here has called `MPI_Init`, and none has another MPI.
    fn awaits_init(&self) -> bool {
        let calls = |rank| self.segment.rank(rank).state.load(Ordering::Relaxed) != 0;
        let mut here = (0u32..).zip(&self.ranks).filter(|(_, r)| r.proc.is_some()).peekable();
        self.processes.mpi_looks < MOST_LOOKS
            && here.peek().is_some()
            && !here.any(|(rank, _)| calls(rank))
    }

    /// Tells of programs that have another MPI, which leaves each of them alone.
    fn look_for_another_mpi(&mut self) {
        if !self.awaits_init() {
            return;
        }
        self.processes.mpi_looks += 1;
        let own = self.place.prefix.lib.as_deref();
        let mut pids = self.ranks.iter().filter_map(|r| Some(r.proc.as_ref()?.pid));
        let Some((program, library)) = pids.find_map(|pid| foreign_mpi::of(pid, own)) else {
            return;
        };
        self.processes.mpi_looks = MOST_LOOKS;
        let text = format!(
            "{program} uses another MPI library, {library}, which knows nothing of this job: each \
             process takes itself for a job of one rank, and none is protected. Build it with \
             eyrie's mpicc, or without an RPATH to that library; for mpi4py set MPI4PY_LIBMPI, or \
             install it with MPICC=mpicc"
        );
        self.say(FromNode::Tells { text });
    }

    /// When the last process of this node has ended by itself: tells it if none of them was in MPI,
    /// though the program means to be.
    pub(super) fn tell_if_none_called(&mut self, exited: bool) {
        let (size, many) = (self.size(), self.network.is_some());
        let calls = |rank| self.segment.rank(rank).state.load(Ordering::Relaxed) != 0;
        let called = (0..size).any(calls);
        let running = self.ranks.iter().any(|r| r.proc.is_some());
        if !exited || running || called || size < 2 || self.verify.is_some() {
            return;
        }
        let program = OsString::from_vec(self.spec.program.path.clone());
        if !foreign_mpi::is_meant(Path::new(&program), &self.argv()) {
            return;
        }
        // What others of its nodes tell in the same words is told once.
        let who = match many {
            false => format!("{size} processes, but none of them"),
            true => "none of the processes on one node, or on several,".into(),
        };
        let text = format!(
            "{who} called Eyrie's MPI_Init: if the program has called MPI, it was another \
             library's (found by an RPATH, linked in, of a virtual environment), and each process \
             was a job of one rank. Build it with eyrie's mpicc; for mpi4py set MPI4PY_LIBMPI to \
             Eyrie's libmpi.so.12"
        );
        self.say(FromNode::Tells { text });
    }

    /// Called when that time is over.
    pub(super) fn tick(&mut self) {
        self.look();
        self.look_for_another_mpi();
        self.let_crowded_go();
        if self.is_restless() {
            self.tend_all_standing();
        }
        self.watch_forced_run();
        if self.ranks.iter().all(|r| r.capture.generation.is_none()) {
            reap::collect_orphans(&self.processes());
        }
    }

    /// Looks at all control blocks after a bell.
    pub(super) fn look(&mut self) {
        self.mark_early();
        self.look_at_programs();
        self.look_at_failures();
        for rank in 0..self.size() {
            let Some(proc) = &self.ranks[rank as usize].proc else { continue };
            let (start, told) = (proc.start, proc.said);
            let said = self.said(rank);
            if !told && !matches!(said, Said::Nothing | Said::Running) {
                self.proc(rank, start).into_iter().for_each(|p| p.said = true);
                self.say(FromNode::Said { rank, start, said });
            }
            self.look_beside(rank);
            self.look_at_units(rank, start);
            self.look_at_replay(rank, start);
            self.look_at_pressure(rank, start);
        }
    }

    /// Has a second program of the rank called `MPI_Init`?
    pub(super) fn look_beside(&mut self, rank: u32) {
        let Some(note) = self.segment.rank(rank).beside.take() else { return };
        let programs = Beside { rank: note.rank, alone: note.alone, name: note.name };
        self.say(FromNode::Beside { rank, programs });
    }

    fn look_at_replay(&mut self, rank: u32, start: u64) {
        let state = self.rank(rank).restart.replay;
        if state == Replay::No {
            return;
        }
        let ctl = self.segment.rank(rank);
        let replaying = ctl.replaying.load(Ordering::Acquire) == 1;
        let count = ctl.replayed.load(Ordering::Acquire);
        if replaying && state == Replay::Expected {
            self.rank(rank).restart.replay = Replay::Seen;
            self.say(FromNode::Replaying { rank, start });
        } else if !replaying && (state == Replay::Seen || count > 0) {
            self.rank(rank).restart.replay = Replay::No;
            self.say(FromNode::CaughtUp { rank, start, count });
        }
    }

    /// Does the rank wait for log space?
    fn look_at_pressure(&mut self, rank: u32, start: u64) {
        let waits = self.segment.rank(rank).pressure.load(Ordering::Acquire) != 0;
        if waits && self.segment.header().recording().outcomes() && !self.phase.unprotected {
            let relief = self.relief_for(rank);
            self.say(FromNode::Pressed { rank, start, relief });
        }
    }

    /// The ranks whose checkpoints would free log of `rank`, the one that frees most first.
    fn relief_for(&self, rank: u32) -> Vec<u32> {
        let ctl = self.segment.rank(rank);
        let held = ctl.det_tail.load(Ordering::Acquire) - ctl.det_trim.load(Ordering::Acquire);
        if held >= self.segment.geometry().det_words / 8 * 7 {
            return vec![rank];
        }
        let gain = |r: u32| {
            let channel = self.segment.channel(rank, r);
            if unit::is_inner(&self.segment, rank, r) {
                // No checkpoint frees what is not retained.
                return 0;
            }
            let need = channel.need.load(Ordering::Acquire);
            need.saturating_sub(channel.trim.load(Ordering::Acquire))
        };
        let mut all: Vec<(u64, u32)> =
            (0..self.spec.program.size).map(|r| (gain(r), r)).filter(|(g, _)| *g > 0).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        all.into_iter().map(|(_, r)| r).collect()
    }

    pub(super) fn tell_looks(&self, ask: u64, targets: bool) {
        let ranks = (0..self.size()).filter(|r| self.ranks[*r as usize].proc.is_some());
        let mut ranks: Vec<RankLook> = ranks.map(|r| self.rank_look(r)).collect();
        for look in ranks.iter_mut().filter(|_| targets) {
            (look.targets, look.more_targets) = self.targets(look.rank);
        }
        let available_bytes = memory::available();
        let left_bytes = memory::left_to_ranks(ranks.iter().map(|r| r.resident_bytes).sum());
        let logged_bytes = self.links().map_or(0, |l| l.logged().0);
        let (transport, piped) = self.links().map(Links::way).unwrap_or_default();
        let (pauses, paused) = self.links().map(Links::paused).unwrap_or_default();
        let refused = self.refused();
        let paused_us = paused.as_micros() as u64;
        let own = NodeLook {
            refused,
            logged_bytes,
            transport,
            piped,
            pauses,
            paused_us,
            available_bytes,
            left_bytes,
        };
        self.say(FromNode::Looks { ask, ranks, own });
    }

    /// Who was turned away by this node's links and its store.
    fn refused(&self) -> Refusals {
        let Some(network) = &self.network else { return Refusals::default() };
        let links = network.links.as_ref().map(Links::refused).unwrap_or_default();
        let store = network.turned_away.now();
        Refusals {
            strangers: links.strangers + store.strangers,
            fenced: links.fenced + store.fenced,
            malformed: links.malformed + store.malformed,
            uninvited: store.uninvited,
        }
    }

    pub(super) fn rank_look(&self, rank: u32) -> RankLook {
        let r = &self.ranks[rank as usize];
        let ctl = self.segment.rank(rank);
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RankLook {
            rank,
            pid: r.proc.as_ref().map(|p| p.pid as u32),
            state: self.rank_state(rank).to_string(),
            processors: processors(r.proc.as_ref().map(|p| p.pid)),
            incarnation: ctl.incarnation.load(Ordering::Relaxed),
            log_chunks: get(&ctl.chunks_used),
            determinant_words: get(&ctl.det_tail).saturating_sub(get(&ctl.det_trim)),
            messages_sent: get(&ctl.msgs_sent),
            bytes_sent: get(&ctl.bytes_sent),
            messages_received: get(&ctl.msgs_received),
            messages_early: get(&ctl.early_taken),
            resident_bytes: r.proc.as_ref().map_or(0, |p| memory::resident(p.pid)),
            sent: Vec::new(),
            targets: Vec::new(),
            more_targets: false,
        }
    }

    /// To which ranks a rank has sent most, and whether there are others. Not without need: to
    /// look at channels that nothing was sent over gives them memory.
    pub(super) fn targets(&self, rank: u32) -> (Vec<Sent>, bool) {
        let sent = |to: u32| {
            let channel = self.segment.channel(rank, to);
            let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
            Sent { to, messages: get(&channel.msgs), bytes: get(&channel.bytes) }
        };
        let mut all: Vec<Sent> = (0..self.size()).map(sent).filter(|s| s.messages > 0).collect();
        let more = all.len() > MOST_TARGETS;
        if more {
            all.sort_by_key(|sent| (std::cmp::Reverse(sent.bytes), sent.to));
            all.truncate(MOST_TARGETS);
            all.sort_by_key(|sent| sent.to);
        }
        (all, more)
    }

    /// Messages and bytes that a rank has sent to each group of ranks.
    pub(super) fn sent(&self, rank: u32) -> Vec<(u64, u64)> {
        let ranks_a_group = samples::ranks_a_group(self.size());
        let mut all = vec![(0u64, 0u64); self.size().div_ceil(ranks_a_group) as usize];
        for to in 0..self.size() {
            let channel = self.segment.channel(rank, to);
            let (messages, bytes) = &mut all[(to / ranks_a_group) as usize];
            *messages = messages.saturating_add(channel.msgs.load(Ordering::Relaxed));
            *bytes = bytes.saturating_add(channel.bytes.load(Ordering::Relaxed));
        }
        all
    }

    fn rank_state(&self, rank: u32) -> &'static str {
        let r = &self.ranks[rank as usize];
        match &r.stand.standing {
            Some(standing) if standing.stands() => "suspended",
            _ => rank_state(r.capture.freezing.is_some(), self.segment.rank(rank)),
        }
    }
}

fn processors(pid: Option<libc::pid_t>) -> String {
    let mask = pid.and_then(|pid| cores::allowed(pid).ok());
    mask.map(|m| cores::list(&m)).unwrap_or_default()
}

fn rank_state(freezing: bool, ctl: &segment::RankCtl) -> &'static str {
    if freezing {
        return "checkpointing";
    }
    if ctl.state.load(Ordering::Relaxed) == segment::STATE_FINALIZED {
        return "finalized";
    }
    if ctl.pressure.load(Ordering::Relaxed) != 0 {
        return "waits-for-log-space";
    }
    if ctl.replaying.load(Ordering::Relaxed) == 1 {
        return "replaying";
    }
    if ctl.lib.load(Ordering::Relaxed) == segment::LIB_WAIT {
        return "waiting";
    }
    "running"
}
