//! Programs are frozen at random instants, killed and restored, three times in a row; the result is
//! that of an undisturbed run.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{does_not_notice, survives};

#[test]
fn heap_and_stdio() {
    survives("plain", &[], &["6000"], 3);
}

#[test]
fn static_program() {
    survives("plain", &["-static"], &["6000"], 3);
}

#[test]
fn growing_stack() {
    survives("stack", &[], &["2000"], 3);
}

#[test]
fn avx512_registers() {
    if !std::arch::is_x86_feature_detected!("avx512f") {
        println!("NOT RUN: this processor has no AVX-512");
        return;
    }
    survives("avx512", &["-mavx512f", "-O3"], &["20000000"], 3);
}

#[test]
fn amx_tiles() {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    if !cpuinfo.contains("amx_int8") {
        println!("NOT RUN: this processor has no AMX");
        return;
    }
    survives("amx", &["-mamx-tile", "-mamx-int8"], &["20000000"], 3);
}

#[test]
fn signals_and_timers() {
    survives("signals", &[], &["30"], 3);
}

#[test]
fn inside_the_vdso() {
    survives("clock", &[], &["6000000"], 3);
}

#[test]
fn blocked_in_system_calls() {
    survives("blocked", &[], &["60"], 3);
}

#[test]
fn heap_of_256_mib() {
    survives("bigheap", &[], &["3"], 3);
}

#[test]
fn restartable_sequences() {
    survives("rseq", &[], &["20000"], 3);
}

#[test]
fn protected_and_guard_pages() {
    survives("guards", &[], &["20000"], 3);
}

#[test]
fn mapped_files() {
    survives("mapped", &[], &["200"], 3);
}

#[test]
fn open_files() {
    survives("files", &[], &["40000"], 3);
}

#[test]
fn state_in_the_kernel() {
    // Choosing the process number is a privilege.
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    survives("state", &[], &["3000", if root { "same-pid" } else { "any-pid" }], 3);
}

#[test]
fn state_in_the_kernel_of_a_static_program() {
    survives("state", &["-static"], &["3000", "any-pid"], 3);
}

#[test]
fn frozen_and_let_go_again_and_again() {
    does_not_notice("blocked", &["60"]);
    does_not_notice("signals", &["30"]);
    does_not_notice("clock", &["1000000"]);
    does_not_notice("plain", &["1000"]);
}

/// Without root, and with the page tables read in the old way.
#[test]
fn without_privileges_and_without_pagemap_scan() {
    let tests = ["heap_", "state_in", "signals_", "mapped_", "protected_", "open_"];
    common::as_nobody("survive", &tests, 8);
}

/// The vdso counts as that of another kernel: its functions lead to the one that is there.
#[test]
fn under_another_kernel() {
    let tests = ["inside_the_vdso", "heap_and", "static_", "signals_", "avx512_", "state_in"];
    common::again_with("EYRIE_IMAGE_FOREIGN_VDSO", "1", &tests, 7);
}

/// Every block is compressed, however little it saves.
#[test]
fn with_compressed_images() {
    for codec in ["lz4", "zstd"] {
        let tests = ["heap_", "mapped_", "protected_", "open_"];
        common::again(&tests, 5, &[("EYRIE_IMAGE_CODEC", codec)]);
    }
}

#[test]
fn with_images_written_through_the_page_cache() {
    common::again(&["heap_", "mapped_"], 3, &[("EYRIE_IMAGE_BUFFERED", "1")]);
}
