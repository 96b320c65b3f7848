//! The clock that MPI_Wtime shows: that of the machine, in nanoseconds.
//!
//! Kept true: for one rank it never goes back, whichever machine the rank comes back on; and what
//! has to be recorded of it has a bound, however often a program asks. A value is recorded exactly
//! as long as there are few (`TICK_NS` a word, with a burst of `BURST_NS`); beyond that a call
//! gives a nanosecond more than the one before, which takes no word of its own (see `door`), until
//! the next exact one is due. The fuller the log, the rarer these are.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Time for each word that is recorded, while the log is empty; twice that for each eighth of it
/// that is full.
const TICK_NS: u64 = 4_000;
/// How much of that time may be used in advance: 250,000 words.
const BURST_NS: u64 = 1_000_000_000;
/// By so much the clock may stand still rather than be put forward: clocks are coarse, too.
const STILL_NS: u64 = 1_000_000_000;
/// Bits of a value that are recorded; those above follow from the value before.
pub const VALUE_BITS: u32 = 56;
const VALUE: u64 = (1 << VALUE_BITS) - 1;
const SECOND_NS: u64 = 1_000_000_000;

/// How far the clock of this process is ahead of its machine's, for whoever cannot ask the door.
static AHEAD_NS: AtomicI64 = AtomicI64::new(0);

/// What a call is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    /// The time, which is to be recorded.
    Exact(u64),
    /// The value before and a nanosecond.
    Tick(u64),
}

/// The clock of one rank.
#[derive(Default)]
pub struct Clock {
    ahead_ns: i64,
    /// The last value that was shown.
    last: u64,
    /// What was recorded is worth this moment.
    due: u64,
    /// The machine that `ahead_ns` is for.
    machine: u128,
    /// What the wall clock was ahead of this one at the start.
    wall_ahead_ns: i64,
}

impl Clock {
    /// After a start or restore: which machine this is, and how much later.
    pub fn settle(&mut self) {
        self.settle_at(machine(), read(libc::CLOCK_MONOTONIC), read(libc::CLOCK_REALTIME));
    }

    fn settle_at(&mut self, machine: u128, now: u64, wall: u64) {
        let wall_ahead = (wall as i64).wrapping_sub(now as i64);
        if self.machine == 0 {
            // What is recorded of the first value is all of it.
            self.ahead_ns = ((now & !VALUE) as i64).wrapping_neg();
            self.wall_ahead_ns = wall_ahead.wrapping_sub(self.ahead_ns);
        } else if self.machine != machine {
            self.ahead_ns = wall_ahead.wrapping_sub(self.wall_ahead_ns);
        }
        self.machine = machine;
        AHEAD_NS.store(self.ahead_ns, Relaxed);
    }

    /// The time where nothing is recorded.
    pub fn plain(&mut self, now: u64) -> u64 {
        let mut time = now.wrapping_add_signed(self.ahead_ns);
        if time < self.last || time > self.last.saturating_add(i64::MAX as u64) {
            let behind = self.last.wrapping_sub(time);
            if behind > STILL_NS {
                self.ahead_ns = self.ahead_ns.wrapping_add_unsigned(behind);
                AHEAD_NS.store(self.ahead_ns, Relaxed);
            }
            time = self.last;
        }
        self.last = time;
        time
    }

    /// The time where it is recorded, in a log of which so many eighths are full.
    pub fn tell(&mut self, now: u64, eighths: u32) -> Told {
        let before = self.last;
        let time = self.plain(now);
        if self.due > time.saturating_add(BURST_NS) {
            self.last = before + 1;
            return Told::Tick(self.last);
        }
        self.due = self.due.max(time);
        self.charge(eighths);
        Told::Exact(time)
    }

    /// A word was recorded.
    pub fn charge(&mut self, eighths: u32) {
        self.due += TICK_NS << eighths.min(8);
    }

    /// What was recorded of an exact value.
    pub fn recorded(time: u64) -> u64 {
        time & VALUE
    }

    /// In a replay: the value of which this was recorded.
    pub fn replay(&mut self, recorded: u64) -> u64 {
        let time = (self.last & !VALUE) | (recorded & VALUE);
        self.last = if time < self.last { time.wrapping_add(VALUE + 1) } else { time };
        self.last
    }

    /// In a replay: a nanosecond more.
    pub fn replay_tick(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

/// The machine's clock.
pub fn now() -> u64 {
    read(libc::CLOCK_MONOTONIC)
}

/// The time of this process's clock, asked past the door. Nothing is recorded.
pub fn past_the_door() -> u64 {
    now().wrapping_add_signed(AHEAD_NS.load(Relaxed))
}

fn read(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills our variable; these clocks always exist.
    unsafe { libc::clock_gettime(clock, &mut now) };
    (now.tv_sec as u64).wrapping_mul(SECOND_NS).wrapping_add(now.tv_nsec as u64)
}

/// A number that this machine has until it is started anew; never 0.
fn machine() -> u128 {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits = text.chars().filter_map(|c| c.to_digit(16));
    digits.fold(0u128, |number, digit| number << 4 | u128::from(digit)).max(1)
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
