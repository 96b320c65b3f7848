//! Jobs of threads for tests: every rank is a machine in its own thread over one segment.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

use eyrie_channel::Endpoint;
use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};

use crate::machine::Machine;

/// Runs `f` on `ranks` machines at once, with logging on.
///
/// # Panics
/// When a rank panics.
pub fn run<F>(ranks: u32, f: F)
where
    F: Fn(&mut Machine) + Sync,
{
    run_with(ranks, FT_LOGGED, 64 << 20, f);
}

/// The same with other `FT_*` bits and bytes of log for each rank.
///
/// # Panics
/// When a rank panics.
pub fn run_with<F>(ranks: u32, ft: u32, log_bytes: u64, f: F)
where
    F: Fn(&mut Machine) + Sync,
{
    let geo = Geometry { det_words: 1 << 20, ..Geometry::new(ranks, log_bytes) };
    let (fd, seg) = Segment::create("test", geo, ft, 2).expect("segment");
    let again = Segment::open(fd.as_fd()).expect("segment");
    drop(seg);
    // The library keeps its segment for the life of the process; so do its tests.
    let seg: &'static Segment = Box::leak(Box::new(again));
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let f = &f;
            scope.spawn(move || {
                seg.rank(rank).incarnation.store(1, Ordering::Relaxed);
                let mut machine = Machine::new(Endpoint::join(seg, rank));
                machine.enter();
                f(&mut machine);
                machine.finalize();
                machine.leave();
            });
        }
    });
}
