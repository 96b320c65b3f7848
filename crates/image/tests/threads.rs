//! Programs with several threads: frozen, killed and restored like the others in `survive.rs`.

mod common;

use common::{
    Process, Random, bring_back, checkpoint, does_not_notice, program_survives, restorer,
    start_waiting, survives,
};
use eyrie_image::{FreezeError, Frozen, Image, RestoreSpec, restore};
use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn threads_with_mutex_and_condition() {
    survives("pingpong", &[], &["20000"], 3);
}

#[test]
fn threads_of_a_static_program() {
    survives("pingpong", &["-static"], &["20000"], 3);
}

#[test]
fn threads_of_openmp() {
    survives("omp", &["-fopenmp"], &["3000"], 3);
}

#[test]
fn threads_with_state_and_blocked_threads() {
    survives("threadstate", &[], &["1500"], 3);
}

#[test]
fn threads_that_come_and_go() {
    survives("threadstorm", &[], &["2000"], 3);
}

#[test]
fn threads_of_python() {
    let python = Path::new("/usr/bin/python3");
    assert!(python.exists(), "needs {}", python.display());
    let folder = tempfile::tempdir().unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/threads.py");
    program_survives(folder.path(), &python.canonicalize().unwrap(), &[script, "3000"], 3);
}

#[test]
fn threads_frozen_and_let_go_again_and_again() {
    does_not_notice("threadstate", &["1000", "same"]);
    does_not_notice("threadstorm", &["1000"]);
    does_not_notice("pingpong", &["5000"]);
}

#[test]
fn threads_without_privileges_and_without_pagemap_scan() {
    common::as_nobody("threads", &["mutex", "openmp", "with_state", "come_and_go"], 4);
}

#[test]
fn more_threads_than_can_be_stopped_are_refused_by_number() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-many", &["10000", "many"]);
    match Frozen::stop(process.pid) {
        Err(FreezeError::Threads { found: 1031, limit: 1024 }) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("too many threads were frozen"),
    }
}

#[test]
fn a_process_whose_first_thread_has_ended_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-first-ends", &["10000", "first-ends"]);
    let begun = std::time::Instant::now();
    loop {
        match Frozen::stop(process.pid) {
            Err(FreezeError::FirstThreadEnded) => break,
            Err(other) => panic!("{other}"),
            // It has said that it is ready and is on the way to its end.
            Ok(frozen) => frozen.release().unwrap(),
        }
        assert!(begun.elapsed() < common::PATIENCE);
    }
}

#[test]
fn a_thread_that_does_not_stop_is_named_and_the_others_go_on() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-stuck", &["10000", "stuck"]);
    let pid = process.pid;
    // In a thread of its own: what could not be let go is let go when that ends.
    let refused = std::thread::spawn(move || Frozen::stop(pid).map(drop).unwrap_err());
    match refused.join().unwrap() {
        FreezeError::Stuck(tid) => assert_ne!(tid, pid),
        other => panic!("{other}"),
    }
    let child = fs::read_to_string(folder.path().join("child")).unwrap();
    // SAFETY: the program's child, which it has not collected yet.
    unsafe { libc::kill(child.parse().unwrap(), libc::SIGKILL) };
    while fs::exists(format!("/proc/{child}")).unwrap() {
        std::thread::yield_now();
    }
    let image = folder.path().join("image");
    checkpoint(pid, &image).unwrap();
}

/// Whether a process is a child of this one.
fn is_ours(pid: libc::pid_t) -> bool {
    let own = format!("PPid:\t{}", std::process::id());
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    status.lines().any(|line| line == own)
}

#[test]
fn a_process_with_threads_killed_during_restore_is_an_error_and_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-half-way", &["10000", "threads"]);
    let image = folder.path().join("image");
    let old = process.pid;
    checkpoint(old, &image).unwrap();
    process.kill();
    let mut random = Random::new();
    let (mut restored, mut failed) = (0, 0);
    for _ in 0..100 {
        let delay = Duration::from_micros(random.below(10_000));
        let over = Arc::new(AtomicBool::new(false));
        let watched = Arc::clone(&over);
        let killer = std::thread::spawn(move || {
            while !is_ours(old) && !watched.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            std::thread::sleep(delay);
            if is_ours(old) {
                // SAFETY: our own child, or nobody.
                unsafe { libc::kill(old, libc::SIGKILL) };
            }
        });
        let null = || File::options().read(true).write(true).open("/dev/null").unwrap().into();
        let spec = RestoreSpec {
            image: &image,
            restorer: restorer(),
            stdio: [null(), null(), null()],
            segments: vec![],
            start_stopped: false,
            options: Default::default(),
        };
        let result = restore(spec);
        over.store(true, Ordering::SeqCst);
        match result {
            Ok(pid) => {
                restored += 1;
                killer.join().unwrap();
                Process::of(pid).kill();
            }
            Err(e) => {
                failed += 1;
                killer.join().unwrap();
                assert!(!is_ours(old), "{e}");
            }
        }
    }
    println!("{restored} restored, {failed} killed");
}

#[test]
fn all_threads_are_in_the_image_and_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-three", &["10000", "threads"]);
    let threads = |pid: libc::pid_t| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        let mut names: Vec<_> = tasks.map(|task| task.unwrap().file_name()).collect();
        names.sort();
        names
    };
    // SAFETY: no arguments.
    let may_choose = unsafe { libc::geteuid() } == 0;
    // Now and then another program has taken a number in between.
    for _ in 0..10 {
        let image = folder.path().join("image");
        checkpoint(process.pid, &image).unwrap();
        assert_eq!(Image::open(&image).unwrap().summary().threads, 3);
        let before = threads(process.pid);
        process.kill();
        process = bring_back(&image);
        let after = threads(process.pid);
        assert_eq!(after.len(), 3);
        if after == before || !may_choose {
            return;
        }
    }
    panic!("the threads have got other numbers ten times");
}

/// The vdso counts as that of another kernel.
#[test]
fn under_another_kernel() {
    common::again_with("EYRIE_IMAGE_FOREIGN_VDSO", "1", &["threads_with_mutex", "threads_of_a"], 2);
}
