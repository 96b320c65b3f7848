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
//!   run of fruitless calls is one word whose count grows in place.
//! - *posts*, by the number of the posted receive: which source a wildcard matched, or that the
//!   receive was cancelled. They are known at posting in a replay, however late they happened.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::divergence::Divergence;
use crate::end;
use crate::segment::{FT_DETERMINANTS, FT_REPLAY, RankCtl, Segment};

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

const KIND_SHIFT: u32 = 56;
const CALL_SHIFT: u32 = 48;
const VALUE: u64 = (1 << 48) - 1;
const K_FRUITLESS: u64 = 1;
const K_ONE: u64 = 2;
const K_MANY: u64 = 3;
const K_MATCHED: u64 = 4;
const K_CANCELLED: u64 = 5;
/// Words kept free, so that one MPI call always finds room for what it records.
const RESERVE_WORDS: u64 = 64 * 1024;

/// Whether a word of the log is a run of fruitless calls: the only kind that is changed after it
/// was written, by growing, and only as long as it is the last.
pub const fn is_run(word: u64) -> bool {
    word >> KIND_SHIFT == K_FRUITLESS
}

/// The determinant log of one rank, recording or dictating.
pub struct Door {
    seg: &'static Segment,
    ctl: &'static RankCtl,
    rank: u32,
    on: bool,
    /// The rank is run again alone: what is not recorded is not to be had.
    alone: bool,
    /// Words of the log that this incarnation has passed.
    pos: u64,
    /// The open run of fruitless calls: its word and how many of them this incarnation made.
    run: Option<(u64, u64)>,
    /// Fruitless calls still to be repeated of the open run.
    run_left: u64,
    calls: VecDeque<(u64, u8, Outcome)>,
    posts: HashMap<u64, Post>,
    /// Calls and posts passed, for reports.
    events: u64,
}

impl Door {
    pub fn new(seg: &'static Segment, rank: u32) -> Self {
        let mut door = Door {
            seg,
            ctl: seg.rank(rank),
            rank,
            on: seg.header().ft.load(Relaxed) & FT_DETERMINANTS != 0,
            alone: false,
            pos: 0,
            run: None,
            run_left: 0,
            calls: VecDeque::new(),
            posts: HashMap::new(),
            events: 0,
        };
        door.rebuild();
        door
    }

    /// Reads what is recorded beyond this incarnation's position, after a start or restore.
    pub fn rebuild(&mut self) {
        self.calls.clear();
        self.posts.clear();
        self.run_left = 0;
        self.alone = self.seg.header().ft.load(Relaxed) & FT_REPLAY != 0;
        if !self.on {
            return;
        }
        if let Some((at, made)) = self.run {
            self.run_left = (self.word(at) & VALUE).saturating_sub(made);
        }
        let tail = self.ctl.det_tail.load(Acquire);
        let mut at = self.pos;
        while at < tail {
            let word = self.word(at);
            let (call, value) = ((word >> CALL_SHIFT) as u8, word & VALUE);
            let first = at;
            at += 1;
            match word >> KIND_SHIFT {
                K_FRUITLESS => self.calls.push_back((first, 0, Outcome::One(0))),
                K_ONE => self.calls.push_back((first, call, Outcome::One(value as u32))),
                K_MANY => {
                    // No more than there is: a damaged count becomes a divergence, not a crash.
                    let value = value.min(tail - at);
                    let many = (at..at + value).map(|w| self.word(w) as u32).collect();
                    self.calls.push_back((first, call, Outcome::Many(many)));
                    at += value;
                }
                kind => {
                    let post =
                        if kind == K_MATCHED { Post::Source(value as u32) } else { Post::Never };
                    // A receive that matched after it was posted and was never cancelled, or the
                    // reverse: one event a post, the last one counts.
                    self.posts.insert(self.word(at), post);
                    at += 1;
                }
            }
        }
        if self.calls.is_empty() && self.posts.is_empty() && self.run_left == 0 {
            self.pos = tail;
        }
    }

    fn word(&self, at: u64) -> u64 {
        self.seg.det(self.rank, at).load(Relaxed)
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
        self.alone || self.run_left > 0 || !self.calls.is_empty() || !self.posts.is_empty()
    }

    /// Whether an MPI call may start: the log has room for what it might record.
    #[inline]
    pub fn has_room(&self) -> bool {
        !self.on
            || self.ctl.det_tail.load(Relaxed) + RESERVE_WORDS
                < self.ctl.det_trim.load(Acquire) + self.seg.geometry().det_words
    }

    /// What a call of kind `call` is to do.
    pub fn ask(&mut self, call: Call) -> Result<Verdict, Divergence> {
        if !self.on || !self.replaying() {
            return Ok(Verdict::Live);
        }
        if self.run_left > 0 {
            self.run_left -= 1;
            if let Some((_, made)) = &mut self.run {
                *made += 1;
            }
            return Ok(Verdict::Fruitless);
        }
        if self.alone && self.calls.is_empty() && self.posts.is_empty() {
            let why = format!("{call:?} was called, and what it came to is not recorded");
            end::end_of_log(self.seg, self.ctl, &why);
        }
        let Some((at, recorded, outcome)) = self.calls.pop_front() else {
            // A recorded match was posted before any call that is not recorded yet.
            let left = format!("{} more matched receives", self.posts.len());
            return Err(Divergence::event(self.rank, self.events, &left, &format!("{call:?}")));
        };
        self.events += 1;
        self.note_replayed();
        if recorded == 0 {
            self.run = Some((at, 1));
            self.run_left = (self.word(at) & VALUE) - 1;
            self.moved(at + 1);
            return Ok(Verdict::Fruitless);
        }
        self.run = None;
        let words = if let Outcome::Many(m) = &outcome { 1 + m.len() as u64 } else { 1 };
        self.moved(at + words);
        if recorded != call as u8 {
            let name = format!("call kind {recorded} with outcome {outcome:?}");
            return Err(Divergence::event(self.rank, self.events, &name, &format!("{call:?}")));
        }
        Ok(Verdict::Forced(outcome))
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
        let at = self.run.map_or(self.pos, |(at, _)| at.min(self.pos));
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

    /// Records a fruitless call.
    #[inline]
    pub fn fruitless(&mut self) {
        if !self.on {
            return;
        }
        if let Some((at, made)) = &mut self.run {
            let cell = self.seg.det(self.rank, *at);
            *made += 1;
            cell.store(K_FRUITLESS << KIND_SHIFT | *made, Release);
            return;
        }
        let at = self.ctl.det_tail.load(Relaxed);
        self.push(&[K_FRUITLESS << KIND_SHIFT | 1]);
        self.run = Some((at, 1));
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
}
