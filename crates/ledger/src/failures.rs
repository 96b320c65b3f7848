//! Ranks that are lost and not brought back (`--on-failure report`), as the ranks of a node see
//! them.
//!
//! Kept true: a bit once set stays; the number grows behind the bits, so whoever has seen it finds
//! at least as many bits; whoever sleeps is woken behind the number. So a rank that waits looks at
//! one word, and only then at the bits.

use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::fence;

use crate::segment::Segment;
use crate::walk;

const BITS: u32 = u64::BITS;

impl Segment {
    /// Ranks that are lost are reported from now on.
    pub fn report_failures(&self) {
        self.header().reports.store(1, SeqCst);
    }

    /// Whether they are.
    pub fn reports_failures(&self) -> bool {
        self.header().reports.load(Relaxed) != 0
    }

    /// A rank is lost: the others hear of it. False: they had.
    pub fn mark_failed(&self, rank: u32) -> bool {
        let header = self.header();
        let bit = 1 << (rank % BITS);
        if header.failed[(rank / BITS) as usize].fetch_or(bit, SeqCst) & bit != 0 {
            return false;
        }
        header.failures.fetch_add(1, SeqCst);
        fence(SeqCst);
        (0..self.geometry().ranks).for_each(|r| self.rank(r).wake());
        true
    }

    /// How many are lost.
    #[inline]
    pub fn failures(&self) -> u32 {
        self.header().failures.load(Acquire)
    }

    pub fn is_failed(&self, rank: u32) -> bool {
        self.header().failed[(rank / BITS) as usize].load(Acquire) >> (rank % BITS) & 1 != 0
    }

    /// Nobody reads what was sent to a lost rank: its senders get the room back.
    pub fn release_failed(&self, rank: u32) {
        for source in 0..self.geometry().ranks {
            if let Some(end) = walk::end(self, source, rank) {
                self.channel(source, rank).trim.fetch_max(end, SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::segment::{Geometry, Segment};

    #[test]
    fn a_lost_rank_is_counted_once() {
        let (_, seg) = Segment::create("t", Geometry::new(70, 16 << 20), 0, 1).unwrap();
        assert!(!seg.reports_failures() && seg.failures() == 0);
        seg.report_failures();
        assert!(seg.reports_failures());
        assert!(seg.mark_failed(69) && !seg.mark_failed(69) && seg.mark_failed(0));
        assert_eq!(seg.failures(), 2);
        let lost: Vec<u32> = (0..70).filter(|r| seg.is_failed(*r)).collect();
        assert_eq!(lost, [0, 69]);
    }
}
