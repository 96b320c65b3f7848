//! Much memory that is shared with others: in whichever way it is kept at a freeze, what has not
//! changed is not stored again, and little of it is ever in the memory of who takes the image.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Process, appears, bring_back, compile};
use eyrie_image::{
    Ahead, CaptureError, Frozen, ImageReport, Mode, StoreAhead, Tracker, Tracking, consolidate,
};
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

const MIB: u64 = 96;
const PAGES: u64 = MIB << 8;
/// What is needed of memory beyond that of the process.
const MOST_MEMORY_MIB: u64 = 64;

/// One test after the other: one looks at the memory of this process, which they share.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn checkpoint(pid: libc::pid_t, image: &Path, tracker: &mut Tracker, mode: Mode) -> ImageReport {
    let ahead = Ahead::begin(pid, image, tracker, mode, &mut None, &false.into());
    let mut frozen = Frozen::stop(pid).unwrap();
    let snapshot = frozen.snapshot_after(ahead, image, tracker, mode).unwrap();
    if snapshot.choice().mode == Mode::Sync {
        let report = snapshot.write_image(b"", tracker).unwrap();
        frozen.release().unwrap();
        return report;
    }
    frozen.release().unwrap();
    snapshot.write_image(b"", tracker).unwrap()
}

/// The most memory that this process has had since it was last asked to forget that.
fn peak_mib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() >> 10
}

fn forget_peak() -> u64 {
    fs::write("/proc/self/clear_refs", "5").unwrap();
    peak_mib()
}

fn images_of_much_shared_memory(tracking: Tracking, mode: Mode, ahead: StoreAhead) {
    let what = format!("{tracking:?} {mode:?} {ahead:?}");
    let mut tracker = Tracker::new(tracking);
    tracker.store_ahead(ahead);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "commons", &[]);
    let mut process = Process::start(&program, &[&MIB.to_string()], folder.path());
    while !folder.path().join("ready").exists() {
        std::thread::yield_now();
    }
    let image = |n: usize| folder.path().join(format!("image{n}"));
    for n in 0..3 {
        let before = forget_peak();
        let report = checkpoint(process.pid, &image(n), &mut tracker, mode);
        let memory = peak_mib().saturating_sub(before);
        assert!(memory <= MOST_MEMORY_MIB, "{what}: image {n} took {memory} MiB");
        if n == 0 {
            assert!(report.pages >= PAGES, "{what}: {} pages", report.pages);
        } else {
            assert!(report.pages < PAGES / 8, "{what}: {} pages again", report.pages);
            assert!(report.referred_pages > PAGES / 8 * 7, "{what}: {}", report.referred_pages);
        }
    }
    process.kill();
    // The first image after a restore is full, and the one behind it is not.
    let mut process = bring_back(&image(2));
    let mut tracker = Tracker::new(tracking);
    tracker.store_ahead(ahead);
    for n in 3..5 {
        let report = checkpoint(process.pid, &image(n), &mut tracker, mode);
        assert_eq!(report.pages >= PAGES, n == 3, "{what}: image {n} has {}", report.pages);
    }
    process.kill();
    let mut process = bring_back(&image(4));
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
}

#[test]
fn shared_memory_is_stored_once_and_never_held_whole() {
    let _alone = alone();
    let ways = [
        (Tracking::Auto, Mode::Auto, StoreAhead::Auto),
        (Tracking::Auto, Mode::Auto, StoreAhead::Never),
        (Tracking::Auto, Mode::Copy, StoreAhead::Never),
        (Tracking::WriteProtect, Mode::Twin, StoreAhead::Never),
        (Tracking::Hash, Mode::Auto, StoreAhead::Always),
        (Tracking::Hash, Mode::Sync, StoreAhead::Never),
    ];
    for (tracking, mode, ahead) in ways {
        images_of_much_shared_memory(tracking, mode, ahead);
    }
}

#[test]
fn what_is_stored_while_it_stands_still_can_be_called_off() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "seam", &[]);
    let mut process = Process::start(&program, &["64", "1"], folder.path());
    appears(&folder.path().join("ready"));
    let image = folder.path().join("image");
    let mut tracker = Tracker::new(Tracking::Auto);
    tracker.store_ahead(StoreAhead::Never);
    let mut frozen = Frozen::stop(process.pid).unwrap();
    frozen.until(Arc::new(true.into()));
    let failure = frozen.snapshot(&image, &mut tracker, Mode::Auto).err();
    assert!(matches!(failure, Some(CaptureError::CalledOff)), "{failure:?}");
    frozen.release().unwrap();
    assert!(!image.exists());
    checkpoint(process.pid, &image, &mut tracker, Mode::Auto);
    process.kill();
    let mut process = bring_back(&image);
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
}

/// Whichever way it is written to between two images, by whom ever, with a trace in the page tables
/// of the process or none: each image has it, and has only that anew.
fn every_way_to_write_is_found(tracking: Tracking, mode: Mode, ahead: StoreAhead) {
    const WAYS: usize = 11;
    let what = format!("{tracking:?} {mode:?} {ahead:?}");
    let mut tracker = Tracker::new(tracking);
    tracker.store_ahead(ahead);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "writers", &[]);
    let mut process = Process::start(&program, &[], folder.path());
    appears(&folder.path().join("ready"));
    let image = |n: usize| folder.path().join(format!("image{n}"));
    checkpoint(process.pid, &image(0), &mut tracker, mode);
    for way in 0..WAYS {
        fs::write(folder.path().join(format!("step-{way}")), "").unwrap();
        appears(&folder.path().join(format!("done-{way}")));
        let report = checkpoint(process.pid, &image(way + 1), &mut tracker, mode);
        let pages = report.pages;
        assert!(pages < 48 << 8 >> 2, "{what}: {pages} pages again after way {way}");
    }
    process.kill();
    fs::write(folder.path().join("stop"), "").unwrap();
    // An early one does all that came after it once more.
    for n in [1, 8, WAYS] {
        bring_back(&image(n)).succeed();
    }
}

#[test]
fn every_way_to_write_to_shared_memory_is_found() {
    let _alone = alone();
    let ways = [
        (Tracking::Auto, Mode::Auto, StoreAhead::Auto),
        (Tracking::WriteProtect, Mode::Twin, StoreAhead::Never),
        (Tracking::Hash, Mode::Auto, StoreAhead::Always),
    ];
    for (tracking, mode, ahead) in ways {
        every_way_to_write_is_found(tracking, mode, ahead);
    }
}

/// Of a limit that is over at once nothing is left behind, and the next image is none the worse.
#[test]
fn what_takes_too_long_while_it_stands_still_is_given_up() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "seam", &[]);
    // 60 MiB, more than is copied.
    let mut process = Process::start(&program, &["60", "1"], folder.path());
    appears(&folder.path().join("ready"));
    let image = folder.path().join("image");
    let mut tracker = Tracker::new(Tracking::Auto);
    tracker.store_ahead(StoreAhead::Never);
    let before = common::files_in(folder.path());
    let mut frozen = Frozen::stop(process.pid).unwrap();
    frozen.stand_at_most(Duration::ZERO);
    let failure = frozen.snapshot(&image, &mut tracker, Mode::Auto).err();
    assert!(matches!(failure, Some(CaptureError::Slow { .. })), "{failure:?}");
    frozen.release().unwrap();
    assert_eq!(common::files_in(folder.path()), before);
    // One that stands until it is written anyway.
    let mut frozen = Frozen::stop(process.pid).unwrap();
    frozen.stand_at_most(Duration::ZERO);
    let snapshot = frozen.snapshot(&image, &mut tracker, Mode::Sync).unwrap();
    snapshot.write_image(b"", &mut tracker).unwrap();
    frozen.release().unwrap();
    let image = folder.path().join("next");
    checkpoint(process.pid, &image, &mut tracker, Mode::Auto);
    process.kill();
    let mut process = bring_back(&image);
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
}

/// Shared memory is stored before the process's own, and little is left of either where they meet:
/// put together, they are told apart.
fn what_meets_in_a_file_comes_back(tracking: Tracking, mode: Mode, ahead: StoreAhead) {
    let what = format!("{tracking:?} {mode:?} {ahead:?}");
    let tracker = || {
        let mut tracker = Tracker::new(tracking);
        tracker.store_ahead(ahead);
        tracker
    };
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "seam", &[]);
    let mut process = Process::start(&program, &["64", "16"], folder.path());
    appears(&folder.path().join("ready"));
    let image = |n: usize| folder.path().join(format!("image{n}"));
    let mut first = tracker();
    for n in 0..2 {
        checkpoint(process.pid, &image(n), &mut first, mode);
    }
    let whole = first.consolidate().unwrap();
    assert!(whole.is_some_and(|whole| whole.ancestors.is_empty()), "{what}");
    let report = checkpoint(process.pid, &image(2), &mut first, mode);
    assert!(report.referred_pages > 0, "{what}: nothing is referred to");
    process.kill();
    // As it was put together, and referred to from a later image.
    bring_back(&image(1)).kill();
    let mut process = bring_back(&image(2));
    let mut second = tracker();
    for n in 3..5 {
        checkpoint(process.pid, &image(n), &mut second, mode);
    }
    process.kill();
    assert!(consolidate(&image(4)).unwrap().is_some(), "{what}");
    let mut process = bring_back(&image(4));
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
    fs::remove_file(folder.path().join("stop")).unwrap();
    let mut process = bring_back(&image(1));
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
}

#[test]
fn shared_memory_that_was_stored_first_is_told_apart_when_images_are_put_together() {
    let _alone = alone();
    let ways = [
        (Tracking::Auto, Mode::Auto, StoreAhead::Auto),
        (Tracking::Hash, Mode::Auto, StoreAhead::Never),
        (Tracking::Hash, Mode::Sync, StoreAhead::Never),
    ];
    for (tracking, mode, ahead) in ways {
        what_meets_in_a_file_comes_back(tracking, mode, ahead);
    }
}
