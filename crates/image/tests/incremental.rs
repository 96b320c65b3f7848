//! Chains of images: each stores what has changed since the one before. Every variant of finding
//! changes and of keeping them is frozen, killed and restored twice, with several images in each
//! life, and the result is that of an undisturbed run.

mod common;

use common::{Process, Random, bring_back, compile};
use eyrie_image::{CaptureError, Frozen, Image, ImageReport, Mode, Tracker, Tracking};
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
    let shot = frozen.shot(image, tracker, mode)?;
    if shot.choice().mode == Mode::Sync {
        let report = shot.write_image(b"meta", tracker);
        let _ = frozen.release();
        return report;
    }
    let _ = frozen.release();
    shot.write_image(b"meta", tracker)
}

/// Removes images that are not needed by `kept`.
fn remove_others(folder: &Path, kept: &Path) {
    let image = Image::open(kept).unwrap();
    let needed: Vec<_> = image.ancestors().map(|a| a.to_os_string()).collect();
    for name in common::files_in(folder).iter().filter(|n| n.starts_with("image")) {
        let path = folder.join(name);
        if path != kept && !needed.iter().any(|n| n == name.as_str()) {
            fs::remove_file(path).unwrap();
        }
    }
}

fn survives(name: &str, args: &[&str], tracking: Tracking, mode: Mode) {
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
        if !run(&program, args, &sub, (tracking, mode), longest, &mut random) {
            continue;
        }
        let found = fs::read(sub.join("out")).unwrap();
        let said = fs::read_to_string(sub.join("stdout")).unwrap_or_default();
        assert!(found == expected, "{name} {tracking:?} {mode:?}: the result differs\n{said}");
        return;
    }
    panic!("{name} is over before it can be frozen {} times", IMAGES * LIVES);
}

fn run(
    program: &Path,
    args: &[&str],
    folder: &Path,
    (tracking, mode): (Tracking, Mode),
    longest_us: u64,
    random: &mut Random,
) -> bool {
    let mut process = Process::start(program, args, folder);
    let mut tracker = Tracker::new(tracking);
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
                Err(CaptureError::Gone) => return false,
                Err(e) => panic!("{e}"),
            };
            println!("{} {:?}: {report:?}", tracker.method().name(), tracker.obstacle());
            assert!(n > 0 || report.referred_pages == 0, "the first is full");
            referred += report.referred_pages;
            last = Some(image);
        }
        let last = last.unwrap();
        remove_others(folder, &last);
        pause(random);
        process.kill();
        process = bring_back(&last);
        tracker.restart();
    }
    process.succeed();
    // One that is frozen before it has begun has nothing to refer to.
    referred > 0
}

macro_rules! variants {
    ($($test:ident: $tracking:ident, $mode:ident;)*) => {$(
        #[test]
        fn $test() {
            survives("churn", &["20000"], Tracking::$tracking, Mode::$mode);
        }
    )*};
}

variants! {
    written_pages_from_a_twin: WriteProtect, Twin;
    written_pages_copied: WriteProtect, Copy;
    written_pages_while_it_stands_still: WriteProtect, Sync;
    written_pages_as_the_cost_says: Auto, Auto;
    hashed_pages_from_a_twin: Hash, Twin;
    hashed_pages_copied: Hash, Copy;
    hashed_pages_while_it_stands_still: Hash, Sync;
}

#[test]
fn everyday_programs() {
    survives("plain", &["6000"], Tracking::Auto, Mode::Auto);
    survives("stack", &["2000"], Tracking::Auto, Mode::Copy);
    survives("guards", &["20000"], Tracking::Auto, Mode::Copy);
    survives("mapped", &["2000"], Tracking::Auto, Mode::Auto);
}
