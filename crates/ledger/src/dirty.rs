//! Which streams between nodes have news for the links: two levels of bits and a bell.
//!
//! A rank sets the bit of a stream, then that of the word it stands in (the summary); the thread
//! that sends takes the summary first, then the words. So a bit is never left behind: if the rank
//! saw the summary's bit already set, the thread has yet to take the word. Only a rank that is
//! killed between its steps can leave news unannounced; its successor repeats them, and the daemon
//! looks at all streams of a rank when it starts or ends.
//!
//! Sleeping is as in `channel::waiting`: the sleeper announces itself, then looks once more.
//! `channel/tests/loom_models.rs` has the model of both.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;
use std::time::Duration;

use crate::futex;
use crate::segment::Segment;

/// Whether news wake the thread that sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bell {
    /// They go with the next that do.
    Silent,
    /// The receiver may have them already (`datagram`): they wait for the next tick, if there are
    /// any.
    Tick,
    Ring,
}

impl Segment {
    /// Notes that the stream from `src` to `dst` has news, and wakes the thread that sends if
    /// `bell` says so. Call after publishing the news and a full fence.
    pub fn mark_dirty(&self, src: u32, dst: u32, bell: Bell) {
        let bit = self.pair(src, dst);
        let word = self.dirty(bit / 64);
        let mask = 1 << (bit % 64);
        if word.load(Relaxed) & mask == 0 {
            word.fetch_or(mask, SeqCst);
        }
        fence(SeqCst);
        let summary = self.summary(bit / 64 / 64);
        let mask = 1 << (bit / 64 % 64);
        if summary.load(Relaxed) & mask == 0 {
            summary.fetch_or(mask, SeqCst);
        }
        let header = self.header();
        if bell == Bell::Ring {
            header.link_urgent.store(1, Relaxed);
        }
        fence(SeqCst);
        let ring = match bell {
            Bell::Silent => false,
            Bell::Tick => header.link_ticks.load(Relaxed) == 0,
            Bell::Ring => true,
        };
        if ring {
            self.ring_if_asleep();
        }
    }

    /// Wakes the thread that sends if it sleeps. Call after a full fence.
    pub fn ring_if_asleep(&self) {
        if self.header().link_asleep.load(Relaxed) != 0 {
            self.ring_links();
        }
    }

    /// Wakes the thread that sends.
    #[cold]
    pub fn ring_links(&self) {
        let bell = &self.header().link_bell;
        bell.fetch_add(1, SeqCst);
        futex::wake(bell);
    }

    /// Takes all news: calls `found` with source and destination of each stream.
    pub fn take_dirty(&self, mut found: impl FnMut(u32, u32)) {
        let ranks = u64::from(self.geometry().ranks);
        for (s, word) in self.taken(0..self.geometry().summary_words(), true) {
            for at in bits(word).map(|b| s * 64 + b) {
                if at >= self.geometry().dirty_words() {
                    continue;
                }
                for (w, word) in self.taken(at..at + 1, false) {
                    for pair in bits(word).map(|b| w * 64 + b).filter(|p| *p < ranks * ranks) {
                        found((pair / ranks) as u32, (pair % ranks) as u32);
                    }
                }
            }
        }
    }

    /// Words of one level, emptied; only those with bits.
    fn taken(
        &self,
        range: std::ops::Range<u64>,
        summary: bool,
    ) -> impl Iterator<Item = (u64, u64)> {
        range.filter_map(move |n| {
            let word = if summary { self.summary(n) } else { self.dirty(n) };
            if word.load(Acquire) == 0 {
                return None;
            }
            let taken = word.swap(0, SeqCst);
            // What was published before the bit was found set is seen from here on.
            fence(SeqCst);
            Some((n, taken))
        })
    }

    /// Announces that the thread that sends is about to sleep. Returns the bell's value to sleep
    /// on, or `None` if there is news.
    pub fn arm_links(&self) -> Option<u32> {
        let header = self.header();
        // Who still counts on ticks has marked its news before.
        header.link_ticks.store(0, SeqCst);
        let seen = header.link_bell.load(SeqCst);
        header.link_asleep.store(1, SeqCst);
        fence(SeqCst);
        let words = 0..self.geometry().summary_words();
        if words.into_iter().any(|n| self.summary(n).load(Acquire) != 0) {
            self.disarm_links();
            return None;
        }
        Some(seen)
    }

    /// Announces that the thread that sends is about to sleep for one tick: news that are not
    /// urgent can wait for so long. Returns the bell's value to sleep on, or `None` if there is
    /// urgent news.
    pub fn arm_links_for_a_tick(&self) -> Option<u32> {
        let header = self.header();
        header.link_ticks.store(1, SeqCst);
        let seen = header.link_bell.load(SeqCst);
        header.link_asleep.store(1, SeqCst);
        fence(SeqCst);
        if header.link_urgent.swap(0, SeqCst) != 0 {
            self.disarm_links();
            return None;
        }
        Some(seen)
    }

    /// Sleeps until the bell rings, at most `limit`.
    pub fn sleep_links(&self, seen: u32, limit: Duration) {
        futex::wait(&self.header().link_bell, seen, limit);
        self.disarm_links();
    }

    pub fn disarm_links(&self) {
        self.header().link_asleep.store(0, Relaxed);
    }
}

/// Numbers of the bits that are set.
fn bits(mut word: u64) -> impl Iterator<Item = u64> {
    std::iter::from_fn(move || {
        let bit = word.trailing_zeros();
        word &= word.checked_sub(1)?;
        Some(u64::from(bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segment::{FT_LOGGED, Geometry};

    #[test]
    fn what_was_marked_is_taken_once() {
        let geo = Geometry { ranks: 100, chunk_bytes: 4096, pool_chunks: 200, det_words: 1024 };
        let (_, seg) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
        let marked = [(0, 0), (0, 63), (0, 64), (41, 7), (99, 99)];
        marked.iter().for_each(|(s, d)| seg.mark_dirty(*s, *d, Bell::Ring));
        seg.mark_dirty(41, 7, Bell::Silent);
        assert!(seg.arm_links().is_none());
        let mut found = Vec::new();
        seg.take_dirty(|s, d| found.push((s, d)));
        assert_eq!(found, marked);
        let seen = seg.arm_links().unwrap();
        seg.mark_dirty(1, 2, Bell::Ring);
        assert_ne!(seg.header().link_bell.load(Relaxed), seen, "a sleeper is woken");
        seg.disarm_links();
        seg.take_dirty(|s, d| assert_eq!((s, d), (1, 2)));
        seg.take_dirty(|_, _| panic!("nothing is left"));
    }

    #[test]
    fn early_news_wait_for_a_tick_if_there_are_ticks() {
        let geo = Geometry { ranks: 4, chunk_bytes: 4096, pool_chunks: 8, det_words: 1024 };
        let (_, seg) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
        let bell = || seg.header().link_bell.load(Relaxed);
        let seen = seg.arm_links().unwrap();
        seg.mark_dirty(0, 1, Bell::Tick);
        assert_ne!(bell(), seen, "there are no ticks");
        seg.disarm_links();
        let seen = seg.arm_links_for_a_tick().unwrap();
        seg.mark_dirty(0, 1, Bell::Tick);
        assert_eq!(bell(), seen);
        seg.mark_dirty(0, 2, Bell::Ring);
        assert_ne!(bell(), seen);
        seg.disarm_links();
        assert!(seg.arm_links_for_a_tick().is_none(), "urgent");
        assert!(seg.arm_links().is_none(), "the last tick over, nothing is left behind");
    }
}
