//! What lies in the address space besides plain memory: frozen, killed and restored three times in
//! a row, the result is that of an undisturbed run.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{Process, survives};
use std::sync::Mutex;

#[test]
fn mappings_where_the_restorer_works() {
    survives("occupy", &[], &["4000"], 3);
}

#[test]
fn shared_memory_without_a_file() {
    survives("shared", &["-lrt"], &["400"], 3);
}

#[test]
fn private_views_of_shared_memory_without_a_file() {
    survives("views", &["-lrt"], &["20000"], 3);
}

/// One test of these segments at a time: a number that is free for a moment would be given to the
/// other one's.
static SYSTEM_V: Mutex<()> = Mutex::new(());

#[test]
fn system_v_segments() {
    let _alone = SYSTEM_V.lock();
    // The number of a segment that is gone can only be had again with privileges; here the one with
    // a name is not gone.
    survives("sysv", &[], &["2000"], 3);
}

#[test]
fn a_system_v_segment_that_is_gone_is_made_again() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("NOT RUN: choosing the number of a segment is a privilege");
        return;
    }
    let _alone = SYSTEM_V.lock();
    let folder = tempfile::tempdir().unwrap();
    let program = common::compile(folder.path(), "sysv", &[]);
    let mut process = Process::start(&program, &["2000000"], folder.path());
    let image = folder.path().join("image");
    let key = 0x4559_0000 | (process.pid & 0xffff);
    let number = || {
        // SAFETY: numbers only.
        unsafe { libc::shmget(key, 0, 0) }
    };
    while number() < 0 {
        std::thread::yield_now();
    }
    let before = number();
    common::checkpoint(process.pid, &image).unwrap();
    process.kill();
    // SAFETY: removes the segment of the program just killed.
    unsafe { libc::shmctl(before, libc::IPC_RMID, std::ptr::null_mut()) };
    assert!(number() < 0);
    let mut again = common::bring_back(&image);
    assert_eq!(number(), before);
    common::checkpoint(again.pid, &image).unwrap();
    again.kill();
    // SAFETY: as above.
    unsafe { libc::shmctl(before, libc::IPC_RMID, std::ptr::null_mut()) };
}

#[test]
fn what_cannot_come_back_is_refused_by_name() {
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    for (what, expected, privileged) in [
        ("io_uring", "a ring of io_uring", false),
        ("aio", "a context of asynchronous I/O (io_setup)", false),
        ("secret", "secret memory (memfd_secret)", false),
        ("seccomp", "has installed a seccomp filter", false),
        ("chroot", "has another root folder (chroot)", true),
        ("rights", "has other rights than the one who checkpoints it (CapBnd)", true),
    ] {
        if privileged && !root {
            println!("NOT RUN: {what} is a privilege");
            continue;
        }
        let folder = tempfile::tempdir().unwrap();
        let program = common::compile(folder.path(), "strange", &[]);
        let process = Process::start(&program, &[what], folder.path());
        common::wait_for_line(folder.path());
        let said = std::fs::read_to_string(folder.path().join("ready")).unwrap();
        if said.contains("cannot") {
            println!("NOT RUN: this kernel has no {what}");
            continue;
        }
        let error = common::checkpoint(process.pid, &folder.path().join("image")).unwrap_err();
        assert!(error.to_string().contains(expected), "{what}: {error}");
    }
}

/// One kind of memory of `mapkinds.c`.
fn kind(name: &str, rounds: &str) {
    survives("mapkinds", &[], &[name, rounds], 3);
}

#[test]
fn locked_memory() {
    kind("locked", "2000");
}

#[test]
fn advice_and_guards() {
    kind("advice", "1500");
}

#[test]
fn a_stack_that_grows_between_freezes() {
    kind("grows", "300000");
}

#[test]
fn protection_keys() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    if !cpuinfo.contains(" ospke") {
        println!("NOT RUN: this processor has no protection keys");
        return;
    }
    kind("keys", "1000");
}

#[test]
fn sealed_memory() {
    // SAFETY: no pages at all.
    if unsafe { libc::syscall(462, 0, 0, 0) } < 0 {
        println!("NOT RUN: this kernel has no mseal");
        return;
    }
    kind("sealed", "1000");
}

/// Huge pages set aside for the time of a test, and given back.
struct HugePages(String);

const POOL: &str = "/proc/sys/vm/nr_hugepages";

impl HugePages {
    fn set_aside(count: usize) -> Option<HugePages> {
        let before = std::fs::read_to_string(POOL).ok()?;
        std::fs::write(POOL, (count + before.trim().parse::<usize>().ok()?).to_string()).ok()?;
        let pages = HugePages(before);
        let now: usize = std::fs::read_to_string(POOL).ok()?.trim().parse().ok()?;
        (now >= count).then_some(pages)
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        std::fs::write(POOL, &self.0).unwrap();
    }
}

#[test]
fn huge_pages_of_the_administrator() {
    // Room for the program and its image's making, and none for a twin's copies.
    let Some(_pages) = HugePages::set_aside(6) else {
        println!("NOT RUN: no huge pages may be set aside here");
        return;
    };
    kind("huge", "60");
}

/// Without root, and with the page tables read in the old way.
#[test]
fn without_privileges_and_without_pagemap_scan() {
    common::as_nobody(
        "mappings",
        &["mappings_where", "shared_", "locked_", "advice_", "a_stack"],
        6,
    );
}
