//! Clocks that begin with the machine's start go on where another machine goes on. The other one is
//! a time namespace of its own, and a restore that takes it that it is elsewhere.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{Process, bring_back, checkpoint, restorer};
use eyrie_image::{RestoreOptions, RestoreSpec, restore_lazily};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

const AHEAD_S: i64 = 100 * 86400;
const OTHER: &str = "EYRIE_IMAGE_OTHER_BOOT";

/// Whether this process may make time namespaces.
fn may() -> bool {
    let mut test = Command::new("unshare");
    let made = test.args(["--time", "--monotonic", "5", "true"]).status();
    let made = made.is_ok_and(|status| status.success());
    if !made {
        println!("NOT RUN: takes the right to make time namespaces");
    }
    made
}

/// Waits for two rounds of the program.
fn runs(folder: &Path) {
    let rounds = || fs::metadata(folder.join("rounds")).map_or(0, |m| m.len());
    let before = rounds();
    while rounds() < before + 2 {
        std::thread::yield_now();
    }
}

/// Starts `uptime.c` on a machine that has run so much longer than this.
fn start_ahead(folder: &Path, seconds: i64) -> Process {
    let program = common::compile(folder, "uptime", &["-pthread"]);
    let mut command = Command::new(program);
    command.current_dir(folder).stdin(null()).stdout(null()).stderr(null());
    let words = format!("monotonic {seconds} 5\nboottime {} 999999999\n", seconds + 3);
    // SAFETY: system calls on what was made before.
    unsafe {
        command.pre_exec(move || {
            if libc::unshare(libc::CLONE_NEWTIME) != 0 {
                return Err(std::io::Error::last_os_error());
            }
            fs::write("/proc/self/timens_offsets", &words)
        });
    }
    let process = Process::spawn(&mut command);
    runs(folder);
    process
}

fn null() -> OwnedFd {
    File::options().read(true).write(true).open("/dev/null").unwrap().into()
}

fn ahead_of(pid: libc::pid_t) -> String {
    fs::read_to_string(format!("/proc/{pid}/timens_offsets")).unwrap()
}

#[test]
fn clocks_go_on_on_another_machine_and_again_on_the_same() {
    if !may() {
        return;
    }
    // On a machine that has run for longer, and for less time.
    for seconds in [AHEAD_S, -60] {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        let mut process = start_ahead(folder.path(), seconds);
        // Elsewhere, twice, there again, and elsewhere.
        for elsewhere in ["1", "1", "0", "0", "1"] {
            checkpoint(process.pid, &image).unwrap();
            let before = ahead_of(process.pid);
            process.kill_with(common::descendants(process.pid));
            // SAFETY: the only test of this process that reads or sets variables.
            unsafe { std::env::set_var(OTHER, elsewhere) };
            process = bring_back(&image);
            assert_eq!(elsewhere == "0", before == ahead_of(process.pid), "{before}");
            runs(folder.path());
        }
        fs::write(folder.path().join("stop"), "").unwrap();
        process.succeed();
        let said = fs::read_to_string(folder.path().join("out")).unwrap();
        assert!(said.ends_with(" 0 wrong\n"), "{said}");
    }
}

/// Not a test of its own: the other one runs it without the right to set clocks.
#[test]
#[ignore = "run by another test"]
fn restores_without_the_right() {
    let image = std::env::var_os("EYRIE_TEST_IMAGE").unwrap();
    let restored = restore_lazily(RestoreSpec {
        image: Path::new(&image),
        restorer: restorer(),
        stdio: [null(), null(), null()],
        segments: vec![],
        start_stopped: false,
        options: RestoreOptions::default(),
    })
    .unwrap();
    let mut process = Process::of(restored.pid);
    process.kill_with(common::descendants(restored.pid));
    println!("left out: {:?}", restored.left_out);
}

#[test]
fn without_the_right_it_is_said() {
    if !may() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_ahead(folder.path(), AHEAD_S);
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill_with(common::descendants(process.pid));
    let output = Command::new("setpriv")
        .args(["--bounding-set=-sys_time", "--inh-caps=-sys_time"])
        .arg(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", "restores_without_the_right"])
        .env("EYRIE_TEST_RESTORER", restorer())
        .env("EYRIE_TEST_IMAGE", &image)
        .env(OTHER, "0")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("left out: [\"clocks: ") && text.contains("CAP_SYS_TIME"), "{text}");
}
