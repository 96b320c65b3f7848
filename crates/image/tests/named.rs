//! Named shared memory and semaphores: they hold at a restore what they held at the checkpoint,
//! whatever happened to them since; and nobody else's are touched.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Process, bring_back, checkpoint, compile, restorer, survives};
use eyrie_image::{CaptureError, RestoreError, RestoreSpec, restore};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Names of a test's own, removed at its end.
struct Names(String);

impl Names {
    fn new(test: &str) -> Names {
        Names(format!("eyrie-test-{test}-{}", std::process::id()))
    }

    /// The first segment.
    fn path(&self) -> PathBuf {
        format!("/dev/shm/{}.0", self.0).into()
    }
}

impl Drop for Names {
    fn drop(&mut self) {
        for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.strip_prefix("sem.").unwrap_or(&name).starts_with(&self.0) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

fn try_restore(image: &Path, restorer: &Path) -> Result<libc::pid_t, RestoreError> {
    let null = || File::options().read(true).write(true).open("/dev/null").unwrap().into();
    let spec = RestoreSpec {
        image,
        restorer,
        stdio: [null(), null(), null()],
        segments: vec![],
        start_stopped: false,
        options: Default::default(),
    };
    restore(spec)
}

#[test]
fn segments_and_semaphores() {
    let names = Names::new("alone");
    survives("posix", &["-lrt"], &["alone", "4000", &names.0], 3);
}

#[test]
fn a_parent_and_its_child_take_turns() {
    common::adopt_orphans();
    if !eyrie_image::may_choose_numbers() {
        println!("NOT RUN: process numbers cannot be chosen here");
        return;
    }
    let names = Names::new("pair");
    survives("posix", &["-lrt"], &["pair", "4000", &names.0], 3);
}

#[test]
fn python_with_helpers_that_were_spawned() {
    common::adopt_orphans();
    if !eyrie_image::may_choose_numbers() {
        println!("NOT RUN: process numbers cannot be chosen here");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{}/tests/programs/processes.py", env!("CARGO_MANIFEST_DIR"));
    let python = Path::new("/usr/bin/python3").canonicalize().unwrap();
    // Those whose processes are all killed leave theirs.
    let names = Names::new("python");
    let args = [&script, "2000", "spawn", &format!("/{}", names.0)];
    common::program_survives(folder.path(), &python, &args, 3);
}

#[test]
fn those_that_are_gone_are_made_again() {
    let names = Names::new("gone");
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "posix", &["-lrt"]);
    let mut process = Process::start(&program, &["alone", "4000", &names.0], folder.path());
    process.succeed();
    let expected = fs::read(folder.path().join("out")).unwrap();
    fs::remove_file(folder.path().join("out")).unwrap();
    fs::remove_file(folder.path().join("ready")).unwrap();
    process = Process::start(&program, &["alone", "4000", &names.0], folder.path());
    common::wait_for_line(folder.path());
    for cycle in 0..3 {
        let image = folder.path().join(format!("image{cycle}"));
        match checkpoint(process.pid, &image) {
            // On a busy machine it may be over by then.
            Err(CaptureError::Gone) if cycle > 0 => break,
            other => other.unwrap(),
        };
        process.kill();
        // Gone in any case, if the program has ended meanwhile.
        let _ = fs::remove_file(names.path());
        // A restore that fails leaves no trace of it.
        try_restore(&image, Path::new("/bin/true")).unwrap_err();
        assert!(!names.path().exists());
        process = bring_back(&image);
        let mode = fs::metadata(names.path()).map(|m| m.permissions().mode());
        // The program may have ended and removed it.
        assert!(mode.is_err() || mode.unwrap() & 0o777 == 0o640);
    }
    process.succeed();
    let said = fs::read_to_string(folder.path().join("stdout")).unwrap_or_default();
    assert_eq!(fs::read(folder.path().join("out")).unwrap(), expected, "{said}");
}

#[test]
fn those_that_others_share_are_left_alone() {
    let names = Names::new("others");
    let (folder, beside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let program = compile(folder.path(), "posix", &["-lrt"]);
    let hold = || {
        let _ = fs::remove_file(beside.path().join("ready"));
        let other = Process::start(&program, &["hold", &names.0], beside.path());
        common::wait_for_line(beside.path());
        other
    };
    let mut process = Process::start(&program, &["alone", "100000000", &names.0], folder.path());
    common::wait_for_line(folder.path());
    let image = folder.path().join("image");
    let mut other = hold();
    let shown = names.path().display().to_string();
    let said = checkpoint(process.pid, &image).unwrap_err().to_string();
    let why = format!("shared with process {}, which is not checkpointed", other.pid);
    assert!(said.contains(&why) && said.contains(&shown), "{said}");
    assert!(!image.exists());
    other.kill();
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    let now = fs::read(names.path()).unwrap();
    let mut other = hold();
    let said = try_restore(&image, restorer()).unwrap_err().to_string();
    let why = format!("shared with process {}, which is not restored", other.pid);
    assert!(said.contains(&why) && said.contains(&shown), "{said}");
    other.kill();
    // One that fails late changes nothing either.
    try_restore(&image, Path::new("/bin/true")).unwrap_err();
    assert!(fs::read(names.path()).unwrap() == now);
    let mut again = bring_back(&image);
    checkpoint(again.pid, &image).unwrap();
    again.kill();
}

#[test]
fn without_privileges() {
    let tests = ["segments_and", "those_that_are_gone", "those_that_others"];
    common::as_nobody("named-nobody", &tests, 3);
}
