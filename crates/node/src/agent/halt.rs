//! The ranks of this node stand still: all their processes, with threads and children.
//!
//! A thread for each rank stops them as for a checkpoint, from outside, and holds them until it is
//! told otherwise; so the program sees nothing of it, neither a signal nor an interrupted call. A
//! rank that writes faster than it is copied is slowed down so: it is let go now and then.
//!
//! Kept true: of two threads that stop a process for whatever reason the second begins when the
//! first has let it go; a checkpoint that is ordered meanwhile is taken, after which the rank
//! stands again; a rank that is started meanwhile stands at once; whoever dies is told as ever.

use super::capture::Wanted;
use super::{Agent, Msg};
use eyrie_control::node::FromNode;
use eyrie_image::Frozen;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

/// How soon the death of a rank that stands still is noticed.
const LOOK: Duration = Duration::from_millis(50);

/// How long a rank that is slowed down runs each time.
const RUN: Duration = Duration::from_millis(4);

/// How a rank is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// It stands still.
    Still,
    /// It runs one part in so many of the time.
    Slow(u32),
}

impl Manner {
    /// How long it stands each time, if not until it is told otherwise.
    fn stands_for(self) -> Option<Duration> {
        match self {
            Manner::Still => None,
            Manner::Slow(part) => Some(RUN * (part - 1)),
        }
    }
}

/// The order by which the ranks of a node stand still.
pub(super) struct Halt {
    turn: u64,
    /// It was answered.
    told: bool,
}

/// A rank that stands still, or is about to.
pub(super) struct Standing {
    start: u64,
    /// Dropped, or used: it goes on.
    go_on: Option<Sender<()>>,
    manner: Manner,
    stands: bool,
}

impl Standing {
    pub fn stands(&self) -> bool {
        self.stands
    }
}

impl Agent {
    pub(super) fn halt(&mut self, turn: u64) {
        self.halt = Some(Halt { turn, told: false });
        self.tend_all_standing();
    }

    pub(super) fn end_halt(&mut self) {
        self.halt = None;
        self.tend_all_standing();
    }

    /// A rank runs one part in so many of the time from now on.
    pub(super) fn slow(&mut self, rank: u32, part: u32) {
        self.rank(rank).slowed = Some(part).filter(|part| *part > 1);
        self.tend_standing(rank);
    }

    /// Tries again what could not be stopped, too.
    pub(super) fn tend_all_standing(&mut self) {
        for rank in 0..self.size() {
            self.rank(rank).restless = None;
            self.tend_standing(rank);
        }
        self.tell_halted();
    }

    /// Whether some rank is to be tried again.
    pub(super) fn is_restless(&self) -> bool {
        self.ranks.iter().any(|r| r.restless.is_some())
    }

    /// Stops a rank that is to stand, or lets one go.
    pub(super) fn tend_standing(&mut self, rank: u32) {
        let halted = self.halt.as_ref().map(|_| Manner::Still);
        let r = self.rank(rank);
        let wanted = halted.or(r.slowed.map(Manner::Slow));
        let waits = r.freezing || r.later.is_some() || r.find_later.is_some();
        let (proc, restless) = (r.proc.as_ref().map(|p| (p.pid, p.start)), r.restless.is_some());
        match (&mut r.standing, proc) {
            (None, Some((pid, start))) if !waits && !restless => {
                wanted.into_iter().for_each(|manner| self.stop_rank(rank, pid, start, manner));
            }
            (Some(standing), proc) => {
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
            hold(pid, manner, &told, stopped);
            let _ = tell.send(Msg::WentOn { rank, start });
        };
        match std::thread::Builder::new().name(String::from("eyrie-halt")).spawn(work) {
            Ok(_) => {
                let go_on = Some(go_on);
                let standing = Standing { start, go_on, manner, stands: false };
                self.rank(rank).standing = Some(standing);
            }
            Err(error) => self.rank(rank).restless = Some(error.to_string()),
        }
    }

    /// The thread of a rank has stopped it, or cannot.
    pub(super) fn rank_stopped(&mut self, rank: u32, start: u64, why: Option<String>) {
        let r = self.rank(rank);
        let Some(standing) = r.standing.as_mut().filter(|s| s.start == start) else { return };
        standing.stands = why.is_none();
        r.restless = why;
        self.tell_halted();
    }

    /// A rank that stood goes on, or is dead.
    pub(super) fn rank_went_on(&mut self, rank: u32, start: u64) {
        let r = self.rank(rank);
        if r.standing.take_if(|s| s.start == start).is_none() {
            return;
        }
        if let Some(wanted) = r.later.take() {
            self.checkpoint(wanted);
        } else if let Some(search) = r.find_later.take() {
            self.find(rank, search);
        }
        self.tend_standing(rank);
        self.tell_halted();
    }

    /// Puts a checkpoint off until the rank is let go for it. False: it need not be.
    pub(super) fn checkpoint_later(&mut self, wanted: Wanted) -> bool {
        let r = self.rank(wanted.rank);
        if r.standing.is_none() {
            return false;
        }
        r.later = Some(wanted);
        self.tend_standing(wanted.rank);
        true
    }

    /// Tells when all ranks stand, or which of them cannot be stopped for now.
    fn tell_halted(&mut self) {
        let Some(halt) = self.halt.as_mut().filter(|h| !h.told) else { return };
        let settled = |r: &super::Rank| {
            r.proc.is_none()
                || r.restless.is_some()
                || r.standing.as_ref().is_some_and(Standing::stands)
        };
        if !self.ranks.iter().all(settled) {
            return;
        }
        halt.told = true;
        let turn = halt.turn;
        let restless = (0u32..).zip(&self.ranks).filter(|(_, r)| r.proc.is_some());
        let restless = restless.filter_map(|(rank, r)| Some((rank, r.restless.clone()?)));
        let restless = restless.collect();
        self.say(FromNode::Halted { turn, restless });
    }
}

/// Stops a process with its children, and holds it until that is called off or it is dead; or lets
/// it go now and then.
fn hold(pid: libc::pid_t, manner: Manner, told: &Receiver<()>, stopped: impl Fn(Option<String>)) {
    loop {
        let frozen = match Frozen::stop(pid) {
            Ok(frozen) => frozen,
            Err(error) => return stopped(Some(error.to_string())),
        };
        if manner == Manner::Still {
            stopped(None);
        }
        let end = manner.stands_for().map(|time| Instant::now() + time);
        let goes_on = loop {
            let left = end.map_or(LOOK, |end| end.saturating_duration_since(Instant::now()));
            if left.is_zero() {
                break true;
            }
            let called_off = told.recv_timeout(left.min(LOOK)) != Err(RecvTimeoutError::Timeout);
            if called_off || frozen.has_ended() {
                break false;
            }
        };
        // A dead one needs nothing.
        let _ = frozen.release();
        if !goes_on || told.recv_timeout(RUN) != Err(RecvTimeoutError::Timeout) {
            return;
        }
    }
}
