//! Threads that are caught inside system calls: the calls go on as if nothing had happened.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Process, bring_back, checkpoint, compile, does_not_notice, survives, wait_for_line};
use eyrie_image::{CaptureError, FreezeError, Frozen};
use std::fs;
use std::time::{Duration, Instant};

#[test]
fn waits_of_every_kind_in_threads() {
    survives("sleepers", &[], &["80"], 3);
}

#[test]
fn waits_of_every_kind_frozen_and_let_go_again_and_again() {
    does_not_notice("sleepers", &["60"]);
}

/// What is left of a sleep is slept, not all of it again.
#[test]
fn a_sleep_goes_on_for_the_rest() {
    // On a busy machine a short one may be over before it is frozen.
    assert!([6.0, 24.0].into_iter().any(goes_on_for_the_rest), "it is over too soon");
}

/// `false` if it is over too soon.
fn goes_on_for_the_rest(seconds: f64) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "longsleep", &[]);
    let mut process = Process::start(&program, &[&seconds.to_string()], folder.path());
    wait_for_line(folder.path());
    let begun = Instant::now();
    // The later of the two lies past the middle: two thirds of the sleep would be slept twice.
    for share in [0.4, 0.7] {
        while begun.elapsed() < Duration::from_secs_f64(seconds * share) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let image = folder.path().join("image");
        match checkpoint(process.pid, &image) {
            Ok(_) => {}
            Err(CaptureError::Gone) => return false,
            Err(e) => panic!("{e}"),
        }
        process.kill();
        process = bring_back(&image);
    }
    let last = begun.elapsed().as_secs_f64();
    process.succeed();
    let out = fs::read_to_string(folder.path().join("out")).unwrap();
    let (result, slept) = out.trim().split_once(' ').unwrap();
    let slept: f64 = slept.parse().unwrap();
    assert_eq!(result, "0");
    // Anew it would have lasted all of its time after the last restore.
    assert!(
        slept >= seconds - 0.001 && slept < last + 0.9 * seconds,
        "{slept} s, restored at {last}"
    );
    true
}

/// Only stopped and let go: semaphores of System V are nothing that an image brings back.
#[test]
fn waits_without_a_limit_do_not_end_at_a_stop() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "sleepers", &[]);
    let mut process = Process::start(&program, &["60", "30", "more"], folder.path());
    let mut stops = 0;
    loop {
        match Frozen::stop(process.pid) {
            Ok(frozen) => stops += i32::from(frozen.release().is_ok()),
            Err(FreezeError::Gone) => break,
            Err(e) => panic!("{e}"),
        }
        std::thread::sleep(Duration::from_millis(3));
    }
    process.succeed();
    assert!(stops > 0);
    let out = fs::read_to_string(folder.path().join("out")).unwrap();
    let said = fs::read_to_string(folder.path().join("stdout")).unwrap();
    assert!(out.lines().all(|line| line.ends_with(": 0")), "{out}{said}");
}
