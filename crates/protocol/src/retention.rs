//! Which checkpoints of a rank are kept, which image files these need, and what of the logs.
//!
//! Kept true: the newest two checkpoints stay, the start of the program counting as the first;
//! one that is pinned, as all ranks may go back to it together, stays until it is let go; nothing a
//! kept checkpoint needs is ever given up (the floor is at or below every kept point,
//! position by position; the files of earlier generations that its image refers to stay); files
//! that none needs are named for removal once; the floor never goes back, but with all ranks.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// How many checkpoints of a rank are kept.
pub const KEPT: usize = 2;

/// Where a rank stood at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Point {
    /// For each source: position of the oldest byte the rank may still read.
    pub need: Vec<u64>,
    /// Position in its determinant log.
    pub det_pos: u64,
    /// Bytes written to standard output and standard error.
    pub output: [u64; 2],
}

impl Point {
    /// The start of a program in a job of `ranks` ranks.
    pub fn start(ranks: u32) -> Self {
        Point { need: vec![0; ranks as usize], det_pos: 0, output: [0; 2] }
    }

    fn lower(&mut self, other: &Point) {
        for (a, b) in self.need.iter_mut().zip(&other.need) {
            *a = (*a).min(*b);
        }
        self.det_pos = self.det_pos.min(other.det_pos);
        for (a, b) in self.output.iter_mut().zip(&other.output) {
            *a = (*a).min(*b);
        }
    }

    fn raise(&mut self, other: &Point) {
        for (a, b) in self.need.iter_mut().zip(&other.need) {
            *a = (*a).max(*b);
        }
        self.det_pos = self.det_pos.max(other.det_pos);
        for (a, b) in self.output.iter_mut().zip(&other.output) {
            *a = (*a).max(*b);
        }
    }
}

/// A checkpoint that can be gone back to; generation 0 is the start of the program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub generation: u32,
    pub point: Point,
}

/// The checkpoints of one rank.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Retention {
    /// Oldest first.
    kept: Vec<Kept>,
    /// Those that all ranks may go back to together, oldest first. The logs do not go back that
    /// far: what is needed of them was stored with these.
    pinned: Vec<Kept>,
    next: u32,
    floor: Point,
    /// Image files that are there, by generation, each with the earlier ones that it refers to.
    files: BTreeMap<u32, Vec<u32>>,
}

impl Retention {
    pub fn new(ranks: u32) -> Self {
        let start = Point::start(ranks);
        Retention {
            kept: vec![Kept { generation: 0, point: start.clone() }],
            pinned: Vec::new(),
            next: 1,
            floor: start,
            files: BTreeMap::new(),
        }
    }

    /// The program starts anew: only its start is kept, and numbers go on. All files are removed.
    pub fn restart(&mut self) {
        self.files.clear();
        self.pinned.clear();
        let start = Point::start(self.floor.need.len() as u32);
        self.kept = vec![Kept { generation: 0, point: start.clone() }];
        self.floor = start;
    }

    /// Only the newest checkpoint is kept.
    pub fn only_newest(&mut self) {
        let surplus = self.kept.len().saturating_sub(1);
        self.kept.drain(..surplus);
        self.pinned.clear();
        self.unneeded();
    }

    /// The number of a checkpoint that all ranks take together, of which this is not the least
    /// that may be had.
    pub fn skip_to(&mut self, generation: u32) {
        self.next = self.next.max(generation.saturating_add(1));
    }

    /// All ranks may go back to this checkpoint, which is kept: it stays until it is let go.
    pub fn pin(&mut self, generation: u32) {
        let kept = self.kept.iter().find(|k| k.generation == generation).cloned();
        self.pinned.extend(kept);
    }

    /// They do not any more. Returns the generations whose files are to be removed.
    pub fn unpin(&mut self, generation: u32) -> Vec<u32> {
        self.pinned.retain(|k| k.generation != generation);
        self.unneeded()
    }

    /// Whether all ranks may go back to this checkpoint of this one.
    pub fn is_pinned(&self, generation: u32) -> bool {
        self.pinned.iter().any(|k| k.generation == generation)
    }

    /// All ranks go back to this pinned checkpoint: of what came later nothing is kept, and logs
    /// begin there. Numbers go on. Returns the generations whose files are to be removed.
    pub fn go_back(&mut self, generation: u32) -> Vec<u32> {
        self.pinned.retain(|k| k.generation <= generation);
        let Some(kept) = self.pinned.iter().find(|k| k.generation == generation).cloned() else {
            return Vec::new();
        };
        self.floor = kept.point.clone();
        self.kept = vec![kept];
        self.unneeded()
    }

    /// The rank is never brought back alone any more. Returns the generations whose files are to
    /// be removed.
    pub fn end(&mut self) -> Vec<u32> {
        self.kept.clear();
        self.unneeded()
    }

    /// What was kept at an earlier time is kept again, and nothing else. Numbers go on.
    pub fn go_back_to(&mut self, earlier: &Retention) {
        let next = self.next.max(earlier.next);
        *self = Retention { next, ..earlier.clone() };
    }

    /// The number of a checkpoint about to be taken.
    pub fn begin(&mut self) -> u32 {
        let generation = self.next;
        self.next = self.next.saturating_add(1);
        generation
    }

    /// A checkpoint is complete on disk; its image refers to files of the generations `needs`.
    /// Returns the generations whose files are to be removed; afterwards the logs may be trimmed to
    /// `floor`.
    pub fn complete(&mut self, generation: u32, point: Point, needs: Vec<u32>) -> Vec<u32> {
        debug_assert!(self.kept.iter().all(|k| k.generation < generation));
        debug_assert!(needs.iter().all(|n| self.files.contains_key(n)));
        self.kept.push(Kept { generation, point });
        self.files.insert(generation, needs);
        let surplus = self.kept.len().saturating_sub(KEPT);
        self.kept.drain(..surplus);
        let mut low = self.kept[0].point.clone();
        for kept in &self.kept[1..] {
            low.lower(&kept.point);
        }
        self.floor.raise(&low);
        self.unneeded()
    }

    /// An image turned out to be unusable. Returns the generations whose files are to be removed.
    pub fn damaged(&mut self, generation: u32) -> Vec<u32> {
        self.kept.retain(|k| k.generation != generation);
        self.pinned.retain(|k| k.generation != generation);
        self.unneeded()
    }

    /// Takes the files that no kept checkpoint needs off the list.
    fn unneeded(&mut self) -> Vec<u32> {
        let mut needed = BTreeSet::new();
        for generation in self.kept.iter().chain(&self.pinned).map(|k| k.generation) {
            needed.insert(generation);
            needed.extend(self.files.get(&generation).into_iter().flatten().copied());
        }
        let removed: Vec<u32> =
            self.files.keys().copied().filter(|file| !needed.contains(file)).collect();
        self.files.retain(|file, _| needed.contains(file));
        removed
    }

    /// The earlier generations whose files an image refers to.
    pub fn needs(&self, generation: u32) -> &[u32] {
        self.files.get(&generation).map_or(&[], Vec::as_slice)
    }

    /// Generations whose image files are there.
    pub fn files(&self) -> Vec<u32> {
        self.files.keys().copied().collect()
    }

    /// What to go back to, best first. Empty: this rank cannot be recovered alone.
    pub fn newest_first(&self) -> impl Iterator<Item = &Kept> {
        self.kept.iter().rev()
    }

    pub fn newest(&self) -> Option<&Kept> {
        self.kept.last()
    }

    /// Positions before which nothing is needed any more.
    pub fn floor(&self) -> &Point {
        &self.floor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Point {
        Point { need: vec![n, n * 2], det_pos: n * 3, output: [n, n] }
    }

    #[test]
    fn what_was_saved_is_gone_back_to() {
        let mut keep = Retention::new(2);
        for n in 1..=3 {
            let generation = keep.begin();
            keep.complete(generation, at(n * 10), vec![]);
        }
        let mut saved = keep.clone();
        saved.only_newest();
        assert_eq!((saved.files(), saved.newest_first().count()), (vec![3], 1));
        assert_eq!(saved.floor(), keep.floor());
        let generation = keep.begin();
        keep.complete(generation, at(40), vec![3]);
        keep.go_back_to(&saved);
        assert_eq!((keep.files(), keep.begin()), (vec![3], 5));
    }

    #[test]
    fn the_start_counts_as_the_first_checkpoint() {
        let mut keep = Retention::new(2);
        let g1 = keep.begin();
        assert_eq!(keep.complete(g1, at(10), vec![]), Vec::<u32>::new());
        assert_eq!(*keep.floor(), Point::start(2));
        let g2 = keep.begin();
        assert_eq!(keep.complete(g2, at(20), vec![]), Vec::<u32>::new());
        assert_eq!(*keep.floor(), at(10));
        let g3 = keep.begin();
        assert_eq!(keep.complete(g3, at(30), vec![]), [g1]);
        assert_eq!(*keep.floor(), at(20));
    }

    #[test]
    fn a_damaged_image_leaves_the_one_before() {
        let mut keep = Retention::new(2);
        for n in 1..=3 {
            let g = keep.begin();
            keep.complete(g, at(n * 10), vec![]);
        }
        assert_eq!(keep.damaged(3), [3]);
        assert_eq!(keep.newest().map(|k| k.generation), Some(2));
        assert_eq!(keep.damaged(2), [2]);
        assert!(keep.newest().is_none() && keep.files().is_empty());
    }

    #[test]
    fn a_pinned_checkpoint_stays_until_it_is_let_go() {
        let mut keep = Retention::new(2);
        let take = |keep: &mut Retention, needs: &[u32]| {
            let generation = keep.begin();
            keep.complete(generation, at(u64::from(generation) * 10), needs.to_vec())
        };
        take(&mut keep, &[]);
        take(&mut keep, &[1]);
        keep.pin(2);
        assert_eq!(take(&mut keep, &[]), [0u32; 0]);
        assert_eq!(take(&mut keep, &[3]), [0u32; 0], "2 is pinned, and needs 1");
        assert_eq!(keep.newest_first().map(|k| k.generation).collect::<Vec<_>>(), [4, 3]);
        assert_eq!(*keep.floor(), at(30), "logs are trimmed as without it");
        let mut back = keep.clone();
        assert_eq!(back.go_back(2), [3, 4]);
        assert_eq!((back.files(), back.floor().clone()), (vec![1, 2], at(20)));
        assert_eq!(back.newest_first().map(|k| k.generation).collect::<Vec<_>>(), [2]);
        assert!(back.is_pinned(2) && back.begin() == 5);
        let mut ended = keep.clone();
        assert_eq!(ended.end(), [3, 4]);
        assert_eq!(ended.unpin(2), [1, 2]);
        assert_eq!(keep.damaged(2), [1, 2]);
        assert!(!keep.is_pinned(2) && keep.go_back(2).is_empty());
    }

    #[test]
    fn ranks_that_take_one_together_have_one_number_for_it() {
        let mut keep = Retention::new(1);
        keep.begin();
        keep.skip_to(7);
        assert_eq!(keep.begin(), 8);
        keep.skip_to(3);
        assert_eq!(keep.begin(), 9);
    }

    #[test]
    fn an_attempt_that_fails_uses_its_number_up() {
        let mut keep = Retention::new(1);
        keep.begin();
        assert_eq!(keep.begin(), 2);
    }

    #[test]
    fn files_that_a_kept_image_needs_stay() {
        let mut keep = Retention::new(1);
        let mut take = |needs: &[u32]| {
            let g = keep.begin();
            let point = Point { need: vec![u64::from(g)], det_pos: 0, output: [0; 2] };
            keep.complete(g, point, needs.to_vec())
        };
        assert_eq!(take(&[]), [0u32; 0]);
        assert_eq!(take(&[1]), [0u32; 0]);
        assert_eq!(take(&[1, 2]), [0u32; 0], "1 is not kept, but needed twice");
        assert_eq!(take(&[2, 3]), [0u32; 0], "3 still needs 1");
        assert_eq!(take(&[]), [1], "4 needs 2 and 3");
        assert_eq!(take(&[5]), [2, 3, 4]);
    }

    fn files_are_those_needed(keep: &Retention, disk: &BTreeMap<u32, Vec<u32>>, seed: u64) {
        assert_eq!(keep.files(), disk.keys().copied().collect::<Vec<u32>>());
        let mut needed = BTreeSet::new();
        let all = keep.newest_first().chain(&keep.pinned);
        for kept in all.filter(|k| k.generation > 0) {
            needed.insert(kept.generation);
            needed.extend(disk[&kept.generation].iter().copied());
        }
        assert!(needed.iter().copied().eq(disk.keys().copied()), "seed {seed}: files");
    }

    /// Random histories: checkpoints at random positions at or after the one restored, failures,
    /// damages, pins, returns to what is pinned. The floor stays below everything that may be
    /// restored alone, and never falls but with a return; files are there exactly as long as a kept
    /// or pinned image needs them.
    #[test]
    fn nothing_that_may_be_restored_is_given_up() {
        for seed in 0..2000u64 {
            let mut random = crate::testing::Random::new(seed);
            let mut keep = Retention::new(2);
            let mut position = 0;
            let mut floor = keep.floor().clone();
            let mut disk: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
            let gone = |disk: &mut BTreeMap<u32, Vec<u32>>, files: Vec<u32>| {
                let known = |file| disk.remove(file).is_some();
                assert!(files.iter().all(known), "seed {seed}: removed twice");
            };
            for _ in 0..40 {
                match random.below(8) {
                    5 => {
                        let newest = keep.newest().map_or(0, |k| k.generation);
                        if newest > 0 && !keep.is_pinned(newest) {
                            keep.pin(newest);
                        }
                    }
                    6 => {
                        let oldest = keep.pinned.first().map_or(0, |k| k.generation);
                        gone(&mut disk, keep.unpin(oldest));
                    }
                    7 if random.below(4) == 0 => {
                        let Some(to) = keep.pinned.last().cloned() else { continue };
                        gone(&mut disk, keep.go_back(to.generation));
                        assert!(*keep.newest().unwrap() == to && *keep.floor() == to.point);
                        position = to.point.need[0];
                        floor = to.point;
                    }
                    0 => {
                        let Some(newest) = keep.newest() else { break };
                        position = newest.point.need[0];
                    }
                    1 => {
                        let newest = keep.newest().map_or(0, |k| k.generation);
                        gone(&mut disk, keep.damaged(newest));
                    }
                    2 => {
                        keep.begin();
                    }
                    _ => {
                        position += random.below(50);
                        let g = keep.begin();
                        // An image refers to any files of the one before it.
                        let newest = keep.newest().map_or(0, |k| k.generation);
                        let mut needs: Vec<u32> = disk.get(&newest).cloned().unwrap_or_default();
                        needs.extend((newest > 0).then_some(newest));
                        needs.retain(|_| random.below(3) > 0);
                        disk.insert(g, needs.clone());
                        gone(&mut disk, keep.complete(g, at(position), needs));
                    }
                }
                files_are_those_needed(&keep, &disk, seed);
                for kept in keep.newest_first() {
                    let mut low = kept.point.clone();
                    low.lower(keep.floor());
                    assert_eq!(low, *keep.floor(), "seed {seed}: floor above a kept point");
                }
                floor.lower(keep.floor());
                assert!(keep.kept.len() <= KEPT);
                let mut raised = keep.floor().clone();
                raised.raise(&floor);
                assert_eq!(raised, *keep.floor(), "seed {seed}: floor went back");
                floor = keep.floor().clone();
            }
        }
    }
}
