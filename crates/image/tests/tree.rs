//! Programs with child processes: the family is frozen, killed and restored as a whole.
//!
//! Needs the right to choose process numbers; without it, only that this is said.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{
    PATIENCE, Process, bring_back, checkpoint, children, compile, descendants, program_survives,
    restorer, start_waiting, survives,
};
use eyrie_image::{Image, ImageError, RestoreError, RestoreSpec, restore, tree_fits_here};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

fn program(name: &str) -> PathBuf {
    let path = Path::new(name);
    assert!(path.exists(), "needs {name}");
    path.canonicalize().unwrap()
}

fn script(name: &str) -> String {
    format!("{}/tests/programs/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Whether process numbers can be chosen here.
fn may_choose() -> bool {
    common::adopt_orphans();
    let may = eyrie_image::may_choose_numbers();
    if !may {
        println!("NOT RUN: process numbers cannot be chosen here");
    }
    may
}

#[test]
fn children_grandchildren_and_those_that_have_ended() {
    if may_choose() {
        survives("family", &[], &["1500"], 3);
    }
}

#[test]
fn parent_and_child_with_shared_memory_and_files() {
    if may_choose() {
        survives("relatives", &[], &["20000"], 3);
    }
}

#[test]
fn python_with_helpers_that_were_forked() {
    if may_choose() {
        let folder = tempfile::tempdir().unwrap();
        let args = [&script("processes.py"), "2000", "fork"];
        program_survives(folder.path(), &program("/usr/bin/python3"), &args, 3);
    }
}

#[test]
fn a_shell_with_pipelines() {
    if may_choose() {
        let folder = tempfile::tempdir().unwrap();
        let args = [&script("pipeline.sh"), "3000"];
        program_survives(folder.path(), &program("/bin/sh"), &args, 3);
    }
}

fn try_restore(image: &Path) -> Result<libc::pid_t, RestoreError> {
    let null = || File::options().read(true).write(true).open("/dev/null").unwrap().into();
    let spec = RestoreSpec {
        image,
        restorer: restorer(),
        stdio: [null(), null(), null()],
        segments: vec![],
        start_stopped: false,
        options: Default::default(),
    };
    restore(spec)
}

/// State of a process as `ps` shows it.
fn state_of(pid: libc::pid_t) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit(')').next()?.trim_start().chars().next()
}

/// Children of ours with one of these names; those of other tests have others.
fn named(names: &[&str]) -> Vec<libc::pid_t> {
    let is = |pid: &libc::pid_t| {
        let comm = fs::read_to_string(format!("/proc/{pid}/comm"));
        comm.is_ok_and(|comm| names.contains(&comm.trim_end()))
    };
    children(std::process::id() as libc::pid_t).into_iter().filter(is).collect()
}

/// Whether it is a descendant of ours: on a busy machine numbers are soon given to strangers.
fn is_ours(pid: libc::pid_t) -> bool {
    descendants(std::process::id() as libc::pid_t).contains(&pid)
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn a_stopped_child_stays_stopped() {
    if !may_choose() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-stopped", &["10000", "child"]);
    let image = folder.path().join("image");
    for _ in 0..2 {
        let child = descendants(process.pid)[0];
        // SAFETY: a child of our child.
        unsafe { libc::kill(child, libc::SIGSTOP) };
        until("it stops", || state_of(child) == Some('T'));
        checkpoint(process.pid, &image).unwrap();
        assert_eq!(state_of(child), Some('T'));
        assert_ne!(state_of(process.pid), Some('T'));
        process.kill();
        process = bring_back(&image);
        assert_eq!(descendants(process.pid), [child]);
        until("it is stopped again", || state_of(child) == Some('T'));
        assert_ne!(state_of(process.pid), Some('T'));
        // SAFETY: as above.
        unsafe { libc::kill(child, libc::SIGCONT) };
        until("it goes on", || state_of(child) == Some('S'));
    }
}

#[test]
fn a_child_that_cannot_be_captured_is_named() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("NOT RUN: only root can make such children");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    for (what, expected) in [
        ("host-child", "in another uts namespace"),
        ("other-child", "runs as another user"),
        ("joined-child", "shares its memory with its parent"),
        ("quiet-child", "tells of its end by another signal than SIGCHLD"),
        ("old-session", "whose leader is not among its processes"),
    ] {
        fs::remove_file(folder.path().join("ready")).ok();
        let process = start_waiting(folder.path(), "w-strange", &["10000", what]);
        let child = descendants(process.pid)[0];
        let error = checkpoint(process.pid, &folder.path().join("image")).unwrap_err().to_string();
        assert!(error.contains(expected), "{what}: {error}");
        assert!(error.contains(&child.to_string()), "{what}: {error}");
        assert_eq!(descendants(process.pid), [child], "{what}");
        assert!(!common::files_in(folder.path()).iter().any(|f| f.contains("image")));
    }
}

#[test]
fn a_family_is_refused_where_numbers_cannot_be_chosen() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-numbers", &["10000", "child"]);
    let image = folder.path().join("image");
    common::adopt_orphans();
    checkpoint(process.pid, &image).unwrap();
    // The family still runs and has its numbers.
    let refused = try_restore(&image).unwrap_err().to_string();
    assert!(refused.contains(&format!("process number {}", process.pid)), "{refused}");
    process.kill();
    match try_restore(&image) {
        Ok(pid) => {
            assert!(eyrie_image::may_choose_numbers());
            Process::of(pid).kill();
        }
        Err(RestoreError::Number { why, .. }) => {
            assert!(!eyrie_image::may_choose_numbers());
            assert!(why.contains("CAP_CHECKPOINT_RESTORE"), "{why}");
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn families_without_privileges() {
    common::as_nobody("tree", &["cannot_be_chosen", "killed_during_capture", "of_another_time"], 3);
}

#[test]
fn an_image_of_a_child_that_is_missing_or_of_another_time_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-images", &["10000", "child"]);
    common::adopt_orphans();
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    assert_eq!(Image::open(&image).unwrap().children().len(), 1);
    let child = folder.path().join("image.1");
    let there = || Image::child_files(&image).unwrap().iter().map(|c| c.is_there()).collect();
    let there: &dyn Fn() -> Vec<bool> = &there;
    assert_eq!(Image::tree_files(&image).unwrap(), [image.clone(), child.clone()]);
    assert_eq!(Image::child_files(&image).unwrap()[0].path, child);
    assert_eq!(there(), [true]);
    tree_fits_here(&image, &[]).unwrap();
    assert_eq!(Image::number(&image).unwrap(), (process.pid, 1));
    assert!(Image::child_files(&child).unwrap().is_empty());
    let good = fs::read(&child).unwrap();
    fs::copy(&image, &child).unwrap();
    let refused = Image::open(&image).unwrap_err();
    assert!(matches!(&refused, ImageError::Child { .. }), "{refused}");
    assert!(refused.to_string().contains("replaced"), "{refused}");
    assert_eq!(Image::tree_files(&image).unwrap_err().to_string(), refused.to_string());
    assert_eq!(there(), [false]);
    fs::remove_file(&child).unwrap();
    assert!(matches!(Image::open(&image), Err(ImageError::Child { .. })));
    assert!(matches!(Image::tree_files(&image), Err(ImageError::Child { .. })));
    assert_eq!(there(), [false]);
    fs::write(&child, good).unwrap();
    Image::open(&image).unwrap();
    fs::write(folder.path().join("image.1.text"), "not ours").unwrap();
    eyrie_image::remove_image(&image).unwrap();
    assert!(!child.exists() && folder.path().join("image.1.text").exists());
}

#[test]
fn a_child_killed_during_capture_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    common::adopt_orphans();
    let mut random = common::Random::new();
    let mut outcomes = [0; 2];
    let program = common::compile_as(folder.path(), "waiting", "w-lost-child", &[]);
    let image = folder.path().join("image");
    for _ in 0..60 {
        fs::remove_file(folder.path().join("ready")).ok();
        let mut process = Process::start(&program, &["10000", "child"], folder.path());
        common::wait_for_line(folder.path());
        let child = descendants(process.pid)[0];
        let delay = Duration::from_micros(random.below(6000));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay);
            // SAFETY: a child that nobody waits for.
            unsafe { libc::kill(child, libc::SIGKILL) };
        });
        let pid = process.pid;
        let result = eyrie_image::Frozen::stop(pid).map_err(|e| e.to_string()).and_then(|mut f| {
            let twin = f.twin().map_err(|e| e.to_string())?;
            f.release().map_err(|e| e.to_string())?;
            twin.write_image(&image, b"").map_err(|e| e.to_string())
        });
        killer.join().unwrap();
        match result {
            Ok(_) => outcomes[0] += 1,
            Err(e) => {
                assert!(e.contains(&child.to_string()), "{e}");
                outcomes[1] += 1;
            }
        }
        // The parent goes on and can learn of it; no twin is left in its name or in ours.
        until("the child is a zombie", || state_of(child) == Some('Z'));
        until("the parent sleeps on", || state_of(pid) == Some('S'));
        assert_eq!(descendants(pid), [child]);
        until("no twin is left", || named(&["w-lost-child", "child"]) == [pid]);
        process.kill();
    }
    println!("{} images, {} without", outcomes[0], outcomes[1]);
}

#[test]
fn a_family_killed_during_restore_leaves_nothing() {
    if !may_choose() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "family", &[]);
    let mut process = Process::start(&program, &["1000000"], folder.path());
    until("all are there", || descendants(process.pid).len() == 6);
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    let mut all = descendants(process.pid);
    all.push(process.pid);
    process.kill();
    let mut random = common::Random::new();
    let (mut restored, mut failed) = (0, 0);
    for _ in 0..60 {
        let victim = all[random.below(all.len() as u64) as usize];
        let delay = Duration::from_micros(random.below(8000));
        let killer = std::thread::spawn(move || {
            let begun = Instant::now();
            // One that is not made any more is not waited for.
            while !is_ours(victim) && begun.elapsed() < Duration::from_millis(500) {
                std::thread::yield_now();
            }
            std::thread::sleep(delay);
            if is_ours(victim) {
                // SAFETY: a descendant of ours.
                unsafe { libc::kill(victim, libc::SIGKILL) };
            }
        });
        let result = try_restore(&image);
        killer.join().unwrap();
        match result {
            Ok(pid) => {
                restored += 1;
                Process::of(pid).kill();
            }
            Err(_) => failed += 1,
        }
        for &pid in &all {
            until("it is gone", || {
                // Orphans come to us.
                // SAFETY: asks about one process.
                unsafe { libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG) };
                !is_ours(pid)
            });
        }
    }
    println!("{restored} restored, {failed} failed");
}
