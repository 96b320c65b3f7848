//! Recovery units: ranks that are checkpointed together and go back together.
//!
//! What they send each other crosses the log as it does everywhere, but is not retained: it is
//! given up when the receiver has taken it. So the log of such a channel cannot serve a receiver
//! that goes back; it goes back to where it was when the unit's images were taken.

use std::sync::atomic::Ordering::{Relaxed, Release};

use crate::mirror::{self, Pool};
use crate::segment::Segment;
use crate::units::Units;

/// Marks the channels within units. Where each rank is a unit there are none; where all ranks are
/// one, nothing is retained anyway. To be called before any rank runs.
pub fn bind(seg: &Segment, units: &Units) {
    if !units.are_groups() {
        return;
    }
    let ranks = seg.geometry().ranks as usize;
    let numbered = || (0u32..).zip(units.by_rank()).take(ranks);
    for (src, unit) in numbered() {
        for (dst, other) in numbered() {
            seg.channel(src, dst).inner.store(u64::from(unit == other), Release);
        }
    }
}

/// The same where all ranks are one unit of a segment in which outcomes are recorded, as they were
/// not from its beginning on.
pub fn bind_all(seg: &Segment) {
    let ranks = seg.geometry().ranks;
    for (src, dst) in (0..ranks).flat_map(|src| (0..ranks).map(move |dst| (src, dst))) {
        seg.channel(src, dst).inner.store(1, Release);
    }
}

/// Whether what one rank sends another is not retained.
pub fn is_inner(seg: &Segment, src: u32, dst: u32) -> bool {
    seg.channel(src, dst).inner.load(Relaxed) != 0
}

/// Gives up all that `src`, which lives here and does not run, has sent to these ranks.
pub fn unsend(seg: &Segment, src: u32, to: &[u32]) {
    let mut pool = Pool::new(seg, src);
    to.iter().for_each(|dst| mirror::clear(seg, &mut pool, *dst));
}

/// Forgets how much these ranks, of which none runs, had received of each other.
pub fn unread(seg: &Segment, ranks: &[u32]) {
    for (src, dst) in ranks.iter().flat_map(|src| ranks.iter().map(move |dst| (*src, *dst))) {
        let ctl = seg.channel(src, dst);
        for word in [&ctl.need, &ctl.front, &ctl.had, &ctl.here, &ctl.shown, &ctl.viewing] {
            word.store(0, Release);
        }
    }
}

#[cfg(test)]
#[path = "unit_tests.rs"]
mod tests;
