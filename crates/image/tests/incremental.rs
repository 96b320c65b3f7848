//! Chains of images: each stores what has changed since the one before. Every variant of finding
//! changes and of keeping them is frozen, killed and restored twice, with several images in each
//! life, and the result is that of an undisturbed run.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Process, Random, bring_back, compile};
use eyrie_image::{CaptureError, Frozen, Image, ImageReport, Mode, Tracker, Tracking};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// Images in each life of a process.
const IMAGES: usize = 6;
const LIVES: usize = 3;

/// Freezes, writes an image as `mode` says, lets the process go on.
fn checkpoint(
    pid: libc::pid_t,
    image: &Path,
    tracker: &mut Tracker,
    mode: Mode,
) -> Result<ImageReport, CaptureError> {
    let mut frozen = Frozen::stop(pid).map_err(|_| CaptureError::Gone)?;
    let snapshot = frozen.snapshot(image, tracker, mode)?;
    if snapshot.choice().mode == Mode::Sync {
        let report = snapshot.write_image(b"meta", tracker);
        let _ = frozen.release();
        return report;
    }
    let _ = frozen.release();
    snapshot.write_image(b"meta", tracker)
}

/// Names of all files that an image needs, with those of its children.
fn needed(image: &Image, to: &mut BTreeSet<OsString>) {
    to.extend(image.ancestors().map(|a| a.to_os_string()));
    image.children().iter().for_each(|child| needed(child, to));
}

/// Removes images that are not needed by `kept`.
fn remove_others(folder: &Path, kept: &Path) {
    let own = Image::tree_files(kept).unwrap();
    let mut all: BTreeSet<OsString> = own.iter().map(|p| p.file_name().unwrap().into()).collect();
    needed(&Image::open(kept).unwrap(), &mut all);
    for name in common::files_in(folder).iter().filter(|n| n.starts_with("image")) {
        let path = folder.join(name);
        if !all.contains(OsStr::new(name.as_str())) {
            fs::remove_file(path).unwrap();
        }
    }
}

/// How images are made.
type Variant = (Tracking, Mode, bool);

/// Runs `churn` until it was killed and restored often enough, and compares with as long an
/// undisturbed run.
fn churn_survives(variant: Variant) {
    churn_started(variant, |program, folder| Process::start(program, &[], folder));
}

fn churn_started(variant: Variant, start: impl Fn(&Path, &Path) -> Process) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "churn", &[]);
    let (disturbed, plain) = (folder.path().join("disturbed"), folder.path().join("undisturbed"));
    fs::create_dir(&disturbed).unwrap();
    fs::create_dir(&plain).unwrap();
    let process = start(&program, &disturbed);
    wait_for_output(&disturbed);
    let lived = live(process, &disturbed, variant, 30_000, &mut Random::new());
    let (mut process, referred) = lived.expect("it goes on until it is told to stop");
    fs::write(disturbed.join("stop"), "").unwrap();
    process.succeed();
    assert_eq!(referred > 0, variant.0 != Tracking::Off, "pages that have not changed");
    let found = fs::read_to_string(disturbed.join("out")).unwrap();
    let last: u64 = found.lines().last().unwrap().split(' ').next().unwrap().parse().unwrap();
    let rounds = (last + 1).to_string();
    Process::start(&program, &[&rounds], &plain).succeed();
    let expected = fs::read_to_string(plain.join("out")).unwrap();
    let same = expected.lines().zip(found.lines()).take_while(|(a, b)| a == b).count();
    assert!(found == expected, "{variant:?}: the result differs after {same} lines");
}

/// Waits until the program has come so far that it has written something.
fn wait_for_output(folder: &Path) {
    while !fs::metadata(folder.join("out")).is_ok_and(|m| m.len() > 0) {
        std::thread::yield_now();
    }
}

/// The same for programs that end by themselves.
fn survives(name: &str, args: &[&str], variant: Variant) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), name, &[]);
    let plain = folder.path().join("undisturbed");
    fs::create_dir(&plain).unwrap();
    let begun = Instant::now();
    Process::start(&program, args, &plain).succeed();
    let whole = begun.elapsed().as_micros() as u64;
    let expected = fs::read(plain.join("out")).unwrap();
    let mut random = Random::new();
    for attempt in 0..8 {
        let sub = folder.path().join(format!("run{attempt}"));
        fs::create_dir(&sub).unwrap();
        let longest = (whole >> attempt) / (IMAGES * LIVES) as u64 + 1;
        let process = Process::start(&program, args, &sub);
        let Some((mut process, _)) = live(process, &sub, variant, longest, &mut random) else {
            continue;
        };
        process.succeed();
        let found = fs::read(sub.join("out")).unwrap();
        let said = fs::read_to_string(sub.join("stdout")).unwrap_or_default();
        assert!(found == expected, "{name} {variant:?}: the result differs\n{said}");
        return;
    }
    panic!("{name} is over before it can be frozen {} times", IMAGES * LIVES);
}

/// Takes images of a process, kills and restores it; `None` if it ends meanwhile. Returns how many
/// pages were referred to.
fn live(
    mut process: Process,
    folder: &Path,
    (tracking, mode, consolidated): Variant,
    longest_us: u64,
    random: &mut Random,
) -> Option<(Process, u64)> {
    let mut tracker = Tracker::new(tracking);
    tracker.follow_children();
    let pause = |random: &mut Random| {
        std::thread::sleep(Duration::from_micros(random.below(longest_us)));
    };
    let mut referred = 0;
    for life in 0..LIVES {
        let mut last = None;
        for n in 0..IMAGES {
            pause(random);
            let image = folder.join(format!("image{life}.{n}"));
            let report = match checkpoint(process.pid, &image, &mut tracker, mode) {
                Ok(report) => report,
                Err(CaptureError::Gone) => return None,
                Err(e) => panic!("{e}"),
            };
            println!("{} {:?}: {report:?}", tracker.method().name(), tracker.obstacle());
            assert!(n > 0 || report.referred_pages == 0, "the first is full");
            referred += report.referred_pages;
            if consolidated && n % 2 == 1 {
                let before = report.pages + report.referred_pages;
                let tidied = life % 2 == 1;
                let whole = if tidied { tracker.tidy() } else { tracker.consolidate() };
                let (whole, needed) = (whole.unwrap(), report.ancestors.len());
                let image = Image::open(&image).unwrap();
                match whole {
                    Some(_) if tidied => assert!(image.ancestors().count() < needed),
                    _ if tidied => assert_eq!(image.ancestors().count(), needed),
                    whole => {
                        assert_eq!((whole.is_some(), image.ancestors().count()), (needed > 0, 0))
                    }
                }
                assert_eq!((image.summary().pages, image.meta()), (before, &b"meta"[..]));
            }
            last = Some(image);
        }
        let last = last.unwrap();
        remove_others(folder, &last);
        pause(random);
        process.kill();
        process = bring_back(&last);
        tracker.restart();
    }
    Some((process, referred))
}

macro_rules! variants {
    ($($test:ident: $tracking:ident, $mode:ident, $consolidated:literal;)*) => {$(
        #[test]
        fn $test() {
            churn_survives((Tracking::$tracking, Mode::$mode, $consolidated));
        }
    )*};
}

variants! {
    written_pages_from_a_twin: WriteProtect, Twin, false;
    written_pages_copied: WriteProtect, Copy, false;
    written_pages_while_it_stands_still: WriteProtect, Sync, false;
    written_pages_as_the_cost_says: Auto, Auto, false;
    hashed_pages_from_a_twin: Hash, Twin, false;
    hashed_pages_copied: Hash, Copy, false;
    hashed_pages_while_it_stands_still: Hash, Sync, false;
    full_images: Off, Twin, false;
    written_pages_consolidated: WriteProtect, Copy, true;
    hashed_pages_consolidated: Hash, Twin, true;
}

#[test]
fn a_program_behind_a_shell() {
    common::adopt_orphans();
    if !eyrie_image::may_choose_numbers() {
        println!("NOT RUN: process numbers cannot be chosen here");
        return;
    }
    let variants = [(Tracking::Auto, Mode::Auto, false), (Tracking::Hash, Mode::Twin, false)];
    for variant in variants {
        churn_started(variant, |program, folder| {
            let script = "\"$0\"; exit $?";
            Process::start(Path::new("/bin/sh"), &["-c", script, program.to_str().unwrap()], folder)
        });
    }
}

/// A child's image refers to its earlier one, until there are too many of these.
#[test]
fn images_of_children_refer_to_earlier_ones() {
    let folder = tempfile::tempdir().unwrap();
    let process = common::start_waiting(folder.path(), "w-chain", &["10000", "child"]);
    let mut tracker = Tracker::new(Tracking::Hash);
    tracker.follow_children();
    let mut fewest = usize::MAX;
    for n in 1..=12 {
        let image = folder.path().join(format!("image{n}"));
        let report = checkpoint(process.pid, &image, &mut tracker, Mode::Twin).unwrap();
        let image = Image::open(&image).unwrap();
        let needs: Vec<_> = image.children()[0].ancestors().collect();
        assert!(needs.iter().all(|name| report.ancestors.iter().any(|a| a == name)), "{report:?}");
        assert_eq!(needs.is_empty(), report.ancestors.iter().all(|a| !is_childs(a)), "{report:?}");
        if n == 1 {
            assert_eq!(report.referred_pages, 0);
        } else {
            assert!(report.referred_pages > 0, "{n}: {report:?}");
        }
        fewest = if n == 2 { needs.len() } else { fewest };
    }
    assert!(fewest > 0, "the second refers to the first");
}

fn is_childs(name: &OsStr) -> bool {
    name.to_string_lossy().contains('.')
}

#[test]
fn everyday_programs() {
    survives("plain", &["10000"], (Tracking::Auto, Mode::Auto, false));
    survives("stack", &["10000"], (Tracking::Auto, Mode::Copy, true));
    survives("guards", &["200000"], (Tracking::Auto, Mode::Copy, true));
    survives("mapped", &["2000"], (Tracking::Auto, Mode::Auto, false));
}
