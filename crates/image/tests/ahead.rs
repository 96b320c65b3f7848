//! Pages that are stored while the process runs, and what is left for the freeze.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Process, bring_back, compile};
use eyrie_image::{Ahead, Frozen, ImageReport, Mode, StoreAhead, Tracker, Tracking};
use std::fs;
use std::path::Path;

/// An image of which what can be is stored ahead; whether something was.
fn checkpoint(pid: libc::pid_t, image: &Path, tracker: &mut Tracker) -> (ImageReport, bool) {
    let ahead = Ahead::begin(pid, image, tracker, Mode::Auto, &mut None, &false.into());
    let stored = ahead.is_some();
    let mut frozen = Frozen::stop(pid).unwrap();
    let snapshot = frozen.snapshot_after(ahead, image, tracker, Mode::Auto).unwrap();
    frozen.release().unwrap();
    (snapshot.write_image(b"", tracker).unwrap(), stored)
}

fn tracker() -> Tracker {
    let mut tracker = Tracker::new(Tracking::Auto);
    tracker.store_ahead(StoreAhead::Always);
    tracker
}

#[test]
fn a_full_image_and_those_behind_it_are_stored_ahead() {
    let mut tracker = tracker();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "churn", &[]);
    let mut process = Process::start(&program, &[], folder.path());
    let image = |n: usize| folder.path().join(format!("image{n}"));
    let out = folder.path().join("out");
    let written = || fs::metadata(&out).map_or(0, |m| m.len());
    for n in 0..4 {
        // It has written to its memory since the last one.
        let before = written();
        while written() == before {
            std::thread::yield_now();
        }
        let (report, stored) = checkpoint(process.pid, &image(n), &mut tracker);
        assert!(stored && report.pages > 0, "image {n}");
        assert!(report.mode.why.contains("stored while it ran"), "{}", report.mode.why);
    }
    process.kill();
    end_as_undisturbed(bring_back(&image(3)), &program, folder.path());
}

/// Has `churn`, which was restored, come to its end, and compares what it has found.
fn end_as_undisturbed(mut process: Process, program: &Path, folder: &Path) {
    fs::write(folder.join("stop"), "").unwrap();
    process.succeed();
    let found = fs::read_to_string(folder.join("out")).unwrap();
    let last: u64 = found.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    let plain = folder.join("undisturbed");
    fs::create_dir(&plain).unwrap();
    Process::start(program, &[&(last + 1).to_string()], &plain).succeed();
    assert!(found == fs::read_to_string(plain.join("out")).unwrap(), "the result differs");
}

#[test]
fn where_little_of_much_has_changed_the_result_is_that_of_an_undisturbed_run() {
    let mut tracker = Tracker::new(Tracking::Auto);
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "churn", &[]);
    // As much as is worth storing ahead; what is done is left to what was measured.
    let mut process = Process::start(&program, &["0", "300"], folder.path());
    common::appears(&folder.path().join("out"));
    let image = |n: usize| folder.path().join(format!("image{n}"));
    for n in 0..4 {
        let (report, _) = checkpoint(process.pid, &image(n), &mut tracker);
        tracker.prepare();
        let few = report.pages < (64 << 20) / 4096;
        assert!(few == (n > 0), "image {n} has {} pages ({})", report.pages, report.mode.why);
    }
    process.kill();
    end_as_undisturbed(bring_back(&image(3)), &program, folder.path());
}

#[test]
fn where_nothing_can_be_stored_the_freeze_tells() {
    let mut tracker = tracker();
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "churn", &[]);
    let mut process = Process::start(&program, &[], folder.path());
    let nowhere = folder.path().join("missing").join("image");
    assert!(
        Ahead::begin(process.pid, &nowhere, &mut tracker, Mode::Auto, &mut None, &false.into())
            .is_none()
    );
    let image = folder.path().join("image");
    // Wanted at once, or dropped, it leaves nothing behind.
    let hurried =
        Ahead::begin(process.pid, &image, &mut tracker, Mode::Auto, &mut None, &true.into());
    assert!(hurried.is_none());
    drop(
        Ahead::begin(process.pid, &image, &mut tracker, Mode::Auto, &mut None, &false.into())
            .unwrap(),
    );
    let names = common::files_in(folder.path());
    assert!(!names.iter().any(|name| name.contains("image")), "{names:?}");
    let (_, stored) = checkpoint(process.pid, &image, &mut tracker);
    assert!(stored);
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
}
