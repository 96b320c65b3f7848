//! The one waiting place: spin, then yield, then sleep on the rank's doorbell.
//!
//! Sleeping cannot miss a wake-up: the sleeper announces itself (`sleeping`), then looks once more,
//! then sleeps on the doorbell value read before that look; a peer publishes, then (after a full
//! fence) looks at `sleeping`, and rings. `tests/loom_models.rs` has the model of it.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use eyrie_ledger::clock;
pub use eyrie_ledger::futex::{wait as futex_wait, wake as futex_wake};
use eyrie_ledger::segment::{ASLEEP, ASLEEP_REMOTE, AWAKE, RankCtl};

use crate::crowd;

/// Longest sleep; only a backstop, nothing depends on it.
const SLEEP: Duration = Duration::from_millis(500);
/// Sleep while waiting for log space, which peers free without ringing.
const NAP: Duration = Duration::from_millis(1);
/// The first sleep where a direct connection may bring something, which rings no bell, and how many
/// are so long; later ones are longer, in proportion to how long it has been waited for by then.
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
    /// Something may come by a direct connection. So often it was slept before.
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
pub struct SpinPolicy {
    /// As it is now: one of those below.
    steps: Steps,
    /// How it is waited when nobody else wants the core, and when others do.
    alone: Steps,
    crowded: Steps,
    /// Ranks outnumber the cores.
    scarce: bool,
    /// Others want the core.
    crowd: bool,
    /// Until then it is not yielded.
    slow_until: Duration,
}

/// Rounds of waiting up to which it is looked and spun, and yields after them; then it is slept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Steps {
    looks: u32,
    /// The first ones are looks.
    spins: u32,
    yields: u32,
}

/// After so many rounds beyond the looks it is looked again whether others want the core.
const LOOK_AROUND: u32 = 1024;
/// A yield that takes longer went to a stranger, who uses up what time he has. Who sleeps runs
/// again as soon as a message is there.
const SLOW_YIELD: Duration = Duration::from_micros(300);
/// For so long it is not tried again.
const SLOW_FOR: Duration = Duration::from_millis(100);

impl SpinPolicy {
    /// `linked`: there are other nodes, and threads that carry messages there, which need a core
    /// when a message does not come ahead of the log.
    pub fn new(ranks: u32, cores: u32, linked: bool) -> Self {
        let steps = |looks, spins, yields| Steps { looks, spins, yields };
        let scarce = ranks > cores;
        let (alone, crowded) = match (scarce, linked) {
            (false, true) => (steps(64, 64, 400), steps(32, 64, 0)),
            (false, false) => (steps(2_000, 20_000, 100), steps(50, 100, 0)),
            // No datagram wakes who sleeps, and whom it is for may wait for this very core.
            (true, true) => (steps(0, 0, 500), steps(0, 1, 0)),
            (true, false) => (steps(0, 1, 50), steps(0, 1, 0)),
        };
        SpinPolicy {
            steps: alone,
            alone,
            crowded,
            scarce,
            crowd: false,
            slow_until: Duration::ZERO,
        }
    }

    fn set_crowd(&mut self, crowd: bool) {
        self.crowd = crowd;
        self.steps = if crowd { self.crowded } else { self.alone };
    }

    /// Whether ranks outnumber the cores: fruitless polls give the core away each time.
    pub fn is_scarce(&self) -> bool {
        self.scarce
    }

    /// Whether others want the core, as was seen last.
    pub fn is_crowded(&self) -> bool {
        self.crowd
    }

    /// How often to look at once, without leaving the core to anybody.
    #[inline]
    pub fn looks(&self) -> u32 {
        self.steps.looks
    }

    /// Rounds before it is slept.
    pub fn rounds(&self) -> u32 {
        self.steps.spins + self.steps.yields
    }

    /// What to do after `idle` rounds without any progress.
    #[inline]
    pub fn round(&mut self, idle: u32) -> Round {
        let Steps { looks, .. } = self.steps;
        if idle < looks {
            return Round::Look;
        }
        if (idle - looks).is_multiple_of(LOOK_AROUND) || idle >= self.rounds() {
            self.look_around();
        }
        let Steps { spins, yields, .. } = self.steps;
        if idle < spins {
            Round::Spin
        } else if idle < spins + yields {
            Round::Yield
        } else {
            Round::Sleep
        }
    }

    /// Looks whether others want the core. Where ranks outnumber the cores one rank always wants
    /// another's, and only yields tell.
    #[cold]
    pub fn look_around(&mut self) {
        let slow = self.slow_until > Duration::ZERO && now() < self.slow_until;
        self.set_crowd(slow || (!self.scarce && crowd::look()));
    }

    /// A yield took from `begun` to `over`.
    #[inline]
    pub fn yielded(&mut self, begun: Duration, over: Duration) {
        if over.saturating_sub(begun) > SLOW_YIELD {
            self.slow_until = over + SLOW_FOR;
            self.set_crowd(true);
        }
    }
}

/// The time that yields are measured by.
pub fn now() -> Duration {
    Duration::from_nanos(clock::now())
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds before it is slept, and how many of them leave the core to nobody.
    fn waits(spin: &SpinPolicy) -> (u32, u32) {
        let mut spin = *spin;
        let mut rounds = (0..).map(|idle| spin.round(idle)).take_while(|r| *r != Round::Sleep);
        let (mut all, mut kept) = (0, 0);
        rounds.by_ref().for_each(|round| {
            all += 1;
            kept += u32::from(round != Round::Yield);
        });
        (all, kept)
    }

    #[test]
    fn who_is_in_a_crowd_sleeps_soon() {
        for (ranks, linked) in [(2, false), (2, true), (3, false), (3, true)] {
            let mut spin = SpinPolicy::new(ranks, 2, linked);
            // As ranks are more than cores, only yields tell of others.
            spin.scarce = true;
            let (calm, _) = waits(&spin);
            let begun = now();
            spin.yielded(begun, begun + SLOW_YIELD);
            assert_eq!(waits(&spin).0, calm, "others were there for a moment");
            let long = Duration::from_secs(3600);
            spin.yielded(begun, begun + long);
            assert!(spin.is_crowded());
            let (crowded, kept) = waits(&spin);
            assert!(
                crowded < calm && crowded <= 100 && kept == crowded,
                "{ranks} {linked} {crowded}"
            );
            spin.slow_until = now();
            assert_eq!(waits(&spin).0, calm, "they are gone");
        }
    }

    #[test]
    fn ranks_without_a_core_each_hardly_spin() {
        let kept = |ranks, linked| {
            waits(&SpinPolicy { scarce: true, ..SpinPolicy::new(ranks, 2, linked) }).1
        };
        assert!(kept(3, false) <= 1 && kept(3, true) <= 1);
        assert!(kept(2, false) > 1_000 && kept(2, true) > 10);
        assert!(
            SpinPolicy::new(3, 2, false).is_scarce() && !SpinPolicy::new(2, 2, false).is_scarce()
        );
    }
}
