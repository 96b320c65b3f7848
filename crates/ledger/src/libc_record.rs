//! What the C library says: its clocks, numbers, names and random bytes, through the door.
//!
//! Kept true: every answer is an event of the log, in the program's order, so that a replay gives
//! the same. One that is what was said before (of a clock: a nanosecond more) takes no word of its
//! own, but counts in the run. Nothing here allocates unless an answer has no fixed size
//! (`What::is_long`), as most of these functions may be called in handlers of signals.

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::{
    CALL_SHIFT, COUNT_BITS, Door, FAR, K_CLOCK, K_FRUITLESS, K_TIME, K_TOLD, KIND_SHIFT, MOST,
    PACKED_BYTES, Run, Segment, VALUE, WTIME, begins, words,
};
use crate::clock::{self, Clock, ClockAnswer, Course, Which};
use crate::divergence::Divergence;
use crate::random::{KEY_BYTES, Random};

/// What is asked for. Stored in the log; values are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum What {
    /// The process's number.
    Pid = 0,
    ParentPid = 1,
    /// `struct utsname`.
    Uname = 2,
    /// The numbers of a `struct tms`, and what `times` returns.
    Times = 3,
    /// Of a `struct rusage`: two times in us, and the other numbers.
    UsageSelf = 4,
    UsageThread = 5,
    UsageChildren = 6,
    /// The key of all random bytes from here on.
    Key = 7,
    /// Addresses of the machine.
    Addresses = 8,
    /// What `gethostid` returns.
    HostId = 9,
    /// What was said before `MPI_Init` (`before`).
    Before = 10,
    /// From here on: what the function returned, `errno`, and what it filled. A name or an address.
    Resolved = 11,
    /// What a timer has left, or what of it was missed.
    Timer = 12,
    /// What was read of a timer's descriptor.
    Expired = 13,
    /// Memory, processes and loads of the machine.
    System = 14,
    /// What the machine has: processors, pages, the steps of its clocks.
    Limits = 15,
    /// The processor that the thread is on.
    Processor = 16,
    /// Those that it may be on.
    Affinity = 17,
    /// What the allocator holds.
    Heap = 18,
    /// The name of a temporary file.
    Temporary = 19,
    /// Something is going to be appended to a file: the file's size, and what stands for it.
    AppendBegun = 20,
    /// What came of it: what was returned, the place behind it, a mark of the bytes, `errno`.
    Appended = 21,
    /// States of an interpreter's random numbers.
    Random = 22,
    /// A name in a folder was made, moved or removed: the object's number, and when.
    Entry = 23,
}

impl What {
    const ALL: usize = 24;

    /// What has this value.
    fn of(value: u64) -> Option<What> {
        use What::*;
        const KINDS: [What; What::ALL] = [
            Pid,
            ParentPid,
            Uname,
            Times,
            UsageSelf,
            UsageThread,
            UsageChildren,
            Key,
            Addresses,
            HostId,
            Before,
            Resolved,
            Timer,
            Expired,
            System,
            Limits,
            Processor,
            Affinity,
            Heap,
            Temporary,
            AppendBegun,
            Appended,
            Random,
            Entry,
        ];
        KINDS.get(usize::try_from(value).ok()?).copied()
    }

    /// Its size is not known beforehand.
    const fn is_long(self) -> bool {
        matches!(self, What::Addresses | What::Resolved | What::Random)
    }

    /// Finding it out costs more than recording it.
    const fn is_usage(self) -> bool {
        matches!(self, What::UsageSelf | What::UsageThread | What::UsageChildren)
    }

    /// It consists of 64-bit numbers that only grow, each of its own.
    const fn is_counters(self) -> bool {
        self.is_usage() || matches!(self, What::Times)
    }
}

/// Longest answer of fixed size.
pub const MAX_FIXED_BYTES: usize = 512;
/// Longest answer of all.
pub const MAX_TOLD_BYTES: usize = 128 << 10;
const FIXED_WORDS: usize = 1 + MAX_FIXED_BYTES.div_ceil(PACKED_BYTES as usize);

/// What was said last.
pub(super) struct Values {
    last: [Vec<u8>; What::ALL],
    /// What numbers that only grow are to be put forward by, as the process is another one.
    ahead: [[i64; MAX_COUNTERS]; What::ALL],
    told: [bool; What::ALL],
    budget: Course,
    random: Random,
}

/// Most numbers that one answer consists of.
const MAX_COUNTERS: usize = 16;

impl Values {
    pub(super) fn new() -> Values {
        Values {
            last: std::array::from_fn(|_| Vec::with_capacity(MAX_FIXED_BYTES)),
            ahead: [[0; MAX_COUNTERS]; What::ALL],
            told: [false; What::ALL],
            budget: Course::default(),
            random: Random::default(),
        }
    }

    fn has(&self, what: What) -> bool {
        self.told[what as usize]
    }

    fn put(&mut self, what: What, bytes: &[u8]) {
        self.last[what as usize].clear();
        self.last[what as usize].extend_from_slice(bytes);
        self.told[what as usize] = true;
    }

    /// After a restore: two processes that come from one image have other random bytes.
    pub(super) fn settle(&mut self) {
        self.random.forget();
        self.budget.gate = Default::default();
    }

    /// Numbers that only grow go on where they were.
    fn put_forward(&mut self, what: What, own: &mut [u8]) {
        let (last, ahead) = (&self.last[what as usize], &mut self.ahead[what as usize]);
        let numbers = own.chunks_exact_mut(8).zip(ahead.iter_mut());
        for (n, (number, ahead)) in numbers.enumerate() {
            let found = i64::from_ne_bytes(number.try_into().unwrap_or_default());
            let before = last.get(8 * n..8 * n + 8).and_then(|b| b.try_into().ok());
            let before = before.map_or(i64::MIN, i64::from_ne_bytes);
            let mut shown = found.saturating_add(*ahead);
            if shown < before {
                (*ahead, shown) = (before.saturating_sub(found), before);
            }
            number.copy_from_slice(&shown.to_ne_bytes());
        }
    }
}

/// What a word of the log is the answer to.
pub(super) fn named(word: u64) -> String {
    let number = word >> CALL_SHIFT & 0xff;
    match word >> KIND_SHIFT {
        K_TIME => clock_name(Which::Monotonic).to_string(),
        K_CLOCK => match Which::of(number) {
            Some(which) => clock_name(which).to_string(),
            None => format!("clock {number}"),
        },
        K_TOLD => match What::of(number) {
            Some(what) => format!("{what:?} of the C library"),
            None => format!("answer {number} of the C library"),
        },
        _ => String::from("another call"),
    }
}

/// What the rank's program of that number was told before it called `MPI_Init` when it was run
/// first, if that is recorded: it is the first event of each program.
pub fn before(seg: &Segment, rank: u32, world: u32) -> Option<Vec<u8>> {
    let ctl = seg.rank(rank);
    let tail = ctl.det_tail.load(Acquire);
    let word = |at: u64| seg.det(rank, at).load(Relaxed);
    let mut at = 0;
    if world > 0 {
        at = ctl.det_pos.load(Relaxed).min(tail);
        while at < tail && word(at) != begins(world) {
            at += words(word(at), tail - at);
        }
        at += 1;
    } else if ctl.det_trim.load(Acquire) > 0 {
        return None;
    }
    let head = if at < tail { word(at) } else { return None };
    if head >> KIND_SHIFT != K_TOLD || head >> CALL_SHIFT & 0xff != What::Before as u64 {
        return None;
    }
    let packed = (at + 1..at + words(head, tail - at)).flat_map(|at| {
        let bytes = word(at).to_le_bytes();
        bytes.into_iter().take(PACKED_BYTES as usize)
    });
    Some(packed.take((head & VALUE) as usize).collect())
}

/// The clocks as the program knows them. (A report of any says what to do: see `differs`.)
const fn clock_name(which: Which) -> &'static str {
    match which {
        Which::Monotonic => "MPI_Wtime or CLOCK_MONOTONIC",
        Which::Realtime => "CLOCK_REALTIME (as MPI_Wtime)",
        Which::Boottime => "CLOCK_BOOTTIME (as MPI_Wtime)",
        Which::Tai => "CLOCK_TAI (as MPI_Wtime)",
        Which::Raw => "CLOCK_MONOTONIC_RAW (as MPI_Wtime)",
        Which::ProcessCpu => "CLOCK_PROCESS_CPUTIME_ID (as MPI_Wtime)",
        Which::ThreadCpu => "CLOCK_THREAD_CPUTIME_ID (as MPI_Wtime)",
        Which::RealtimeCoarse => "CLOCK_REALTIME_COARSE (as MPI_Wtime)",
        Which::MonotonicCoarse => "CLOCK_MONOTONIC_COARSE (as MPI_Wtime)",
    }
}

/// What a replay says.
enum Dictated {
    Same,
    /// The word of the log, and where it is.
    Word(u64, u64),
}

impl Door {
    /// Whether what the C library gives is recorded, of the thread that called `MPI_Init`.
    pub fn tells(&self) -> bool {
        self.libc && self.timed
    }

    /// What a clock shows, in nanoseconds; `now` is the machine's.
    #[inline]
    pub fn clock(&mut self, which: Which, now: impl FnOnce() -> u64) -> Result<u64, Divergence> {
        if self.replaying() {
            return self.dictated_time(which);
        }
        let course = self.clock.course(which);
        if course.gate.holds() {
            let time = course.tick(which);
            self.ticked(which);
            return Ok(time);
        }
        let last = course.last;
        let level = self.level();
        match self.clock.tell(which, now(), level) {
            ClockAnswer::Exact(time) => {
                self.record_time(which, last, time);
                Ok(time)
            }
            ClockAnswer::Tick(time) => {
                self.ticked(which);
                Ok(time)
            }
        }
    }

    /// One more call of the run.
    #[inline(always)]
    fn ticked(&mut self, which: Which) {
        if self.grow(Run { fruitless: 0, ticks: 1 }) {
            let level = self.level();
            self.clock.course(which).charge(1, level);
        }
    }

    /// How full the log is: in eighths, and in the last one so many 64ths more.
    fn level(&self) -> u32 {
        let tail = self.ctl.det_tail.load(Relaxed);
        let held = tail.saturating_sub(self.ctl.det_trim.load(Relaxed));
        let full = (held >> (self.seg.geometry().det_words.trailing_zeros() - 6)) as u32;
        if full < 56 { full / 8 } else { 7 + (full - 56) }
    }

    fn record_time(&mut self, which: Which, last: u64, time: u64) {
        self.close_run();
        if which == Which::Monotonic
            && let Some(value) = Clock::recorded(last, time)
        {
            return self.push(&[K_TIME << KIND_SHIFT | value]);
        }
        let (head, later) =
            (K_CLOCK << KIND_SHIFT | (which as u64) << CALL_SHIFT, time.wrapping_sub(last));
        if later < FAR {
            self.push(&[head | later]);
        } else {
            self.push(&[head | FAR | later & (FAR - 1), later >> 47]);
        }
    }

    #[cold]
    fn dictated_time(&mut self, which: Which) -> Result<u64, Divergence> {
        let name = clock_name(which);
        let asked = format_args!("{name}");
        let (at, word) = match self.dictated_answer(&asked)? {
            Dictated::Same => return Ok(self.clock.course(which).tick(which)),
            Dictated::Word(at, word) => (at, word),
        };
        let time = match word >> KIND_SHIFT {
            K_TIME if which == Which::Monotonic => self.clock.replay(word),
            K_CLOCK if word >> CALL_SHIFT & 0xff == which as u64 => {
                let far = if word & FAR != 0 && at + 1 < self.end { self.word(at + 1) } else { 0 };
                let later = far << 47 | word & (FAR - 1);
                self.clock.replay_later(which, later)
            }
            _ => return Err(self.differs(&named(word), &asked)),
        };
        self.answered();
        Ok(time)
    }

    /// In a replay: what was said to the call that is made now.
    fn dictated_answer(&mut self, asked: &fmt::Arguments<'_>) -> Result<Dictated, Divergence> {
        if self.left.ticks > 0 {
            self.left.ticks -= 1;
            self.run.iter_mut().for_each(|(_, made)| made.ticks += 1);
            self.moved(self.pos);
            return Ok(Dictated::Same);
        }
        let (at, word) = self.dictated(asked)?;
        if word >> KIND_SHIFT == K_FRUITLESS && word >> COUNT_BITS & MOST > 0 {
            self.begin_run(at, word, Run { fruitless: 0, ticks: 1 });
            return Ok(Dictated::Same);
        }
        Ok(Dictated::Word(at, word))
    }

    /// The answer of which the word was read is used.
    fn answered(&mut self) {
        self.run = None;
        self.moved(self.next);
    }

    /// What the C library says, but for clocks. `find` puts it into the bytes, and says how many.
    pub fn tell(
        &mut self,
        what: What,
        find: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<&[u8], Divergence> {
        if self.replaying() {
            self.dictated_bytes(what)?;
        } else if what.is_usage() && self.values.budget.gate.holds() && self.values.has(what) {
            self.grow(Run { fruitless: 0, ticks: 1 });
        } else if what.is_long() {
            let mut room = vec![0; MAX_TOLD_BYTES];
            let count = find(&mut room).min(MAX_TOLD_BYTES);
            self.tell_found(what, &mut room[..count]);
        } else {
            let mut room = [0; MAX_FIXED_BYTES];
            let count = find(&mut room).min(MAX_FIXED_BYTES);
            self.tell_found(what, &mut room[..count]);
        }
        Ok(&self.values.last[what as usize])
    }

    /// Records what was found out, if it is news and there may be so many.
    fn tell_found(&mut self, what: What, found: &mut [u8]) {
        if what.is_counters() {
            self.values.put_forward(what, found);
        }
        let told = self.values.has(what);
        let mut same = told && self.values.last[what as usize] == *found;
        if told && !same && what.is_usage() {
            let words = 1 + (found.len() as u64).div_ceil(PACKED_BYTES);
            let level = self.level();
            let pace = &mut self.clock.pace;
            same = !self.values.budget.may(words, clock::now(), level, pace);
        }
        if same {
            self.grow(Run { fruitless: 0, ticks: 1 });
        } else {
            self.record_bytes(what, found);
            self.values.put(what, found);
        }
    }

    fn record_bytes(&mut self, what: What, bytes: &[u8]) {
        self.close_run();
        let head = K_TOLD << KIND_SHIFT | (what as u64) << CALL_SHIFT | bytes.len() as u64;
        let words = bytes.chunks(PACKED_BYTES as usize).map(|packed| {
            let mut word = [0; 8];
            word[..packed.len()].copy_from_slice(packed);
            u64::from_le_bytes(word)
        });
        if what.is_long() {
            let all: Vec<u64> = std::iter::once(head).chain(words).collect();
            return self.push(&all);
        }
        let mut all = [0; FIXED_WORDS];
        let mut count = 0;
        for word in std::iter::once(head).chain(words).take(FIXED_WORDS) {
            all[count] = word;
            count += 1;
        }
        self.push(&all[..count]);
    }

    /// In a replay: what was said. Whether it is not what was said before.
    #[cold]
    fn dictated_bytes(&mut self, what: What) -> Result<bool, Divergence> {
        let asked = format_args!("{what:?} of the C library (as {WTIME})");
        let Dictated::Word(at, word) = self.dictated_answer(&asked)? else { return Ok(false) };
        if word >> KIND_SHIFT != K_TOLD || word >> CALL_SHIFT & 0xff != what as u64 {
            return Err(self.differs(&named(word), &asked));
        }
        // No more than there is: a damaged count becomes a divergence, not a crash.
        let words = super::words(word, self.end - at);
        let mut left = (word & VALUE).min((words - 1) * PACKED_BYTES) as usize;
        let mut bytes = std::mem::take(&mut self.values.last[what as usize]);
        bytes.clear();
        for n in 1..words {
            let packed = self.word(at + n).to_le_bytes();
            let count = left.min(PACKED_BYTES as usize);
            bytes.extend_from_slice(&packed[..count]);
            left -= count;
        }
        self.values.last[what as usize] = bytes;
        self.values.told[what as usize] = true;
        self.answered();
        Ok(true)
    }

    /// Random bytes; `key` gives those of the kernel's.
    pub fn random(
        &mut self,
        bytes: &mut [u8],
        key: impl FnOnce(&mut [u8]) -> usize,
    ) -> Result<(), Divergence> {
        if self.replaying() {
            if self.dictated_bytes(What::Key)? {
                self.values.random.begin(&self.values.last[What::Key as usize]);
            }
        } else if self.values.random.is_fresh() {
            self.grow(Run { fruitless: 0, ticks: 1 });
        } else {
            let mut room = [0; KEY_BYTES];
            let count = key(&mut room).min(KEY_BYTES);
            self.record_bytes(What::Key, &room[..count]);
            self.values.random.begin(&room[..count]);
            self.values.random.refresh();
        }
        self.values.random.fill(bytes);
        Ok(())
    }
}

#[cfg(test)]
#[path = "libc_record_tests.rs"]
mod tests;
