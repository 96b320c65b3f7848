//! Which checkpoints of a rank are kept, and what of the logs they still need.
//!
//! Kept true: the newest two checkpoints stay, the start of the program counting as the first;
//! nothing a kept checkpoint needs is ever given up (the floor is at or below every kept point,
//! position by position); the floor never goes back.

/// How many checkpoints of a rank are kept.
pub const KEPT: usize = 2;

/// Where a rank stood at a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    pub generation: u32,
    pub point: Point,
}

/// The checkpoints of one rank.
#[derive(Debug, Clone)]
pub struct Retention {
    /// Oldest first.
    kept: Vec<Kept>,
    next: u32,
    floor: Point,
}

impl Retention {
    pub fn new(ranks: u32) -> Self {
        let start = Point::start(ranks);
        Retention {
            kept: vec![Kept { generation: 0, point: start.clone() }],
            next: 1,
            floor: start,
        }
    }

    /// The program starts anew: only its start is kept, and numbers go on.
    pub fn restart(&mut self) {
        let start = Point::start(self.floor.need.len() as u32);
        self.kept = vec![Kept { generation: 0, point: start.clone() }];
        self.floor = start;
    }

    /// The number of a checkpoint about to be taken.
    pub fn begin(&mut self) -> u32 {
        let generation = self.next;
        self.next = self.next.saturating_add(1);
        generation
    }

    /// A checkpoint is complete on disk. Returns the generations whose images are to be removed;
    /// afterwards the logs may be trimmed to `floor`.
    pub fn complete(&mut self, generation: u32, point: Point) -> Vec<u32> {
        debug_assert!(self.kept.iter().all(|k| k.generation < generation));
        self.kept.push(Kept { generation, point });
        let surplus = self.kept.len().saturating_sub(KEPT);
        let removed: Vec<u32> = self.kept.drain(..surplus).map(|k| k.generation).collect();
        let mut low = self.kept[0].point.clone();
        for kept in &self.kept[1..] {
            low.lower(&kept.point);
        }
        self.floor.raise(&low);
        removed.into_iter().filter(|g| *g != 0).collect()
    }

    /// An image turned out to be unusable.
    pub fn damaged(&mut self, generation: u32) {
        self.kept.retain(|k| k.generation != generation);
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
    fn the_start_counts_as_the_first_checkpoint() {
        let mut keep = Retention::new(2);
        let g1 = keep.begin();
        assert_eq!(keep.complete(g1, at(10)), Vec::<u32>::new());
        assert_eq!(*keep.floor(), Point::start(2));
        let g2 = keep.begin();
        assert_eq!(keep.complete(g2, at(20)), Vec::<u32>::new());
        assert_eq!(*keep.floor(), at(10));
        let g3 = keep.begin();
        assert_eq!(keep.complete(g3, at(30)), [g1]);
        assert_eq!(*keep.floor(), at(20));
    }

    #[test]
    fn a_damaged_image_leaves_the_one_before() {
        let mut keep = Retention::new(2);
        for n in 1..=3 {
            let g = keep.begin();
            keep.complete(g, at(n * 10));
        }
        keep.damaged(3);
        assert_eq!(keep.newest().map(|k| k.generation), Some(2));
        keep.damaged(2);
        assert!(keep.newest().is_none());
    }

    #[test]
    fn an_attempt_that_fails_uses_its_number_up() {
        let mut keep = Retention::new(1);
        keep.begin();
        assert_eq!(keep.begin(), 2);
    }

    /// Random histories: checkpoints at random positions at or after the one restored, failures,
    /// damages. The floor stays below everything that may be restored and never falls.
    #[test]
    fn nothing_that_may_be_restored_is_given_up() {
        for seed in 0..2000u64 {
            let mut random = crate::testing::Random::new(seed);
            let mut keep = Retention::new(2);
            let mut position = 0;
            let mut floor = keep.floor().clone();
            for _ in 0..40 {
                match random.below(5) {
                    0 => {
                        let Some(newest) = keep.newest() else { break };
                        position = newest.point.need[0];
                    }
                    1 => keep.damaged(keep.newest().map_or(0, |k| k.generation)),
                    2 => {
                        keep.begin();
                    }
                    _ => {
                        position += random.below(50);
                        let g = keep.begin();
                        keep.complete(g, at(position));
                    }
                }
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
