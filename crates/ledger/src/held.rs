//! What was recorded up to a moment, and whether other nodes hold it: what a rank waits for before
//! it does something outside that cannot be taken back. The rule is the gate's (`protocol::gate`):
//! all that any rank of the node has recorded by then, as ranks of a node hand messages to each
//! other freely.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

use crate::door::is_run;
use crate::segment::Segment;

/// The ends of the determinant logs at one moment: rank, words, the last one.
pub struct Recorded(Vec<(u32, u64, u64)>);

impl Segment {
    /// What is recorded now by ranks of this node, and not known to be held.
    pub fn recorded(&self) -> Recorded {
        let here = (0..self.geometry().ranks).filter(|rank| self.is_here(*rank));
        let ends = here.filter_map(|rank| {
            let ctl = self.rank(rank);
            let tail = ctl.det_tail.load(Acquire);
            let is_empty = tail == ctl.det_trim.load(Acquire);
            (!is_empty).then(|| (rank, tail, self.det(rank, tail - 1).load(Relaxed)))
        });
        Recorded(ends.filter(|end| !self.holds(end)).collect())
    }

    /// Whether other nodes hold all of it.
    pub fn are_held(&self, recorded: &Recorded) -> bool {
        recorded.0.iter().all(|end| !self.is_here(end.0) || self.holds(end))
    }

    /// Wakes the thread that brings it to other nodes.
    pub fn hasten_links(&self) {
        self.header().link_urgent.store(1, Relaxed);
        fence(SeqCst);
        self.ring_if_asleep();
    }

    fn is_here(&self, rank: u32) -> bool {
        self.rank(rank).home.load(Relaxed) == self.node()
    }

    fn holds(&self, &(rank, tail, last): &(u32, u64, u64)) -> bool {
        let ctl = self.rank(rank);
        // In this order: what is written first is read last.
        let held = ctl.det_held.load(Acquire);
        let held_last = ctl.det_held_last.load(Acquire);
        let has_grown = || is_run(last) && held_last > last;
        held > tail + 1 || held == tail + 1 && (held_last == last || has_grown())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datagram;
    use crate::door::{Call, Door, Outcome};
    use crate::segment::{FT_LOGGED, Geometry};

    #[test]
    fn what_is_recorded_is_held_when_all_of_it_is() {
        let geo = Geometry { ranks: 2, chunk_bytes: 4096, pool_chunks: 8, det_words: 1 << 18 };
        let (_, seg) = Segment::create("t", geo, FT_LOGGED, 2).unwrap();
        let seg: &'static Segment = Box::leak(Box::new(seg));
        assert!(seg.are_held(&seg.recorded()), "there is nothing");
        let mut doors = [Door::new(seg, 0), Door::new(seg, 1)];
        doors[0].record(Call::Iprobe, &Outcome::One(1));
        doors[1].fruitless();
        let then = seg.recorded();
        assert!(!seg.are_held(&then));
        let end = |rank: u32| {
            let tail = seg.rank(rank).det_tail.load(Relaxed);
            (tail, seg.det(rank, tail - 1).load(Relaxed))
        };
        let (tail, last) = end(0);
        datagram::hold(seg.rank(0), tail, last);
        assert!(!seg.are_held(&then), "a neighbour's is not");
        // The run has grown before it was sent.
        doors[1].fruitless();
        let (tail, last) = end(1);
        datagram::hold(seg.rank(1), tail, last);
        assert!(seg.are_held(&then) && seg.are_held(&seg.recorded()));
        // More is recorded: what was then is held still.
        doors[1].fruitless();
        doors[0].record(Call::Iprobe, &Outcome::One(0));
        assert!(seg.are_held(&then) && !seg.are_held(&seg.recorded()));
        datagram::doubt(seg.rank(0));
        assert!(!seg.are_held(&then));
    }
}
