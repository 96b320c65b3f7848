//! The clocks that a rank is shown: that of MPI_Wtime, and those of the C library.
//!
//! Kept true: for one rank none ever goes back, whichever machine the rank comes back on; and what
//! is recorded of them has a bound, however often a program asks. A value is recorded exactly
//! as long as there are few (`TICK_NS` a word, with a burst of `BURST_NS`); beyond that a call
//! gives a nanosecond more than the one before, which takes no word of its own (see `door`), until
//! the next exact one is due. The fuller the log, the rarer these are. Until then the processor's
//! counter says that it is not due yet (`Gate`), so that such a call costs less than the kernel's.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// Time for each word that is recorded, while the log is empty; twice that for each level of it
/// (`door`: an eighth, in the last eighth a 64th).
const TICK_NS: u64 = 4_000;
const MOST_LEVEL: u32 = 15;
/// How much of that time may be used in advance: 250,000 words.
const BURST_NS: u64 = 1_000_000_000;
/// By so much a clock of the machine may stand still rather than be put forward: clocks are coarse,
/// too.
const STILL_NS: u64 = 1_000_000_000;
/// Bits of a value that are recorded in one word; those above follow from the value before.
pub const VALUE_BITS: u32 = 56;
const VALUE: u64 = (1 << VALUE_BITS) - 1;
const SECOND_NS: u64 = 1_000_000_000;
/// How long the counter is watched before it is relied upon.
const WATCH_NS: u64 = 1_000_000;

/// How far the clock of this process is ahead of its machine's, for whoever cannot ask the door.
static AHEAD_NS: AtomicI64 = AtomicI64::new(0);

/// A clock. Stored in the log; values are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Which {
    /// That of MPI_Wtime.
    Monotonic = 0,
    Realtime = 1,
    Boottime = 2,
    Tai = 3,
    Raw = 4,
    ProcessCpu = 5,
    ThreadCpu = 6,
    RealtimeCoarse = 7,
    MonotonicCoarse = 8,
}

impl Which {
    /// How many there are.
    pub const ALL: usize = 9;

    /// By its number in the log.
    pub fn of(number: u64) -> Option<Which> {
        use Which::*;
        let all = [
            Monotonic,
            Realtime,
            Boottime,
            Tai,
            Raw,
            ProcessCpu,
            ThreadCpu,
            RealtimeCoarse,
            MonotonicCoarse,
        ];
        all.get(usize::try_from(number).ok()?).copied()
    }

    /// The kernel's name for it.
    pub const fn id(self) -> libc::clockid_t {
        match self {
            Which::Monotonic => libc::CLOCK_MONOTONIC,
            Which::Realtime => libc::CLOCK_REALTIME,
            Which::Boottime => libc::CLOCK_BOOTTIME,
            Which::Tai => libc::CLOCK_TAI,
            Which::Raw => libc::CLOCK_MONOTONIC_RAW,
            Which::ProcessCpu => libc::CLOCK_PROCESS_CPUTIME_ID,
            Which::ThreadCpu => libc::CLOCK_THREAD_CPUTIME_ID,
            Which::RealtimeCoarse => libc::CLOCK_REALTIME_COARSE,
            Which::MonotonicCoarse => libc::CLOCK_MONOTONIC_COARSE,
        }
    }

    /// It begins with the machine's start.
    const fn is_uptime(self) -> bool {
        use Which::{Boottime, Monotonic, MonotonicCoarse, Raw};
        matches!(self, Monotonic | Boottime | Raw | MonotonicCoarse)
    }

    /// It begins with the process, or the thread.
    const fn is_cpu(self) -> bool {
        matches!(self, Which::ProcessCpu | Which::ThreadCpu)
    }

    const fn is_coarse(self) -> bool {
        matches!(self, Which::RealtimeCoarse | Which::MonotonicCoarse)
    }
}

/// What a call is given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClockAnswer {
    /// The time, which is to be recorded.
    Exact(u64),
    /// The value before and a nanosecond; of a coarse clock, the value before.
    Tick(u64),
}

/// How fast the processor's counter counts, found out by watching it.
#[derive(Clone, Copy, Default)]
pub struct Pace {
    from: u64,
    from_ns: u64,
    /// Counts in 1,024 ns; 0 as long as it is not known.
    per_1024_ns: u64,
}

impl Pace {
    /// Watches from now on: on this machine.
    pub fn begin() -> Pace {
        Pace { from: counter(), from_ns: now(), per_1024_ns: 0 }
    }

    /// Counts in so many ns, if that is known.
    fn counts(&mut self, ns: u64) -> u64 {
        if self.per_1024_ns == 0 {
            if self.from == 0 {
                return 0;
            }
            let (counts, elapsed) =
                (counter().wrapping_sub(self.from), now().saturating_sub(self.from_ns));
            // A counter that does not count, or went back, is not used.
            if elapsed < WATCH_NS || counts >> 53 != 0 {
                return 0;
            }
            self.per_1024_ns = (counts << 10) / elapsed;
        }
        ns.saturating_mul(self.per_1024_ns) >> 10
    }
}

/// A stretch of the processor's counter in which no exact value is due.
#[derive(Clone, Copy, Default)]
pub struct Gate {
    from: u64,
    length: u64,
}

impl Gate {
    /// Whether it is that time.
    #[inline]
    pub fn holds(self) -> bool {
        self.length != 0 && counter().wrapping_sub(self.from) < self.length
    }

    /// For so long from now on.
    fn shut(pace: &mut Pace, ns: u64) -> Gate {
        let length = pace.counts(ns);
        Gate { from: if length == 0 { 0 } else { counter() }, length }
    }
}

/// The processor's counter, which costs nothing to read; 0 where there is none.
#[inline]
fn counter() -> u64 {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every such processor has it.
    return unsafe { std::arch::x86_64::_rdtsc() };
    #[cfg(not(target_arch = "x86_64"))]
    0
}

/// One clock as one rank sees it.
#[derive(Clone, Copy, Default)]
pub struct Course {
    pub(crate) ahead_ns: i64,
    /// The last value that was shown.
    pub(crate) last: u64,
    /// What was recorded is worth this moment.
    due: u64,
    pub(crate) gate: Gate,
    /// What the wall clock was ahead of this one at the start.
    wall_ahead_ns: i64,
}

impl Course {
    /// The time where nothing is recorded. It stands still rather than go back by up to `still`.
    fn show(&mut self, now: u64, still: u64) -> u64 {
        let mut time = now.wrapping_add_signed(self.ahead_ns);
        if time < self.last || time > self.last.saturating_add(i64::MAX as u64) {
            let behind = self.last.wrapping_sub(time);
            if behind > still {
                self.ahead_ns = self.ahead_ns.wrapping_add_unsigned(behind);
            }
            time = self.last;
        }
        self.last = time;
        time
    }

    /// The time where it is recorded, in a log that is so full (`MOST_LEVEL`).
    fn tell(&mut self, which: Which, now: u64, level: u32, pace: &mut Pace) -> ClockAnswer {
        let before = self.last;
        let still = if which.is_cpu() { 0 } else { STILL_NS };
        let time = self.show(now, still);
        if which.is_coarse() && time == before {
            return ClockAnswer::Tick(time);
        }
        if self.due > time.saturating_add(BURST_NS) {
            self.gate = Gate::shut(pace, self.due - time - BURST_NS);
            self.last = before;
            return ClockAnswer::Tick(self.tick(which));
        }
        self.due = self.due.max(time);
        self.charge(1, level);
        ClockAnswer::Exact(time)
    }

    /// The value before and what a tick adds to it.
    #[inline]
    pub fn tick(&mut self, which: Which) -> u64 {
        self.last += u64::from(!which.is_coarse());
        self.last
    }

    /// Words were recorded.
    pub fn charge(&mut self, words: u64, level: u32) {
        self.due += (words * TICK_NS) << level.min(MOST_LEVEL);
    }

    /// Whether something of so many words may be recorded by now.
    pub(crate) fn may(&mut self, words: u64, now: u64, level: u32, pace: &mut Pace) -> bool {
        if self.due > now.saturating_add(BURST_NS) {
            self.gate = Gate::shut(pace, self.due - now - BURST_NS);
            return false;
        }
        self.due = self.due.max(now);
        self.charge(words, level);
        true
    }
}

/// The clocks of one rank.
#[derive(Default)]
pub struct Clock {
    courses: [Course; Which::ALL],
    /// The machine that they are on.
    machine: u128,
    pub(crate) pace: Pace,
}

impl Clock {
    /// After a start or restore: which machine this is, and how much later.
    pub fn settle(&mut self) {
        self.settle_at(machine(), read, read(libc::CLOCK_REALTIME));
        self.pace = Pace::begin();
    }

    fn settle_at(&mut self, machine: u128, read: impl Fn(libc::clockid_t) -> u64, wall: u64) {
        let uptimes = (0..).map_while(Which::of).filter(|w| w.is_uptime());
        for which in uptimes {
            // The coarse one is what it is a coarse form of.
            let fine = if which.is_coarse() { Which::Monotonic } else { which };
            let wall_ahead = (wall as i64).wrapping_sub(read(fine.id()) as i64);
            let course = &mut self.courses[which as usize];
            if self.machine == 0 {
                course.wall_ahead_ns = wall_ahead;
            } else if self.machine != machine {
                course.ahead_ns = wall_ahead.wrapping_sub(course.wall_ahead_ns);
            }
        }
        // What has to be told anew: the counter is another one.
        self.courses.iter_mut().for_each(|c| c.gate = Gate::default());
        self.machine = machine;
        self.publish();
    }

    fn publish(&self) {
        AHEAD_NS.store(self.courses[Which::Monotonic as usize].ahead_ns, Relaxed);
    }

    /// A clock's course.
    #[inline]
    pub fn course(&mut self, which: Which) -> &mut Course {
        &mut self.courses[which as usize]
    }

    /// The time of MPI_Wtime where nothing is recorded.
    pub fn plain(&mut self, now: u64) -> u64 {
        let time = self.course(Which::Monotonic).show(now, STILL_NS);
        self.publish();
        time
    }

    /// The time where it is recorded, in a log that is so full (`MOST_LEVEL`).
    pub fn tell(&mut self, which: Which, now: u64, level: u32) -> ClockAnswer {
        let told = self.courses[which as usize].tell(which, now, level, &mut self.pace);
        if which == Which::Monotonic {
            self.publish();
        }
        told
    }

    /// What one word records of an exact value; nothing where it does not follow from the last.
    pub fn recorded(last: u64, time: u64) -> Option<u64> {
        (time.wrapping_sub(last) <= VALUE).then_some(time & VALUE)
    }

    /// In a replay: the value of MPI_Wtime of which this was recorded.
    pub fn replay(&mut self, recorded: u64) -> u64 {
        let last = self.courses[Which::Monotonic as usize].last;
        let time = (last & !VALUE) | (recorded & VALUE);
        let time = if time < last { time.wrapping_add(VALUE + 1) } else { time };
        self.courses[Which::Monotonic as usize].last = time;
        time
    }

    /// In a replay: a value that is so much later than the one before.
    pub fn replay_later(&mut self, which: Which, by: u64) -> u64 {
        let course = self.course(which);
        course.last = course.last.wrapping_add(by);
        course.last
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

/// How far that clock is ahead of the machine's.
pub fn ahead_ns() -> i64 {
    AHEAD_NS.load(Relaxed)
}

/// A clock of this machine, in nanoseconds.
pub fn read(clock: libc::clockid_t) -> u64 {
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
