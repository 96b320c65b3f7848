//! Programs with child processes: the family is frozen, killed and restored as a whole.
//!
//! Needs the right to choose process numbers; without it, only that this is said.

mod common;

use common::{program_survives, survives};
use std::path::{Path, PathBuf};

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
fn python_with_helpers_that_were_spawned() {
    if may_choose() {
        let folder = tempfile::tempdir().unwrap();
        let args = [&script("processes.py"), "2000", "spawn"];
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
