//! No room for an image: an error, and nothing left behind. In a file of its own because the limit
//! that stands in for a full disk (without root) holds for a whole process.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::checkpoint;
use eyrie_image::CaptureError;
use std::fs;
use std::process::Command;

#[test]
fn no_space_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let process = common::start_waiting(folder.path(), "w-full", &["10000"]);
    let full = folder.path().join("full");
    fs::create_dir(&full).unwrap();
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    let error = if root {
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64k", "none"])
            .arg(&full)
            .status()
            .unwrap();
        assert!(mount.success());
        let error = checkpoint(process.pid, &full.join("image"));
        let left = common::files_in(&full);
        assert!(Command::new("umount").arg(&full).status().unwrap().success());
        assert!(left.is_empty(), "{left:?}");
        error
    } else {
        // Without the right to mount, a limit on the size of files stands in for a full disk. It
        // holds for this whole test process, which is why this test has one of its own.
        let error = limited(|| checkpoint(process.pid, &full.join("image")));
        assert!(common::files_in(&full).is_empty());
        error
    };
    match error {
        Err(CaptureError::NoSpace { .. }) => {}
        other => panic!("{other:?}"),
    }
    assert_eq!(common::children_named("w-full"), [process.pid]);
}

/// Runs with a limit of 64 KiB on files and `SIGXFSZ` ignored, as a daemon that wants an error
/// does.
fn limited<T>(run: impl FnOnce() -> T) -> T {
    let mut old = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls on live structures.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        libc::getrlimit(libc::RLIMIT_FSIZE, &mut old);
        let new = libc::rlimit { rlim_cur: 65536, rlim_max: old.rlim_max };
        libc::setrlimit(libc::RLIMIT_FSIZE, &new);
    }
    let result = run();
    // SAFETY: as above.
    unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &old) };
    result
}
