//! Who checkpoints when: all ranks once soon after the start, then staggered over the interval;
//! requests before their turn.
//!
//! Pure: time comes in as milliseconds. Kept true: at most `MAX_RUNNING` checkpoints are under
//! way, never two of one rank; every live rank gets its turn; a request is served once, after the
//! moment it was made; however short the interval, the job has half of the time without any.

use std::collections::VecDeque;

/// Checkpoints under way at one time.
pub const MAX_RUNNING: usize = 1;

#[derive(Debug, Clone, Copy)]
struct Slot {
    due_ms: u64,
    /// Its first turn in the stagger.
    turn_ms: u64,
    live: bool,
    busy: bool,
    /// When its last checkpoint began.
    begun_ms: u64,
}

/// The order of checkpoints on one node.
#[derive(Debug, Clone)]
pub struct Scheduler {
    every_ms: u64,
    slots: Vec<Slot>,
    asked: VecDeque<u32>,
    running: usize,
    /// Until then only requests are served.
    rest_until_ms: u64,
}

impl Scheduler {
    /// `every_ms` = 0: only on request. `first_ms`: when all have been checkpointed once, at most
    /// `every_ms`.
    pub fn new(ranks: u32, every_ms: u64, first_ms: u64, now_ms: u64) -> Self {
        let spread = |over: u64, r| now_ms + over * (r + 1) / u64::from(ranks);
        let slots = (0..u64::from(ranks))
            .map(|r| Slot {
                due_ms: spread(first_ms.min(every_ms), r),
                turn_ms: spread(every_ms, r),
                live: false,
                busy: false,
                begun_ms: 0,
            })
            .collect();
        Scheduler { every_ms, slots, asked: VecDeque::new(), running: 0, rest_until_ms: 0 }
    }

    /// Whether `rank` has a process that could be checkpointed.
    pub fn set_live(&mut self, rank: u32, live: bool) {
        self.slots[rank as usize].live = live;
        if !live {
            self.asked.retain(|r| *r != rank);
        }
    }

    /// Asks for a checkpoint of `rank` out of turn. False: it has no process.
    pub fn request(&mut self, rank: u32) -> bool {
        if !self.slots[rank as usize].live {
            return false;
        }
        if !self.asked.contains(&rank) {
            self.asked.push_back(rank);
        }
        true
    }

    /// Whether a request of `rank` waits for its turn.
    pub fn requested(&self, rank: u32) -> bool {
        self.asked.contains(&rank)
    }

    pub fn busy(&self, rank: u32) -> bool {
        self.slots[rank as usize].busy
    }

    pub fn idle(&self) -> bool {
        self.running == 0
    }

    /// The rank to checkpoint now, if any; it counts as under way until `finished`.
    pub fn pick(&mut self, now_ms: u64) -> Option<u32> {
        if self.running >= MAX_RUNNING {
            return None;
        }
        let asked = self.asked.iter().position(|r| !self.slots[*r as usize].busy);
        let rank = match asked {
            Some(i) => self.asked.remove(i)?,
            None => self.longest_due(now_ms)?,
        };
        let slot = &mut self.slots[rank as usize];
        slot.busy = true;
        slot.begun_ms = now_ms;
        slot.due_ms = if now_ms < slot.turn_ms {
            slot.turn_ms
        } else {
            now_ms.max(slot.due_ms).saturating_add(self.every_ms)
        };
        self.running += 1;
        Some(rank)
    }

    fn longest_due(&self, now_ms: u64) -> Option<u32> {
        if self.every_ms == 0 || now_ms < self.rest_until_ms {
            return None;
        }
        let due = |s: &&(usize, &Slot)| s.1.live && !s.1.busy && s.1.due_ms <= now_ms;
        let all: Vec<(usize, &Slot)> = self.slots.iter().enumerate().collect();
        all.iter().filter(due).min_by_key(|s| s.1.due_ms).map(|s| s.0 as u32)
    }

    /// The checkpoint of `rank` is over, well or badly.
    pub fn finished(&mut self, rank: u32, now_ms: u64) {
        let slot = &mut self.slots[rank as usize];
        if slot.busy {
            slot.busy = false;
            self.running -= 1;
            // As long as it took: on a slow node the ranks would else hardly get on.
            self.rest_until_ms = now_ms.saturating_add(now_ms.saturating_sub(slot.begun_ms));
        }
        // A checkpoint that took longer than the interval does not call for the next at once.
        slot.due_ms = slot.due_ms.max(now_ms.saturating_add(self.every_ms / 4));
    }

    /// When `pick` should be asked next, if nothing else happens before.
    pub fn next_due_ms(&self) -> Option<u64> {
        if self.every_ms == 0 || self.running >= MAX_RUNNING {
            return None;
        }
        let due = self.slots.iter().filter(|s| s.live && !s.busy).map(|s| s.due_ms).min();
        due.map(|at| at.max(self.rest_until_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn half_of_the_time_is_the_jobs() {
        let mut s = Scheduler::new(4, 10, 10, 0);
        (0..4).for_each(|r| s.set_live(r, true));
        let (mut now, mut busy) = (0, 0);
        while now < 100_000 {
            match s.pick(now) {
                Some(rank) => {
                    let takes = 50 + u64::from(rank) * 20;
                    (now, busy) = (now + takes, busy + takes);
                    s.finished(rank, now);
                }
                None => now = s.next_due_ms().unwrap().max(now + 1),
            }
        }
        assert!(busy * 2 <= now + 200 && busy * 2 + 2000 > now, "{busy} of {now}");
    }

    #[test]
    fn turns_are_spread_over_the_interval() {
        let mut s = Scheduler::new(4, 1000, 1000, 0);
        (0..4).for_each(|r| s.set_live(r, true));
        let mut turns = Vec::new();
        for now in 0..=2000 {
            if let Some(r) = s.pick(now) {
                turns.push((now, r));
                s.finished(r, now);
            }
        }
        let first: Vec<_> = (1..=4).map(|k| (k * 250, (k - 1) as u32)).collect();
        let second: Vec<_> = first.iter().map(|(t, r)| (t + 1000, *r)).collect();
        assert_eq!(turns, [first, second].concat());
    }

    #[test]
    fn a_request_goes_first_and_only_once() {
        let mut s = Scheduler::new(3, 0, 0, 0);
        (0..3).for_each(|r| s.set_live(r, true));
        assert_eq!(s.pick(1_000_000), None);
        assert!(s.request(2) && s.request(2) && s.request(1));
        assert_eq!(s.pick(0), Some(2));
        assert_eq!(s.pick(0), None);
        s.request(2);
        s.finished(2, 5);
        assert_eq!(s.pick(5), Some(1));
        s.finished(1, 6);
        assert_eq!(s.pick(6), Some(2));
        s.finished(2, 7);
        assert_eq!(s.pick(1 << 40), None);
    }

    #[test]
    fn a_rank_without_process_is_not_picked() {
        let mut s = Scheduler::new(2, 10, 10, 0);
        s.set_live(1, true);
        assert!(!s.request(0));
        assert_eq!(s.pick(100), Some(1));
        s.set_live(1, false);
        s.finished(1, 100);
        assert_eq!(s.pick(10_000), None);
        assert_eq!(s.next_due_ms(), None);
    }

    #[test]
    fn no_rank_starves_and_none_runs_twice() {
        for seed in 0..300 {
            let mut random = Random::new(seed);
            let ranks = 1 + random.below(6) as u32;
            let every = 20 + random.below(400);
            let mut s = Scheduler::new(ranks, every, every, 0);
            (0..ranks).for_each(|r| s.set_live(r, true));
            let mut done = vec![0u64; ranks as usize];
            let mut under_way: Vec<(u64, u32)> = Vec::new();
            for now in 0..(every + 40) * 40 {
                under_way.retain(|(end, r)| {
                    if *end <= now {
                        s.finished(*r, now);
                    }
                    *end > now
                });
                if random.below(500) == 0 {
                    s.request(random.below(u64::from(ranks)) as u32);
                }
                if let Some(r) = s.pick(now) {
                    assert!(under_way.iter().all(|(_, other)| *other != r), "seed {seed}");
                    under_way.push((now + 1 + random.below(20), r));
                    done[r as usize] += 1;
                }
                assert!(under_way.len() <= MAX_RUNNING, "seed {seed}");
            }
            let (least, most) = (done.iter().min(), done.iter().max());
            assert!(least.is_some_and(|n| *n >= 5), "seed {seed}: {done:?}");
            assert!(most.zip(least).is_some_and(|(m, l)| m <= &(l * 4 + 40)), "seed {seed}");
        }
    }

    #[test]
    fn all_have_their_first_turn_soon_and_the_next_in_the_stagger() {
        let mut s = Scheduler::new(4, 60_000, 1000, 0);
        (0..4).for_each(|r| s.set_live(r, true));
        let mut turns = Vec::new();
        for now in 0..=120_000 {
            if let Some(r) = s.pick(now) {
                turns.push((now, r));
                s.finished(r, now);
            }
        }
        let soon = (1..=4).map(|k| (k * 250, k as u32 - 1));
        // Not sooner than a quarter of the interval after the first.
        let later = [15_250, 30_000, 45_000, 60_000, 75_250, 90_000, 105_000, 120_000];
        let later = later.into_iter().zip((0..4).cycle());
        assert_eq!(turns, soon.chain(later).collect::<Vec<_>>());
    }
}
