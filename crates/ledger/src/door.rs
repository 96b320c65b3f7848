//! The one door for chance: every outcome that the program's code does not decide.
//!
//! In a normal run outcomes are recorded in the rank's determinant log, which lies in the job
//! segment and thus survives the process from the moment it is written; in a replay they are
//! dictated. Nothing else in the library may branch on time, arrival or polling in a way that the
//! program can see.
//!
//! Two kinds of event (the list is that of sender-based pessimistic logging, see
//! `docs/formats/segment.md`):
//! - *calls*, in program order: what Test*, Waitany, Waitsome, Iprobe, Probe, Cancel returned. A
//!   run of fruitless calls is one word whose count grows in place. What MPI_Wtime gave is one, too
//!   ([`crate::clock`]); calls that were given a nanosecond more than the one before stand in the
//!   word of the run, with a count of their own, so that who polls with an eye on the clock makes
//!   one run. So is what the C library said (`libc_record`): its other clocks, the number of the
//!   process, the name of the machine, random bytes. The program itself brings all kinds in order.
//! - *posts*, by the number of the posted receive: which source a wildcard matched, or that the
//!   receive was cancelled. They are known at posting in a replay, however late they happened.
//! - *applications*, by their place in the rank's course: that an operation of another rank was
//!   applied to a window of this one (`applied`).
//! - *turns*, where several threads of the rank call MPI: which of them went on when (`turns`).

use std::collections::HashMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::clock::{Clock, Which};
use crate::divergence::Divergence;
use crate::replay_end;
use crate::segment::{RankCtl, Segment};

#[path = "applied.rs"]
mod applied;
#[path = "libc_record.rs"]
mod libc_record;
#[path = "told.rs"]
mod told;
#[path = "turns.rs"]
mod turns;
pub use applied::Applied;
use applied::{APPLIED_WORDS, Applications, K_APPLIED, K_PASSED};
use libc_record::Values;
pub use libc_record::{MAX_TOLD_BYTES, What, before};
pub use told::{Told, appended, file_number, told};
pub use turns::Turn;
use turns::Turns;

/// The call whose outcome is asked for. Stored in the log; values are fixed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Call {
    Test = 1,
    Testall = 2,
    Testany = 3,
    Testsome = 4,
    Waitany = 5,
    Waitsome = 6,
    Probe = 7,
    Iprobe = 8,
    Mprobe = 9,
    Improbe = 10,
    GetStatus = 11,
    Cancel = 12,
    /// `MPI_Get_processor_name`: its length and its bytes, four in a word.
    Name = 13,
    /// `MPIX_Eyrie_input`, likewise.
    Input = 14,
    /// What the file system said: an error class, a number and a mark, in halves.
    File = 15,
    /// The rank's next program begins: its number (`world`).
    World = 16,
    /// The node whose memory the rank has (`MPI_Comm_split_type`).
    Node = 17,
}

/// What a call came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// Index of the request, world rank of the source, or 0/1 for yes or no.
    One(u32),
    /// Indices in the order they were reported.
    Many(Vec<u32>),
}

/// What the door says to a call.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Find out, then record.
    Live,
    /// Return without success, whatever is there.
    Fruitless,
    /// Wait until this is possible, then return it.
    Forced(Outcome),
}

/// What the door says to a posted receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Post {
    /// Match as it comes (and record, if a wildcard).
    Free,
    /// Matches only messages from this world rank.
    Source(u32),
    /// Had not matched when the recording ends: match nothing until the replay is over.
    Held,
    /// Will be cancelled: matches nothing.
    Never,
}

/// What the door says of a receive that the program has freed, at the end of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Freed {
    /// It goes into place if it is there (and is recorded).
    Live,
    /// Wait for it.
    Now,
    /// Not in this call.
    Later,
}

const KIND_SHIFT: u32 = 56;
const CALL_SHIFT: u32 = 48;
const VALUE: u64 = (1 << 48) - 1;

/// Whether a number of a count that is kept in the low bits `mask` comes after `last`.
fn comes_after(number: u32, last: u32, mask: u32) -> bool {
    let ahead = number.wrapping_sub(last) & mask;
    ahead > 0 && ahead <= mask / 2
}
const K_FRUITLESS: u64 = 1;
const K_ONE: u64 = 2;
const K_MANY: u64 = 3;
const K_MATCHED: u64 = 4;
const K_CANCELLED: u64 = 5;
/// What MPI_Wtime gave, in all bits below the kind.
const K_TIME: u64 = 6;
/// How much later a clock (in place of the call) was than before, in the bits below `FAR`.
const K_CLOCK: u64 = 7;
/// In a word of `K_CLOCK`: there is a second word, with the bits above.
const FAR: u64 = 1 << 47;
/// Bytes that the C library gave: how many, then seven in a word.
const K_TOLD: u64 = 8;
/// Bytes in a word: its highest is 0, so that it is no run.
const PACKED_BYTES: u64 = 7;
/// A freed receive went into place at the end of the call of this number.
const K_FREED: u64 = 16;
/// The two counts of a run: fruitless calls, and above them ticks of the clock.
const COUNT_BITS: u32 = 28;
const MOST: u64 = (1 << COUNT_BITS) - 1;
/// Words kept free, so that one MPI call always finds room for what it records.
const RESERVE_WORDS: u64 = 64 * 1024;
/// How the call is named in reports, and what they add where it is not where it was.
const WTIME: &str = "MPI_Wtime";
const WTIME_HINT: &str = "; if how often the program asks for the time depends on other threads \
                          or signals: --clocks plain";

/// Whether a word of the log is a run of fruitless calls, or a place that was passed: only these
/// are changed after they were written, by growing, and only as long as it is the last.
pub const fn is_run(word: u64) -> bool {
    matches!(word >> KIND_SHIFT, K_FRUITLESS | K_PASSED)
}

/// Whether a word of this kind begins a call, which a replay meets in the program's order.
const fn is_call(kind: u64) -> bool {
    matches!(kind, K_FRUITLESS | K_ONE | K_MANY | K_TIME | K_CLOCK | K_TOLD)
}

/// The event with which the rank's program of that number begins.
fn begins(world: u32) -> u64 {
    K_ONE << KIND_SHIFT | (Call::World as u64) << CALL_SHIFT | u64::from(world)
}

/// Whether a program of the rank begins with this word.
const fn is_begin(word: u64) -> bool {
    word >> CALL_SHIFT == K_ONE << (KIND_SHIFT - CALL_SHIFT) | Call::World as u64
}

/// Words of the event that begins with this one, of `left` that there are.
fn words(word: u64, left: u64) -> u64 {
    match word >> KIND_SHIFT {
        K_FRUITLESS | K_ONE | K_TIME | K_PASSED => 1,
        K_MANY => 1 + (word & VALUE).min(left - 1),
        K_TOLD => 1 + (word & VALUE).div_ceil(PACKED_BYTES).min(left - 1),
        K_APPLIED => APPLIED_WORDS.min(left),
        K_CLOCK => 1 + u64::from(word & FAR != 0).min(left - 1),
        _ => 2,
    }
}

/// Of a run of calls that share a word.
#[derive(Clone, Copy, Default)]
struct Run {
    fruitless: u64,
    ticks: u64,
}

impl Run {
    fn of(word: u64) -> Run {
        Run { fruitless: word & MOST, ticks: word >> COUNT_BITS & MOST }
    }

    fn word(self) -> u64 {
        K_FRUITLESS << KIND_SHIFT | self.ticks << COUNT_BITS | self.fruitless
    }

    /// What of it comes after `made`.
    fn after(self, made: Run) -> Run {
        Run {
            fruitless: self.fruitless.saturating_sub(made.fruitless),
            ticks: self.ticks.saturating_sub(made.ticks),
        }
    }

    fn is_empty(self) -> bool {
        self.fruitless == 0 && self.ticks == 0
    }
}

/// The determinant log of one rank, recording or dictating.
pub struct Door {
    seg: &'static Segment,
    ctl: &'static RankCtl,
    rank: u32,
    on: bool,
    /// What MPI_Wtime gives is recorded.
    timed: bool,
    /// So is what the C library gives.
    libc: bool,
    /// The rank is run again alone: what is not recorded is not to be had.
    alone: bool,
    /// Words of the log that this incarnation has passed.
    pos: u64,
    /// The open run: its word and what this incarnation made of it.
    run: Option<(u64, Run)>,
    /// What is still to be repeated of the open run.
    left: Run,
    /// Calls that are to be dictated: their number, and where in the log they are.
    calls: u64,
    next: u64,
    end: u64,
    posts: HashMap<u64, Post>,
    /// By freed receives, the calls in which they went into place.
    freed: HashMap<u64, u64>,
    windows: Applications,
    turns: Turns,
    /// Calls and posts passed, for reports.
    events: u64,
    clock: Clock,
    values: Values,
}

impl Door {
    pub fn new(seg: &'static Segment, rank: u32) -> Self {
        let recording = seg.header().recording();
        let mut door = Door {
            seg,
            ctl: seg.rank(rank),
            rank,
            on: recording.outcomes(),
            timed: recording.clock(),
            libc: recording.libc(),
            alone: false,
            pos: 0,
            run: None,
            left: Run::default(),
            calls: 0,
            next: 0,
            end: 0,
            posts: HashMap::new(),
            freed: HashMap::new(),
            windows: Applications::default(),
            turns: Turns::default(),
            events: 0,
            clock: Clock::default(),
            values: Values::new(),
        };
        door.rebuild();
        door
    }

    /// The program may call MPI in several threads, one at a time, of which this one's calls of
    /// MPI_Wtime need not stand in an order with the others' calls. Whether what it gives is
    /// recorded all the same.
    pub fn threaded(&mut self) -> bool {
        self.timed &= self.seg.header().recording().threads_clock();
        self.timed
    }

    /// The job goes on without protection: nobody will ever replay this.
    fn is_given_up(&self) -> bool {
        self.seg.header().unprotected.load(Relaxed) != 0
    }

    /// The rank's program number `world` goes on where the one before it ended, which is where it
    /// was recorded to begin, or else at the end.
    pub fn follow(&mut self, world: u32) {
        if !self.on {
            return;
        }
        let begins = begins(world);
        let tail = self.ctl.det_tail.load(Acquire);
        let mut at = self.ctl.det_pos.load(Relaxed).min(tail);
        while at < tail && self.word(at) != begins {
            at += words(self.word(at), tail - at);
        }
        self.pos = at.min(tail);
        self.windows.begin_program();
        self.rebuild();
        self.publish_pos();
    }

    /// Reads what is recorded beyond this incarnation's position, after a start or restore.
    pub fn rebuild(&mut self) {
        self.clock.settle();
        self.values.settle();
        self.posts.clear();
        self.freed.clear();
        self.windows.due.clear();
        self.turns.forget();
        (self.calls, self.left) = (0, Run::default());
        self.alone = self.seg.header().recording().is_replay();
        if !self.on {
            return;
        }
        if let Some((at, made)) = self.run {
            self.left = Run::of(self.word(at)).after(made);
        }
        self.read_passed();
        let tail = self.ctl.det_tail.load(Acquire);
        (self.next, self.end) = (self.pos, tail);
        let mut at = self.pos;
        // Turns of the rank's next program are not this one's.
        let mut own = true;
        while at < tail {
            let word = self.word(at);
            let kind = word >> KIND_SHIFT;
            if is_call(kind) {
                own &= at == self.pos || !is_begin(word);
                self.calls += 1;
            } else if applied::is_of_windows(kind) {
                self.read_application(at, tail);
            } else if turns::is_of_threads(kind) {
                if own {
                    self.read_turn(at);
                }
            } else if kind == K_FREED {
                self.freed.insert(self.word(at + 1), word & VALUE);
            } else {
                let source = Post::Source((word & VALUE) as u32);
                let post = if kind == K_MATCHED { source } else { Post::Never };
                // A receive that matched after it was posted and was never cancelled, or the
                // reverse: one event a post, the last one counts.
                self.posts.insert(self.word(at + 1), post);
            }
            at += words(word, tail - at);
        }
        let known = self.posts.is_empty() && self.freed.is_empty() && self.windows.due.is_empty();
        if self.calls == 0 && known && self.turns.are_over() && self.left.is_empty() {
            self.pos = tail;
        }
    }

    fn word(&self, at: u64) -> u64 {
        self.seg.det(self.rank, at).load(Relaxed)
    }

    /// The next call that is to be dictated, if there is one: where it stands, and its word.
    fn next_call(&mut self) -> Option<(u64, u64)> {
        while self.calls > 0 && self.next < self.end {
            let (at, word) = (self.next, self.word(self.next));
            self.next += words(word, self.end - at);
            if is_call(word >> KIND_SHIFT) {
                self.calls -= 1;
                return Some((at, word));
            }
        }
        self.calls = 0;
        None
    }

    /// After `rebuild` and after asking again for every receive that is still posted: what is
    /// recorded of receives up to number `last` was matched before the image was taken.
    pub fn forget_posts_up_to(&mut self, last: u64) {
        self.posts.retain(|post, _| *post > last);
        if !self.replaying() {
            self.moved(self.pos);
        }
    }

    /// Whether recorded outcomes are still to be dictated.
    pub fn replaying(&self) -> bool {
        self.alone
            || self.calls > 0
            || !self.left.is_empty()
            || !self.posts.is_empty()
            || !self.freed.is_empty()
            || !self.windows.due.is_empty()
            || !self.turns.are_over()
    }

    /// Whether an MPI call may start: the log has room for what it might record.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.on
            || self.ctl.det_tail.load(Relaxed) + RESERVE_WORDS
                < self.ctl.det_trim.load(Acquire) + self.seg.geometry().det_words
            || self.is_given_up()
    }

    /// What a call of kind `call` is to do.
    pub fn ask(&mut self, call: Call) -> Result<Verdict, Divergence> {
        if !self.on || !self.replaying() {
            return Ok(Verdict::Live);
        }
        if self.left.fruitless > 0 {
            self.left.fruitless -= 1;
            self.run.iter_mut().for_each(|(_, made)| made.fruitless += 1);
            return Ok(Verdict::Fruitless);
        }
        let asked = format_args!("{call:?}");
        let (at, word) = self.dictated(&asked)?;
        let (kind, value) = (word >> KIND_SHIFT, word & VALUE);
        let outcome = match kind {
            K_FRUITLESS if Run::of(word).fruitless > 0 => {
                self.begin_run(at, word, Run { fruitless: 1, ticks: 0 });
                return Ok(Verdict::Fruitless);
            }
            K_ONE => Outcome::One(value as u32),
            K_MANY => {
                // No more than there is: a damaged count becomes a divergence, not a crash.
                let end = at + words(word, self.end - at);
                Outcome::Many((at + 1..end).map(|w| self.word(w) as u32).collect())
            }
            _ => return Err(self.differs(&libc_record::named(word), &asked)),
        };
        self.run = None;
        self.moved(self.next);
        let recorded = (word >> CALL_SHIFT) as u8;
        if recorded != call as u8 {
            let name = format!("call kind {recorded} with outcome {outcome:?}");
            return Err(self.differs(&name, &asked));
        }
        Ok(Verdict::Forced(outcome))
    }

    /// What MPI_Wtime gives, in nanoseconds; `now` is the machine's clock.
    #[inline]
    pub fn time(&mut self, now: impl FnOnce() -> u64) -> Result<u64, Divergence> {
        if !self.timed {
            return Ok(self.clock.plain(now()));
        }
        self.clock(Which::Monotonic, now)
    }

    /// In a replay: the word of the call that is to come now.
    fn dictated(&mut self, asked: &std::fmt::Arguments<'_>) -> Result<(u64, u64), Divergence> {
        if !self.left.is_empty() {
            return Err(self.differs("other calls in a row", asked));
        }
        if self.alone && self.calls == 0 && self.posts.is_empty() {
            let why = format!("{asked} was called, and what it came to is not recorded");
            replay_end::end_of_log(self.seg, self.ctl, &why);
        }
        let Some(next) = self.next_call() else {
            // A recorded match was posted before any call that is not recorded yet.
            let left = format!("{} more matched receives", self.posts.len());
            return Err(self.differs(&left, asked));
        };
        self.events += 1;
        self.note_replayed();
        Ok(next)
    }

    fn differs(&self, recorded: &str, asked: &std::fmt::Arguments<'_>) -> Divergence {
        let mut asked = asked.to_string();
        if recorded.contains(WTIME) || asked.contains(WTIME) || self.left.ticks > 0 {
            asked.push_str(WTIME_HINT);
        }
        Divergence::event(self.rank, self.events, recorded, &asked)
    }

    /// In a replay: the first call of a run is made.
    fn begin_run(&mut self, at: u64, word: u64, made: Run) {
        self.run = Some((at, made));
        self.left = Run::of(word).after(made);
        self.moved(at + 1);
    }

    fn note_replayed(&self) {
        self.ctl.replayed.store(self.ctl.replayed.load(Relaxed) + 1, Relaxed);
    }

    /// Advances the position; posts in between stay in their map.
    fn moved(&mut self, to: u64) {
        self.pos = to;
        if !self.replaying() {
            self.pos = self.ctl.det_tail.load(Relaxed);
        }
        self.publish_pos();
    }

    fn publish_pos(&self) {
        let tail = self.ctl.det_tail.load(Relaxed);
        let growing = self.windows.growing.filter(|at| at + 1 == tail);
        let at = self.run.map(|(at, _)| at).or(growing).map_or(self.pos, |at| at.min(self.pos));
        self.ctl.det_pos.store(at, Relaxed);
    }

    /// What the receive posted as number `post` is to do.
    pub fn ask_post(&mut self, post: u64, wildcard: bool) -> Post {
        if !self.on || !self.replaying() {
            return Post::Free;
        }
        match self.posts.remove(&post) {
            Some(known) => {
                self.events += 1;
                self.note_replayed();
                if !self.replaying() {
                    self.moved(self.pos);
                }
                known
            }
            None if wildcard => Post::Held,
            None => Post::Free,
        }
    }

    /// What a receive that the program has freed, recorded as number `id`, is to do at the end of
    /// the program's call number `call`.
    pub fn ask_freed(&mut self, id: u64, call: u64) -> Freed {
        if !self.on || !self.replaying() {
            return Freed::Live;
        }
        if self.freed.get(&id) != Some(&call) {
            return Freed::Later;
        }
        self.freed.remove(&id);
        self.events += 1;
        self.note_replayed();
        self.moved(self.pos);
        Freed::Now
    }

    /// Records that it went into place.
    pub fn record_freed(&mut self, id: u64, call: u64) {
        if self.on {
            self.close_run();
            self.push(&[K_FREED << KIND_SHIFT | (call & VALUE), id]);
        }
    }

    /// After `rebuild`: of freed receives those count that are `ahead`, by number and call.
    pub fn forget_freed(&mut self, ahead: impl Fn(u64, u64) -> bool) {
        self.freed.retain(|id, call| ahead(*id, *call));
        if !self.replaying() {
            self.moved(self.pos);
        }
    }

    /// Records a fruitless call.
    #[inline]
    pub fn fruitless(&mut self) {
        if self.on {
            self.grow(Run { fruitless: 1, ticks: 0 });
        }
    }

    /// Records one more call of the open run. Whether that took a word.
    #[inline(always)]
    fn grow(&mut self, by: Run) -> bool {
        if let Some((at, made)) = &mut self.run
            && made.fruitless < MOST
            && made.ticks < MOST
            // In a replay what was matched may have come behind it.
            && *at + 1 == self.ctl.det_tail.load(Relaxed)
        {
            made.fruitless += by.fruitless;
            made.ticks += by.ticks;
            self.windows.told = true;
            self.seg.det(self.rank, *at).store(made.word(), Release);
            return false;
        }
        self.open_run(by);
        true
    }

    /// Records the first call of a run that follows the one that is open.
    #[cold]
    fn open_run(&mut self, by: Run) {
        self.close_run();
        let at = self.ctl.det_tail.load(Relaxed);
        self.push(&[by.word()]);
        self.run = Some((at, by));
        self.publish_pos();
    }

    /// Records what a call came to.
    pub fn record(&mut self, call: Call, outcome: &Outcome) {
        if !self.on {
            return;
        }
        let head = |kind: u64, value: u64| kind << KIND_SHIFT | (call as u64) << CALL_SHIFT | value;
        self.run = None;
        match outcome {
            Outcome::One(value) => self.push(&[head(K_ONE, u64::from(*value))]),
            Outcome::Many(many) => {
                let mut words = vec![head(K_MANY, many.len() as u64)];
                words.extend(many.iter().map(|i| u64::from(*i)));
                self.push(&words);
            }
        }
    }

    /// Records that the wildcard receive posted as number `post` matched a message from `src`.
    pub fn record_match(&mut self, post: u64, src: u32) {
        if self.on {
            self.close_run();
            self.push(&[K_MATCHED << KIND_SHIFT | u64::from(src), post]);
        }
    }

    /// Records that the receive posted as number `post` was cancelled before it matched.
    pub fn record_cancelled(&mut self, post: u64) {
        if self.on {
            self.close_run();
            self.push(&[K_CANCELLED << KIND_SHIFT, post]);
        }
    }

    /// A run stays open only while its word is the log's last: what follows starts a new one.
    fn close_run(&mut self) {
        self.run = None;
    }

    fn push(&mut self, words: &[u64]) {
        self.windows.told = true;
        if self.is_given_up() {
            // There is room for no more, and what is there may still be on its way to replicas.
            return;
        }
        let tail = self.ctl.det_tail.load(Relaxed);
        for (i, word) in words.iter().enumerate() {
            self.seg.det(self.rank, tail + i as u64).store(*word, Relaxed);
        }
        self.ctl.det_tail.store(tail + words.len() as u64, Release);
        if !self.replaying() {
            self.pos = tail + words.len() as u64;
        }
        self.publish_pos();
    }

    /// Words in the log.
    #[cfg(test)]
    pub(crate) fn end_of_log(&self) -> u64 {
        self.ctl.det_tail.load(Relaxed)
    }
}
