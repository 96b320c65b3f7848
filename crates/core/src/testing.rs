//! Jobs of threads for tests: every rank is a machine in its own thread, over one segment or,
//! on several nodes, over one for each, joined by links.

use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::thread::Scope;

use eyrie_channel::Endpoint;
use eyrie_ledger::segment::{FT_LOGGED, Geometry, Segment};
use eyrie_link::testing::Cluster;

use crate::machine::Machine;

/// Nodes of a job on several.
const NODES: u32 = 3;

/// A rank's thread. Its panic ends the process: the other ranks would wait for it for ever.
fn spawn<'scope>(scope: &'scope Scope<'scope, '_>, body: impl FnOnce() + Send + 'scope) {
    scope.spawn(move || {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            std::process::abort();
        }
    });
}

/// Runs `f` on `ranks` machines at once, with logging on: on one node, then on several.
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
    run_in(&vec![seg; ranks as usize], &f);
    if ranks > 1 {
        let cluster = Cluster::new(ranks.min(NODES), geo, ft, 1);
        let segments: Vec<_> =
            (0..ranks).map(|r| cluster.attach(r, &vec![0; ranks as usize])).collect();
        run_in(&segments, &f);
    }
}

/// One machine for each of the segments, which may belong to different nodes.
fn run_in<F>(segments: &[&'static Segment], f: &F)
where
    F: Fn(&mut Machine) + Sync,
{
    std::thread::scope(|scope| {
        for (rank, seg) in (0..).zip(segments) {
            spawn(scope, move || {
                let mut machine = machine(seg, rank, 1);
                f(&mut machine);
                machine.finalize();
                machine.leave();
            });
        }
    });
}

/// Runs `f` on `ranks` machines, each on a node of its own; that of `victim` dies with its segment
/// when `step` has been called `after` times (`step` then says true and `f` must return). An empty
/// node takes its place, gets the determinants that others hold, and the rank starts again from the
/// beginning.
///
/// # Panics
/// When a rank panics.
pub fn run_killing_node<F>(ranks: u32, victim: u32, after: u32, f: F)
where
    F: Fn(&mut Machine, &mut dyn FnMut() -> bool) + Sync,
{
    let geo = Geometry { det_words: 1 << 20, ..Geometry::new(ranks, 64 << 20) };
    let cluster = Cluster::new(ranks, geo, FT_LOGGED, 1);
    let need = vec![0; ranks as usize];
    let segments: Vec<_> = (0..ranks).map(|r| cluster.attach(r, &need)).collect();
    let (f, cluster) = (&f, &Mutex::new(cluster));
    let life = |seg: &'static Segment, rank: u32, limit: Option<u32>| {
        seg.rank(rank).incarnation.fetch_add(1, Ordering::Relaxed);
        let mut machine = Machine::new(Endpoint::join(seg, rank));
        let (mut steps, mut died) = (0, false);
        machine.enter();
        f(&mut machine, &mut || {
            steps += 1;
            died |= limit.is_some_and(|l| steps > l);
            died
        });
        if !died {
            machine.finalize();
        }
        machine.leave();
        died
    };
    std::thread::scope(|scope| {
        for (rank, seg) in (0..).zip(segments) {
            let (need, life) = (&need, &life);
            spawn(scope, move || {
                if life(seg, rank, (rank == victim).then_some(after)) {
                    let mut cluster = cluster.lock().expect("nobody else takes it");
                    let known = cluster.lose(rank);
                    cluster.revive(rank);
                    cluster.restore_determinants(rank, known);
                    let seg = cluster.attach(rank, need);
                    life(seg, rank, None);
                }
            });
        }
    });
}

/// A job that has no ranks yet.
pub fn segment(ranks: u32) -> &'static Segment {
    let geo = Geometry { det_words: 1 << 20, ..Geometry::new(ranks, 64 << 20) };
    let (_, seg) = Segment::create("test", geo, FT_LOGGED, 2).expect("segment");
    Box::leak(Box::new(seg))
}

/// An incarnation of a rank, from the beginning.
pub fn machine(seg: &'static Segment, rank: u32, incarnation: u32) -> Machine {
    seg.rank(rank).incarnation.store(incarnation, Ordering::Relaxed);
    let mut machine = Machine::new(Endpoint::join(seg, rank));
    machine.enter();
    machine
}

/// Runs `f` on `ranks` machines; the machine of `victim` is given up when its `step` has been
/// called `after` times (`step` then says true and `f` must return), and started again from the
/// beginning on what the segment holds, as the daemon does with a rank that has no image.
///
/// # Panics
/// When a rank panics.
pub fn run_killing<F>(ranks: u32, victim: u32, after: u32, f: F)
where
    F: Fn(&mut Machine, &mut dyn FnMut() -> bool) + Sync,
{
    let seg = segment(ranks);
    std::thread::scope(|scope| {
        for rank in 0..ranks {
            let f = &f;
            spawn(scope, move || {
                let life = |incarnation: u32, limit: Option<u32>| {
                    let mut machine = machine(seg, rank, incarnation);
                    let mut steps = 0;
                    let mut died = false;
                    f(&mut machine, &mut || {
                        steps += 1;
                        died |= limit.is_some_and(|l| steps > l);
                        died
                    });
                    if !died {
                        machine.finalize();
                    }
                    machine.leave();
                    died
                };
                if rank == victim && life(1, Some(after)) {
                    seg.rank(rank).sleeping.store(0, Ordering::Relaxed);
                    life(2, None);
                } else if rank != victim {
                    life(1, None);
                }
            });
        }
    });
}
