//! What lies in the address space besides plain memory: frozen, killed and restored three times in
//! a row, the result is that of an undisturbed run.

mod common;

use common::survives;

#[test]
fn mappings_where_the_restorer_works() {
    survives("occupy", &[], &["4000"], 3);
}

#[test]
fn shared_memory_without_a_file() {
    survives("shared", &["-lrt"], &["400"], 3);
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
        5,
    );
}
