//! The ranks of this node stand still: all their processes, with threads and children.
//!
//! A thread for each rank stops them as for a checkpoint, from outside, and holds them until it is
//! told otherwise; so the program sees nothing of it, neither a signal nor an interrupted call. A
//! rank that writes faster than it is copied is slowed down so: it is let go now and then. What is
//! to be copied of such a one is copied by the thread that has it: it writes nothing in between,
//! and if it hardly runs, nothing while little is written either.
//!
//! Kept true: of two threads that stop a process for whatever reason the second begins when the
//! first has let it go; a checkpoint that is ordered meanwhile is taken, after which the rank
//! stands again, but not as long as the rank may run elsewhere soon; a rank that is started
//! meanwhile stands at once; whoever dies is told as ever.

use super::state::standing::{Halt, Handed, Manner, Standing};
use super::{Agent, Msg};
use eyrie_control::node::FromNode;
use eyrie_image::Frozen;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// How soon the death of a rank that stands still is noticed.
const LOOK: Duration = Duration::from_millis(50);

impl Agent {
    pub(super) fn halt(&mut self, turn: u64) {
        self.suspension.order = Some(Halt { turn, told: false });
        self.tend_all_standing();
    }

    pub(super) fn end_halt(&mut self) {
        self.suspension.order = None;
        self.tend_all_standing();
    }

    /// A rank runs one part in so many of the time from now on.
    pub(super) fn slow(&mut self, rank: u32, part: u32) {
        self.rank(rank).stand.slowed = Some(part).filter(|part| *part > 1);
        self.tend_standing(rank);
    }

    /// Tries again what could not be stopped, too.
    pub(super) fn tend_all_standing(&mut self) {
        for rank in 0..self.size() {
            self.rank(rank).stand.restless = None;
            self.tend_standing(rank);
        }
        self.tell_halted();
    }

    /// Whether some rank is to be tried again.
    pub(super) fn is_restless(&self) -> bool {
        self.ranks.iter().any(|r| r.stand.restless.is_some())
    }

    /// Stops a rank that is to stand, or lets one go.
    pub(super) fn tend_standing(&mut self, rank: u32) {
        let halted = self.suspension.is_wanted().then_some(Manner::Still);
        let leaderless = self.suspension.is_leaderless();
        let r = self.rank(rank);
        let wanted = halted.or(r.stand.slowed.map(Manner::Slow));
        if let (Some(_), Some(ahead)) = (wanted, &r.capture.ahead) {
            // A checkpoint that has begun stops it as soon as may be.
            ahead.store(true, Ordering::Relaxed);
        }
        if halted.is_some() && r.stand.standing.is_none() {
            // All wait for it to stand, and it does so for its image alone: that is given up.
            r.capture.call_off();
        }
        let waits = r.capture.freezing.is_some()
            || (r.capture.later.is_some() && !leaderless)
            || r.restart.find_later.is_some();
        let (proc, restless) =
            (r.proc.as_ref().map(|p| (p.pid, p.start)), r.stand.restless.is_some());
        match (&mut r.stand.standing, proc) {
            // Nobody held it any more when that was put off.
            (None, _) if !leaderless && r.capture.later.is_some() => {
                if let Some((wanted, tap)) = r.capture.later.take() {
                    self.freeze(wanted, tap);
                }
            }
            (None, Some((pid, start))) if !waits && !restless => {
                wanted.into_iter().for_each(|manner| self.stop_rank(rank, pid, start, manner));
            }
            (Some(standing), proc) if !standing.handed => {
                let stays = proc.is_some_and(|(_, start)| start == standing.start);
                if wanted != Some(standing.manner) || waits || !stays {
                    standing.go_on = None;
                }
            }
            _ => {}
        }
    }

    fn stop_rank(&mut self, rank: u32, pid: libc::pid_t, start: u64, manner: Manner) {
        let (go_on, told) = mpsc::channel();
        let tell = self.tell.clone();
        let work = move || {
            let stopped = |why| drop(tell.send(Msg::Stopped { rank, start, why }));
            if hold(pid, manner, &told, stopped) {
                let _ = tell.send(Msg::WentOn { rank, start });
            }
        };
        match std::thread::Builder::new().name(String::from("eyrie-halt")).spawn(work) {
            Ok(_) => {
                let go_on = Some(go_on);
                let standing = Standing { start, go_on, manner, stands: false, handed: false };
                self.rank(rank).stand.standing = Some(standing);
            }
            Err(error) => self.rank(rank).stand.restless = Some(error.to_string()),
        }
    }

    /// The thread of a rank has stopped it, or cannot.
    pub(super) fn rank_stopped(&mut self, rank: u32, start: u64, why: Option<String>) {
        let r = self.rank(rank);
        let Some(standing) = r.stand.standing.as_mut().filter(|s| s.start == start) else { return };
        standing.stands = why.is_none();
        r.stand.restless = why;
        self.tell_halted();
    }

    /// Work with the process of a rank is done: its thread holds it again if it `stands`.
    pub(super) fn handed_back(&mut self, rank: u32, start: u64, stands: bool) {
        let standing = self.rank(rank).stand.standing.as_mut();
        let Some(standing) = standing.filter(|s| s.start == start && s.handed) else { return };
        standing.handed = false;
        match stands {
            true => self.tend_standing(rank),
            false => self.rank_went_on(rank, start),
        }
    }

    /// A rank that stood goes on, or is dead.
    pub(super) fn rank_went_on(&mut self, rank: u32, start: u64) {
        let r = self.rank(rank);
        if r.stand.standing.take_if(|s| s.start == start && !s.handed).is_none() {
            return;
        }
        if let Some((wanted, tap)) = r.capture.later.take() {
            self.freeze(wanted, tap);
        }
        // Also if it has died before that checkpoint.
        if let Some(search) = self.rank(rank).restart.find_later.take() {
            self.find(rank, search);
        }
        self.tend_standing(rank);
        self.tend_cut();
        self.tell_halted();
    }

    /// Tells when all ranks stand, or which of them cannot be stopped for now.
    fn tell_halted(&mut self) {
        let Some(halt) = self.suspension.order.as_mut().filter(|h| !h.told) else { return };
        let settled = |r: &super::Rank| {
            r.proc.is_none()
                || r.stand.restless.is_some()
                || r.stand.standing.as_ref().is_some_and(Standing::stands)
        };
        if !self.ranks.iter().all(settled) {
            return;
        }
        halt.told = true;
        let turn = halt.turn;
        let restless = (0u32..).zip(&self.ranks).filter(|(_, r)| r.proc.is_some());
        let restless = restless.filter_map(|(rank, r)| Some((rank, r.stand.restless.clone()?)));
        let restless = restless.collect();
        self.say(FromNode::Halted { turn, restless });
    }
}

/// Stops a process with its children, and holds it until that is called off or it is dead; or lets
/// it go now and then. False if the process was given away with other work, and has not come back.
fn hold(
    pid: libc::pid_t,
    manner: Manner,
    told: &Receiver<Handed>,
    stopped: impl Fn(Option<String>),
) -> bool {
    let mut ran = Duration::ZERO;
    let mut runs_since: Option<Instant> = None;
    'held: loop {
        let frozen = match Frozen::stop(pid) {
            Ok(frozen) => frozen,
            Err(error) => {
                stopped(Some(error.to_string()));
                return true;
            }
        };
        if manner == Manner::Still {
            stopped(None);
        }
        ran = runs_since.take().map_or(ran, |since| since.elapsed());
        let end = manner.stands_for(ran).map(|time| Instant::now() + time);
        let goes_on = loop {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break true;
            }
            match told.recv_timeout(left.min(LOOK)) {
                Ok(handed) => {
                    let Some(frozen) = handed.work(Some(frozen)) else { return false };
                    let ended = frozen.has_ended();
                    // What was done to it is undone when it goes on. It stands again at once.
                    let _ = frozen.release();
                    if ended {
                        return true;
                    }
                    continue 'held;
                }
                Err(RecvTimeoutError::Disconnected) => break false,
                Err(RecvTimeoutError::Timeout) if frozen.has_ended() => break false,
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        // A dead one needs nothing.
        let _ = frozen.release();
        runs_since = Some(Instant::now());
        if !goes_on {
            return true;
        }
        match told.recv_timeout(manner.runs_for()) {
            Ok(handed) => {
                handed.work(None);
                return false;
            }
            Err(RecvTimeoutError::Disconnected) => return true,
            Err(RecvTimeoutError::Timeout) => {}
        }
    }
}
