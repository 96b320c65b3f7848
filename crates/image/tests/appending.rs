//! A restore cuts an appended file back to its size at the checkpoint, so that the process's lines
//! do not appear twice, but never lines of others.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{Process, bring_back, checkpoint, null, output, restorer, start_waiting};
use eyrie_image::{Appended, Frozen, RestoreOptions, RestoreSpec, restore};
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;

fn log(folder: &Path) -> String {
    fs::read_to_string(folder.join("log")).unwrap()
}

fn writer(folder: &Path) -> File {
    File::options().append(true).open(folder.join("log")).unwrap()
}

/// Starts a program that has appended a line to `log`, and keeps it open.
fn start(folder: &Path, name: &str) -> Process {
    let process = start_waiting(folder, name, &["10000", "log"]);
    assert_eq!(log(folder), "hello\n");
    process
}

#[test]
fn its_own_lines_are_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "a-alone");
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    writer(folder.path()).write_all(b"again\n").unwrap();
    process.kill();
    for _ in 0..2 {
        process = bring_back(&image);
        assert_eq!(log(folder.path()), "hello\n");
        process.kill();
    }
}

/// What is open in a child that came after the freeze was not open in any other process then.
#[test]
fn a_child_that_begins_while_the_image_is_written_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "a-child");
    let image = folder.path().join("image");
    let mut frozen = Frozen::stop(process.pid).unwrap();
    let twin = frozen.twin().unwrap();
    assert!(!twin.must_stand());
    frozen.release().unwrap();
    let before = common::children(process.pid);
    // SAFETY: a live child of ours, which handles that.
    unsafe { libc::kill(process.pid, libc::SIGUSR1) };
    let child = loop {
        let now = common::children(process.pid);
        match now.into_iter().find(|pid| !before.contains(pid)) {
            Some(child) => break child,
            None => std::thread::yield_now(),
        }
    };
    twin.write_image(&image, b"").unwrap();
    writer(folder.path()).write_all(b"again\n").unwrap();
    process.kill();
    while Path::new(&format!("/proc/{child}/fd/0")).exists() {
        std::thread::yield_now();
    }
    let again = bring_back(&image);
    assert_eq!(log(folder.path()), "hello\n");
    drop(again);
}

#[test]
fn lines_of_one_who_writes_since_before_the_checkpoint_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "a-before");
    let mut other = writer(folder.path());
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    other.write_all(b"other\n").unwrap();
    process.kill();
    // It is gone by now, but was there.
    drop(other);
    let again = bring_back(&image);
    assert_eq!(log(folder.path()), "hello\nother\n");
    drop(again);
}

#[test]
fn lines_of_one_who_writes_now_stay() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "a-now");
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    let mut other = writer(folder.path());
    other.write_all(b"other\n").unwrap();
    process.kill();
    let again = bring_back(&image);
    assert_eq!(log(folder.path()), "hello\nother\n");
    drop(again);
}

#[test]
fn one_who_only_reads_does_not_matter() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "a-reader");
    let reader = File::open(folder.path().join("log")).unwrap();
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    writer(folder.path()).write_all(b"again\n").unwrap();
    process.kill();
    let again = bring_back(&image);
    assert_eq!(log(folder.path()), "hello\n");
    drop((again, reader));
}

/// What the file holds when the image has been restored so.
fn log_after(folder: &Path, image: &Path, appended: Appended) -> String {
    let spec = RestoreSpec {
        image,
        restorer: restorer(),
        stdio: [null(), null(), output(folder)],
        segments: vec![],
        start_stopped: false,
        options: RestoreOptions { appended, ..Default::default() },
    };
    Process::of(restore(spec).unwrap()).kill();
    log(folder)
}

/// As a file system of which the kernel does not say who has a file open: it has, as far as it
/// knows.
#[test]
fn the_user_may_say_that_nobody_else_writes_or_that_nothing_is_cut() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "a-said");
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    writer(folder.path()).write_all(b"again\n").unwrap();
    process.kill();
    let bring_back = |appended| log_after(folder.path(), &image, appended);
    // The kernel gives no lease.
    let held = writer(folder.path());
    assert_eq!(bring_back(Appended::Auto), "hello\nagain\n");
    assert_eq!(bring_back(Appended::Cut), "hello\n");
    writer(folder.path()).write_all(b"again\n").unwrap();
    drop(held);
    assert_eq!(bring_back(Appended::Keep), "hello\nagain\n");
    assert_eq!(bring_back(Appended::Auto), "hello\n");
}

#[test]
fn what_others_had_open_at_the_checkpoint_is_not_cut_whatever_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path(), "a-both");
    let mut other = writer(folder.path());
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    other.write_all(b"other\n").unwrap();
    process.kill();
    drop(other);
    assert_eq!(log_after(folder.path(), &image, Appended::Cut), "hello\nother\n");
}
