//! A restored process has its old number wherever the caller may choose it: what its threads hold
//! in libc (locks with an owner) is known by their numbers.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{Process, bring_back, checkpoint, compile_as, wait_for_line};
use eyrie_image::Frozen;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

/// A process that leads its group, as a shell or a launcher starts it.
#[test]
fn a_twin_does_not_keep_the_number_of_a_killed_leader() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("NOT RUN: only root may choose process numbers");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let program = compile_as(folder.path(), "waiting", "numbers", &[]);
    let mut command = Command::new(program);
    command.current_dir(folder.path()).process_group(0);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut process = Process::spawn(&mut command);
    wait_for_line(folder.path());
    let (older, newer) = (folder.path().join("older"), folder.path().join("newer"));
    checkpoint(process.pid, &older).unwrap();
    let mut frozen = Frozen::stop(process.pid).unwrap();
    let twin = frozen.twin().unwrap();
    frozen.release().unwrap();
    process.kill();
    let mut again = bring_back(&older);
    assert_eq!(again.pid, process.pid);
    twin.write_image(&newer, b"meta").unwrap();
    again.kill();
    assert_eq!(bring_back(&newer).pid, process.pid);
}
