//! What a process has open comes back as it was, with what was in flight: programs that look at it
//! again and again are frozen at random instants, killed and restored, three times in a row.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{
    Process, appears, bring_back, checkpoint, compile, start_waiting, starts_all_the_time, survives,
};
use eyrie_image::Frozen;
use std::fs;

#[test]
fn pipes() {
    survives("pipes", &[], &["30000"], 3);
}

#[test]
fn socketpairs() {
    survives("pairs", &[], &["20000"], 3);
}

#[test]
fn counters_timers_and_signals() {
    survives("counters", &[], &["20000"], 3);
}

#[test]
fn epoll_instances() {
    survives("epoll", &[], &["20000"], 3);
}

/// Of itself, also under another number, and of a process that nobody can name any more.
#[test]
fn pidfds_of_a_process_alone() {
    survives("pidfds", &[], &["20000"], 3);
}

#[test]
fn a_pidfd_of_a_process_that_is_not_checkpointed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-pidfd", &["10000", "parent-pidfd"]);
    let error = checkpoint(process.pid, &folder.path().join("image")).unwrap_err().to_string();
    let expected = format!("a pidfd of process {} (", std::process::id());
    assert!(error.contains(&expected) && error.contains("not checkpointed with this"), "{error}");
}

#[test]
fn files_without_a_path() {
    survives("unlinked", &[], &["20000"], 3);
}

/// Events that wait to be read are refused, and then it is tried again.
#[test]
fn watched_folders() {
    survives("watching", &[], &["20000"], 3);
}

#[test]
fn posix_timers() {
    survives("timers", &[], &["300"], 3);
}

#[test]
fn file_locks() {
    survives("locking", &[], &["20000"], 3);
}

#[test]
fn pseudo_terminals() {
    survives("ptys", &[], &["30000"], 3);
}

/// A descriptor of `/dev/tty` is one of the terminal that it stands for.
#[test]
fn a_name_of_the_controlling_terminal() {
    survives("ptys", &[], &["30000", "held"], 3);
}

#[test]
fn named_unix_sockets() {
    survives("named", &[], &["20000"], 3);
}

#[test]
fn tcp_connections() {
    survives("tcp", &[], &["10000"], 3);
}

/// Others are being started all the time, and take long to execute their programs: they have copies
/// of what is open here for a restored process, or borrowed from a frozen one.
#[test]
fn who_runs_has_what_it_closes_alone() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "alone", &[]);
    let sub = |n: usize| {
        let sub = folder.path().join(n.to_string());
        fs::create_dir(&sub).unwrap();
        sub
    };
    let others = starts_all_the_time();
    for number in 0..3 {
        let sub = sub(number);
        let mut process = Process::start(&program, &[], &sub);
        appears(&sub.join("begun"));
        let go = || fs::write(sub.join("go"), "").unwrap();
        if number > 0 {
            let image = sub.join("image");
            checkpoint(process.pid, &image).unwrap();
            process.kill();
            go();
            process = bring_back(&image);
        } else {
            let mut frozen = Frozen::stop(process.pid).unwrap();
            let twin = frozen.twin().unwrap();
            go();
            frozen.release().unwrap();
            drop(twin);
        }
        let status = process.wait();
        let said = fs::read_to_string(sub.join("stdout")).unwrap();
        assert_eq!(status, 0, "number {number}: {said}");
    }
    drop(others);
}

/// What a reader has no room for is read where the sender keeps it, which takes CAP_NET_ADMIN.
#[test]
fn more_than_a_tcp_reader_has_room_for() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("NOT RUN: this takes CAP_NET_ADMIN");
        return;
    }
    survives("tcp", &[], &["10000", "full"], 3);
}

/// Without root, and with the page tables read in the old way.
#[test]
fn without_privileges() {
    let tests = [
        "pipes",
        "socketpairs",
        "counters_",
        "epoll_",
        "pidfds_",
        "a_pidfd_",
        "files_",
        "watched_",
        "posix_",
        "file_locks",
        "tcp_",
        "who_runs_",
        "named_",
        "pseudo_",
        "a_name_of",
    ];
    common::as_nobody("descriptors", &tests, 16);
}
