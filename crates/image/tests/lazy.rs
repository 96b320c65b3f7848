//! Processes that run before all of their memory is there.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{
    Process, Random, appears, bring_back, checkpoint, children_named, compile_as, files_in,
    restorer,
};
use eyrie_image::{CaptureError, Image, RestoreOptions, RestoreSpec, Restored, restore_lazily};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Longer than any of these tests takes.
const LONG: Duration = Duration::from_secs(600);

fn stdio() -> [OwnedFd; 3] {
    [0; 3].map(|_| File::options().read(true).write(true).open("/dev/null").unwrap().into())
}

fn lazily(image: &Path, limit: Duration) -> Restored {
    lazily_from(0, image, limit)
}

fn lazily_from(lazy_from: u64, image: &Path, limit: Duration) -> Restored {
    let spec = RestoreSpec {
        image,
        restorer: restorer(),
        stdio: stdio(),
        segments: vec![],
        start_stopped: false,
        options: RestoreOptions { lazy: Some(limit), lazy_from, ..RestoreOptions::default() },
    };
    restore_lazily(spec).unwrap_or_else(|e| panic!("{e}"))
}

/// Whether this test may use userfaultfd as it is needed; says so if not.
fn may() -> bool {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        println!("NOT RUN: lazy restores need the right to trace any process");
    }
    root
}

/// Starts `moving.c` and waits until its memory is full.
fn start_moving(folder: &Path, name: &str, args: &[&str]) -> Process {
    start(folder, "moving", name, args)
}

fn start(folder: &Path, source: &str, name: &str, args: &[&str]) -> Process {
    let program = compile_as(folder, source, name, &["-pthread"]);
    let process = Process::start(&program, args, folder);
    appears(&folder.join("ready"));
    process
}

/// Freezes it at a moment at which it has no child, and kills it.
fn image_of(process: &mut Process, image: &Path) {
    assert!(is_taken(process, image), "it has ended");
}

/// The same; `false` if it has ended before.
fn is_taken(process: &mut Process, image: &Path) -> bool {
    let mut child = image.as_os_str().to_owned();
    child.push(".1");
    let child = Path::new(&child);
    loop {
        let _ = fs::remove_file(child);
        match checkpoint(process.pid, image) {
            Ok(_) => {}
            Err(CaptureError::Gone) => return false,
            Err(e) => panic!("{e}"),
        }
        if !child.exists() {
            break;
        }
    }
    process.kill();
    true
}

fn nothing_bad(folder: &Path) {
    assert!(!folder.join("bad").exists(), "{:?}", fs::read_to_string(folder.join("bad")));
}

/// The memory of a program changes in every way while it is filled; it is frozen in the middle of
/// that. The result is that of an undisturbed run.
fn filled_while_it_changes(name: &str, rounds: u32) {
    // On a busy machine it may be over too soon: then it has more to do.
    let mut all = [1, 4, 16].iter().map(|more| (more * rounds).to_string());
    assert!(all.any(|rounds| is_filled_while_it_changes(name, &rounds)), "it is over too soon");
}

/// `false` if it is over before it was frozen often enough.
fn is_filled_while_it_changes(name: &str, rounds: &str) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let (plain, lazy) = (folder.path().join("plain"), folder.path().join("lazy"));
    fs::create_dir(&plain).unwrap();
    fs::create_dir(&lazy).unwrap();
    start(&plain, name, "m-plain", &[rounds]).succeed();
    let mut random = Random::new();
    let mut process = start(&lazy, name, "m-lazy", &[rounds]);
    let mut faults = 0;
    for cycle in 0..6 {
        let image = lazy.join(format!("image{cycle}"));
        if !is_taken(&mut process, &image) {
            return false;
        }
        let restored = lazily(&image, Duration::from_millis(random.below(800)));
        assert_eq!(restored.why_not_lazy, None);
        process = Process::of(restored.pid);
        let filling = restored.filling.unwrap();
        std::thread::sleep(Duration::from_millis(random.below(60)));
        if cycle % 2 == 0 {
            // The freeze that follows finds it half full.
            faults += filling.wait(true).unwrap().faults;
        }
        nothing_bad(&lazy);
    }
    let status = process.wait();
    nothing_bad(&lazy);
    assert_eq!(status, 0);
    println!("{faults} faults");
    assert_eq!(fs::read(plain.join("out")).unwrap(), fs::read(lazy.join("out")).unwrap());
    true
}

#[test]
fn what_is_filled_late_is_what_was_there() {
    if may() {
        filled_while_it_changes("moving", 4000);
    }
}

/// Where one thread leaves a place another one comes at once.
#[test]
fn what_is_filled_late_while_threads_move_it() {
    if may() {
        filled_while_it_changes("movers", 3000);
    }
}

/// Parts that are protected alike again are one to the kernel, as they would have been.
#[test]
fn what_was_apart_for_a_while_moves_as_one() {
    if !may() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "apart", "m-apart", &[]);
    let image = folder.path().join("image");
    image_of(&mut process, &image);
    let restored = lazily(&image, LONG);
    fs::write(folder.path().join("go"), "").unwrap();
    let status = Process::of(restored.pid).wait();
    nothing_bad(folder.path());
    assert_eq!(status, 0);
}

#[test]
fn it_runs_at_once_and_a_freeze_waits_for_the_rest() {
    if !may() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_moving(folder.path(), "m-frozen", &["1000000", "alone"]);
    let image = folder.path().join("image");
    image_of(&mut process, &image);
    let restored = lazily(&image, LONG);
    let process = Process::of(restored.pid);
    let filling = restored.filling.unwrap();
    assert!(!filling.is_over());
    let next = folder.path().join("next");
    checkpoint(process.pid, &next).unwrap();
    assert!(filling.is_over() && filling.is_whole());
    let filled = filling.wait(false).unwrap();
    assert!(filled.hot < filled.all);
    drop(process);
    let (first, second) = (Image::open(&image).unwrap(), Image::open(&next).unwrap());
    let (first, second) = (first.summary().pages, second.summary().pages);
    assert!(second + 4096 > first, "{first} pages became {second}");
    let mut process = bring_back(&next);
    std::thread::sleep(Duration::from_millis(50));
    assert!(!folder.path().join("bad").exists());
    process.kill();
}

#[test]
fn one_that_is_killed_meanwhile_leaves_nothing() {
    if !may() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_moving(folder.path(), "m-killed", &["1000000", "alone"]);
    let image = folder.path().join("image");
    image_of(&mut process, &image);
    for round in 0..10 {
        let restored = lazily(&image, LONG);
        let mut process = Process::of(restored.pid);
        std::thread::sleep(Duration::from_millis(round * 3));
        process.kill();
        let begun = Instant::now();
        let filling = restored.filling.unwrap();
        while !filling.is_over() {
            assert!(begun.elapsed() < LONG / 2);
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!filling.is_whole());
        println!("{:?}", filling.wait(false).unwrap());
        assert_eq!(children_named("m-killed"), []);
    }
}

#[test]
fn what_is_not_worth_it_comes_first() {
    if !may() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_moving(folder.path(), "m-small", &["1000000", "alone"]);
    let image = folder.path().join("image");
    image_of(&mut process, &image);
    let restored = lazily_from(1 << 40, &image, LONG);
    drop(Process::of(restored.pid));
    assert!(restored.filling.is_none() && restored.why_not_lazy.is_none());
}

/// Damage that comes after the image was opened: the process must not go on with anything else.
#[test]
fn one_whose_image_is_damaged_meanwhile_is_killed() {
    if !may() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_moving(folder.path(), "m-damaged", &["1000000", "alone"]);
    let image = folder.path().join("image");
    image_of(&mut process, &image);
    let restored = lazily(&image, LONG);
    let mut process = Process::of(restored.pid);
    let file = File::options().write(true).open(&image).unwrap();
    let zeros = vec![0; fs::metadata(&image).unwrap().len() as usize - 8192];
    file.write_all_at(&zeros, 4096).unwrap();
    let error = restored.filling.unwrap().wait(true).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
    let status = process.wait();
    assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
    assert!(!folder.path().join("bad").exists());
}

/// What the test below is killed as.
#[test]
fn helper_that_restores_and_waits() {
    let Some(folder) = std::env::var_os("EYRIE_TEST_LAZY_FOLDER") else { return };
    let folder = PathBuf::from(folder);
    let restored = lazily(&folder.join("image"), LONG);
    assert!(restored.filling.is_some());
    fs::write(folder.join("restored"), restored.pid.to_string()).unwrap();
    std::thread::sleep(LONG);
}

/// If the one that fills it dies, the process dies without having seen a page of zeros.
#[test]
fn it_dies_with_the_one_that_fills_it() {
    if !may() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_moving(folder.path(), "m-orphan", &["1000000", "alone"]);
    image_of(&mut process, &folder.path().join("image"));
    let mut random = Random::new();
    for _ in 0..10 {
        let mut helper = Command::new(std::env::current_exe().unwrap());
        helper.args(["--exact", "helper_that_restores_and_waits"]);
        helper.env("EYRIE_TEST_LAZY_FOLDER", folder.path());
        let (mut helper, _child) = Process::spawn_with(&mut helper, -1);
        let pid = loop {
            let text = fs::read_to_string(folder.path().join("restored")).unwrap_or_default();
            if let Ok(pid) = text.parse::<libc::pid_t>() {
                break pid;
            }
            std::thread::yield_now();
        };
        std::thread::sleep(Duration::from_micros(random.below(20_000)));
        // Only this one: what it fills cannot be stopped as long as it waits for a page.
        // SAFETY: a process of this test, not reaped yet.
        unsafe { libc::kill(helper.pid, libc::SIGKILL) };
        helper.wait();
        let begun = Instant::now();
        while fs::read_to_string(format!("/proc/{pid}/stat"))
            .is_ok_and(|s| !s.contains(") Z") && s.contains("m-orphan"))
        {
            assert!(begun.elapsed() < common::PATIENCE, "{pid} lives on");
            std::thread::yield_now();
        }
        fs::remove_file(folder.path().join("restored")).unwrap();
        assert!(!folder.path().join("bad").exists());
    }
}

/// Without the right to do it lazily it is done at once, and that is said.
#[test]
fn without_the_right_all_comes_first() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 {
        common::as_nobody("lazy", &["without_the_right"], 1);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_moving(folder.path(), "m-unprivileged", &["1000000", "alone"]);
    let image = folder.path().join("image");
    image_of(&mut process, &image);
    let restored = lazily(&image, LONG);
    let _process = Process::of(restored.pid);
    assert!(restored.filling.is_none());
    let why = restored.why_not_lazy.unwrap();
    assert!(why.contains("userfaultfd"), "{why}");
    assert!(!files_in(folder.path()).iter().any(|f| f == "bad"));
}
