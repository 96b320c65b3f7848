//! Programs with several threads: frozen, killed and restored like the others in `survive.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{
    Process, Random, bring_back, checkpoint, compile, does_not_notice, program_survives, restorer,
    start_waiting, survives,
};
use eyrie_image::{CaptureError, FreezeError, Frozen, Image, RestoreSpec, restore};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
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

const GO_PROGRAM: &str = "EYRIE_TEST_GO_PROGRAM";

fn go_program(folder: &Path) -> PathBuf {
    if let Some(built) = std::env::var_os(GO_PROGRAM) {
        return built.into();
    }
    let program = folder.join("tight");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/tight.go");
    let mut go = Command::new("go");
    go.args(["build", "-o"]).arg(&program).arg(source).env("GOTOOLCHAIN", "local");
    let built = go.current_dir(folder).status().expect("needs go");
    assert!(built.success());
    program
}

/// The runtime stops loops without a call by signals to threads, which it knows by number.
#[test]
fn threads_of_go() {
    let folder = tempfile::tempdir().unwrap();
    program_survives(folder.path(), &go_program(folder.path()), &["200"], 3);
}

#[test]
fn threads_of_go_under_other_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let program = go_program(folder.path());
    common::as_nobody_with("threads", &["threads_of_go"], 2, &[(GO_PROGRAM, &program)]);
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

/// An exec ends all other threads and gives its own thread another number while it is frozen.
#[test]
fn threads_that_execute_another_program_in_the_middle() {
    let folder = tempfile::tempdir().unwrap();
    let program = common::compile(folder.path(), "execs", &[]);
    let (plain, frozen) = (folder.path().join("undisturbed"), folder.path().join("frozen"));
    fs::create_dir(&plain).unwrap();
    fs::create_dir(&frozen).unwrap();
    Process::start(&program, &["400"], &plain).succeed();
    let mut process = Process::start(&program, &["400"], &frozen);
    let (mut images, mut without) = (0, 0);
    let mut random = Random::new();
    while fs::metadata(frozen.join("out")).is_err() {
        let result = Frozen::stop(process.pid).map_err(|e| e.to_string()).and_then(|mut f| {
            let twin = f.twin().map_err(|e| e.to_string());
            f.release().map_err(|e| e.to_string())?;
            twin?.write_image(&frozen.join("image"), b"").map_err(|e| e.to_string())
        });
        match result {
            Ok(_) => images += 1,
            // It may be taken for gone, or be half way; what counts is that it goes on.
            Err(_) => without += 1,
        }
        std::thread::sleep(Duration::from_micros(random.below(2000)));
    }
    process.succeed();
    println!("{images} images, {without} without");
    let (expected, found) = (fs::read(plain.join("out")), fs::read(frozen.join("out")));
    assert_eq!(expected.unwrap(), found.unwrap());
}

/// No twin can be made where the user may have no more processes: the program goes on.
#[test]
fn a_twin_that_cannot_be_made_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-no-twin", &["10000", "threads"]);
    let image = folder.path().join("image");
    let limit = |soft: u64| {
        let new = libc::rlimit64 { rlim_cur: soft, rlim_max: libc::RLIM64_INFINITY };
        // SAFETY: reads a live structure. Only lowers what it raises again.
        let r = unsafe {
            let old = std::ptr::null_mut();
            libc::prlimit64(process.pid, libc::RLIMIT_NPROC, &raw const new, old)
        };
        r == 0
    };
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } == 0 || !limit(1) {
        println!("NOT RUN: the limit does not bind this user, or cannot be changed");
        return;
    }
    let error = checkpoint(process.pid, &image).unwrap_err().to_string();
    assert!(error.contains("make a twin"), "{error}");
    assert!(limit(libc::RLIM64_INFINITY));
    checkpoint(process.pid, &image).unwrap();
    let mut process = process;
    process.kill();
    bring_back(&image);
}

#[test]
fn a_twin_that_cannot_be_made_does_no_harm_to_a_user() {
    common::as_nobody("threads", &["cannot_be_made_does_no_harm"], 2);
}

/// Prints how long 64 threads stand still; no limit, as machines differ.
#[test]
fn sixty_four_threads_are_frozen() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-64", &["10000", "crowd"]);
    let mut stood = Vec::new();
    for _ in 0..10 {
        let report = checkpoint(process.pid, &folder.path().join("image")).unwrap();
        stood.push(report.freeze);
    }
    stood.sort();
    println!("64 threads stood still for {:?} (median), {:?} (longest)", stood[5], stood[9]);
    assert_eq!(Image::open(&folder.path().join("image")).unwrap().summary().threads, 65);
}

/// Its first thread ends it while others are still held: it has been restored all the same.
#[test]
fn one_that_ends_as_soon_as_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "ending", &["-pthread"]);
    let mut process = Process::start(&program, &[], folder.path());
    common::appears(&folder.path().join("ready"));
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    File::create(folder.path().join("go")).unwrap();
    for _ in 0..3 {
        let status = bring_back(&image).wait();
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 7, "{status:#x}");
    }
}

/// Asks for the ends of all threads of a process all the time, as whoever collects the ended does.
/// The kernel hands the stops of traced ones to every thread of the tracer's process that asks.
fn ask_for_ends(pid: libc::pid_t, until: &AtomicBool) -> u64 {
    let mut taken = 0;
    while !until.load(Ordering::Relaxed) {
        for entry in fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let Some(tid) = entry.file_name().to_str().and_then(|n| n.parse::<u32>().ok()) else {
                continue;
            };
            // SAFETY: all-zero is a valid siginfo_t, and it is live.
            unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let options = libc::WEXITED | libc::WNOHANG | libc::__WALL;
                let asked = tid != pid as u32
                    && libc::waitid(libc::P_PID, tid, &raw mut info, options) == 0;
                taken += u64::from(asked && info.si_pid() != 0);
            }
        }
    }
    taken
}

#[test]
fn a_stop_that_somebody_else_has_taken_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "locksteps", &[]);
    let plain = folder.path().join("undisturbed");
    fs::create_dir(&plain).unwrap();
    Process::start(&program, &["60", "300"], &plain).succeed();
    let mut process = Process::start(&program, &["60", "300"], folder.path());
    common::wait_for_line(folder.path());
    let (pid, image) = (process.pid, folder.path().join("image"));
    let over = Arc::new(AtomicBool::new(false));
    let theirs = Arc::clone(&over);
    let thief = std::thread::spawn(move || ask_for_ends(pid, &theirs));
    let mut images = 0;
    // As long as it runs, and so long that the thief has had its chance.
    while images < 20 && !fs::exists(folder.path().join("out")).unwrap() {
        match checkpoint(pid, &image) {
            Ok(_) => images += 1,
            Err(CaptureError::Gone) => break,
            Err(e) => panic!("{e}"),
        }
    }
    over.store(true, Ordering::Relaxed);
    println!("{images} images, {} stops taken", thief.join().unwrap());
    assert!(images > 0);
    process.succeed();
    let result = |at: &Path| fs::read(at.join("out")).unwrap();
    assert_eq!(result(folder.path()), result(&plain));
}

/// What holds the lock that attaching takes: a thread executes another program, and waits until
/// the end of one that somebody else traces is collected, which they do not do.
#[test]
fn attaching_has_a_deadline_that_another_thread_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "execstuck", &[]);
    let process = Process::start(&program, &[], folder.path());
    common::wait_for_line(folder.path());
    let pid = process.pid;
    let begun = std::time::Instant::now();
    let refused = std::thread::spawn(move || Frozen::stop(pid).map(drop).unwrap_err());
    match refused.join().unwrap() {
        FreezeError::Late { .. } => {}
        other => panic!("{other}"),
    }
    assert!(begun.elapsed() < common::PATIENCE / 2);
    // The tracer lets go, the program begins, and can be stopped.
    fs::write(folder.path().join("go"), "").unwrap();
    common::appears(&folder.path().join("begun"));
    checkpoint(pid, &folder.path().join("image")).unwrap();
}

#[test]
fn as_many_threads_as_may_be_are_stopped_in_time() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "locksteps", &[]);
    let process = Process::start(&program, &["1000", "100000"], folder.path());
    common::wait_for_line(folder.path());
    let image = folder.path().join("image");
    let begun = std::time::Instant::now();
    checkpoint(process.pid, &image).unwrap();
    println!("1000 threads: {:?}", begun.elapsed());
    drop(process);
    assert_eq!(Image::open(&image).unwrap().summary().threads, 1000);
}
