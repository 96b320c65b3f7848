//! The one waiting place: spin, then yield, then sleep on the rank's doorbell.
//!
//! Sleeping cannot miss a wake-up: the sleeper announces itself (`sleeping`), then looks once more,
//! then sleeps on the doorbell value read before that look; a peer publishes, then (after a full
//! fence) looks at `sleeping`, and rings. `tests/loom_models.rs` has the model of it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

pub use eyrie_ledger::futex::{wait as futex_wait, wake as futex_wake};
use eyrie_ledger::segment::{ASLEEP, ASLEEP_REMOTE, AWAKE, RankCtl};

/// Longest sleep; only a backstop, nothing depends on it.
const SLEEP: Duration = Duration::from_millis(500);
/// Sleep while waiting for log space, which peers free without ringing.
const NAP: Duration = Duration::from_millis(1);
/// The first sleep where a wire may bring something, which rings no bell, and how many are so
/// long; later ones are longer, in proportion to how long it has been waited for by then.
const BRIEF_NAP: Duration = Duration::from_micros(50);
const BRIEF_NAPS: u32 = 6;
const LONGEST_BRIEF_NAP: Duration = Duration::from_millis(4);

/// How long to sleep at most.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Nap {
    /// Whatever is awaited rings the bell.
    Long,
    /// Log space is awaited.
    Short,
    /// Something may come by a wire. So often it was slept before.
    Brief(u32),
}

impl Nap {
    fn length(self) -> Duration {
        match self {
            Nap::Long => SLEEP,
            Nap::Short => NAP,
            Nap::Brief(before) => {
                (BRIEF_NAP * (1 << (before / BRIEF_NAPS).min(16))).min(LONGEST_BRIEF_NAP)
            }
        }
    }
}

/// What to do in the next round of waiting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Round {
    /// Look again at once: a peer on another core answers within a microsecond.
    Look,
    Spin,
    Yield,
    Sleep,
}

/// How patiently a rank waits; fewer cores than ranks means less spinning.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    looks: u32,
    spins: u32,
    yields: u32,
}

impl Patience {
    /// `linked`: there are other nodes, and threads that carry messages there, which need a core
    /// when a message does not come early.
    pub fn new(ranks: u32, cores: u32, linked: bool) -> Self {
        if ranks <= cores {
            match linked {
                true => Patience { looks: 64, spins: 64, yields: 400 },
                false => Patience { looks: 2_000, spins: 20_000, yields: 100 },
            }
        } else {
            match linked {
                // No datagram wakes who sleeps, and whom it is for may wait for this very core.
                true => Patience { looks: 0, spins: 0, yields: 500 },
                false => Patience { looks: 0, spins: 50, yields: 20 },
            }
        }
    }

    /// Whether fruitless polls should give the core away each time.
    pub fn is_crowded(&self) -> bool {
        self.looks == 0
    }

    /// How often to look at once, without leaving the core to anybody.
    pub fn looks(&self) -> u32 {
        self.looks
    }

    /// Rounds before it is slept.
    pub fn rounds(&self) -> u32 {
        self.spins + self.yields
    }

    /// What to do after `idle` rounds without any progress.
    pub fn round(&self, idle: u32) -> Round {
        if idle < self.looks {
            Round::Look
        } else if idle < self.spins {
            Round::Spin
        } else if idle < self.spins + self.yields {
            Round::Yield
        } else {
            Round::Sleep
        }
    }
}

/// Wakes `peer` if it sleeps. Call after publishing something for it. False: it has its home on
/// another node, and the links are to be told instead.
#[inline]
#[must_use]
pub fn ring(peer: &RankCtl) -> bool {
    fence(SeqCst);
    match peer.sleeping.load(Relaxed) {
        AWAKE => true,
        state => ring_asleep(peer, state),
    }
}

#[cold]
fn ring_asleep(peer: &RankCtl, state: u32) -> bool {
    if state == ASLEEP_REMOTE {
        return false;
    }
    peer.wake();
    true
}

/// Announces that this rank is about to sleep; returns the doorbell value to sleep on.
pub fn arm(own: &RankCtl) -> u32 {
    let seen = own.doorbell.load(SeqCst);
    own.sleeping.store(ASLEEP, SeqCst);
    fence(SeqCst);
    seen
}

/// Takes the announcement back.
pub fn disarm(own: &RankCtl) {
    own.sleeping.store(AWAKE, Relaxed);
}

/// Sleeps until the doorbell is no longer `seen` (or the backstop time is over).
pub fn sleep(own: &RankCtl, seen: u32, nap: Nap) {
    futex_wait(&own.doorbell, seen, nap.length());
}

/// Gives the core to somebody else.
pub fn yield_core() {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::sched_yield() };
}
