//! The one waiting place: spin, then yield, then sleep on the rank's doorbell.
//!
//! Sleeping cannot miss a wake-up: the sleeper announces itself (`sleeping`), then looks once more,
//! then sleeps on the doorbell value read before that look; a peer publishes, then (after a full
//! fence) looks at `sleeping`, and rings. `tests/loom_doorbell.rs` is the model of it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, fence};
use std::time::Duration;

use eyrie_ledger::segment::RankCtl;

/// Longest sleep; only a backstop, nothing depends on it.
const SLEEP: Duration = Duration::from_millis(500);
/// Sleep while waiting for log space, which peers free without ringing.
const NAP: Duration = Duration::from_millis(1);

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
    pub fn new(ranks: u32, cores: u32) -> Self {
        if ranks <= cores {
            Patience { looks: 2_000, spins: 20_000, yields: 100 }
        } else {
            Patience { looks: 0, spins: 50, yields: 20 }
        }
    }

    /// How often to look at once, without leaving the core to anybody.
    pub fn looks(&self) -> u32 {
        self.looks
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

/// Wakes `peer` if it sleeps. Call after publishing something for it.
#[inline]
pub fn ring(peer: &RankCtl) {
    fence(SeqCst);
    if peer.sleeping.load(Relaxed) != 0 {
        ring_asleep(peer);
    }
}

#[cold]
fn ring_asleep(peer: &RankCtl) {
    peer.doorbell.fetch_add(1, SeqCst);
    futex_wake(&peer.doorbell);
}

/// Announces that this rank is about to sleep; returns the doorbell value to sleep on.
pub fn arm(own: &RankCtl) -> u32 {
    let seen = own.doorbell.load(SeqCst);
    own.sleeping.store(1, SeqCst);
    fence(SeqCst);
    seen
}

/// Takes the announcement back.
pub fn disarm(own: &RankCtl) {
    own.sleeping.store(0, Relaxed);
}

/// Sleeps until the doorbell is no longer `seen` (or the backstop time is over).
pub fn sleep(own: &RankCtl, seen: u32, short: bool) {
    futex_wait(&own.doorbell, seen, if short { NAP } else { SLEEP });
}

/// Sleeps while `word` is `value`, at most `limit`. Spurious returns are normal.
pub fn futex_wait(word: &AtomicU32, value: u32, limit: Duration) {
    let limit = libc::timespec {
        tv_sec: limit.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    };
    // SAFETY: the word lives in the segment; the kernel only reads it. Not FUTEX_PRIVATE: other
    // processes wake it.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAIT, value, &limit, 0, 0);
    }
}

/// Wakes all that sleep on `word`.
pub fn futex_wake(word: &AtomicU32) {
    // SAFETY: as above; the kernel does not touch the word.
    unsafe {
        libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX, 0, 0, 0);
    }
}

/// Gives the core to somebody else.
pub fn yield_core() {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::sched_yield() };
}
