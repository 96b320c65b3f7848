//! Programs are frozen at random instants, killed and restored, three times in a row; the result is
//! that of an undisturbed run.

mod common;

use common::{does_not_notice, survives};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

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
    survives("signals", &[], &["60"], 3);
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
    does_not_notice("signals", &["60"]);
    does_not_notice("clock", &["1000000"]);
    does_not_notice("plain", &["1000"]);
}

/// Without root, and with the page tables read in the old way.
#[test]
fn without_privileges_and_without_pagemap_scan() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("all tests of this file already run without privileges");
        return;
    }
    let nobody = 65534;
    let folder = tempfile::tempdir().unwrap();
    let own = |path: &Path| {
        std::os::unix::fs::chown(path, Some(nobody), Some(nobody)).unwrap();
    };
    own(folder.path());
    let exe = folder.path().join("survive");
    let restorer = folder.path().join("eyrie-restorer");
    std::fs::copy(std::env::current_exe().unwrap(), &exe).unwrap();
    std::fs::copy(common::restorer(), &restorer).unwrap();
    let output = Command::new(&exe)
        .args(["--nocapture", "heap_", "state_in", "signals_", "mapped_", "protected_", "open_"])
        .env("EYRIE_TEST_RESTORER", &restorer)
        .env("EYRIE_IMAGE_NO_PAGEMAP_SCAN", "1")
        .env("TMPDIR", folder.path())
        .current_dir(folder.path())
        .uid(nobody)
        .gid(nobody)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}\n{errors}");
    assert!(text.contains("8 passed"), "{text}");
}
