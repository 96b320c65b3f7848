//! What a restored process is handed anew: standard streams, shared segments, and at times a
//! number.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{Process, checkpoint, compile, restorer};
use eyrie_image::{CaptureError, Image, RestoreError, RestoreSpec, restore};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;

fn segment(name: &std::ffi::CStr) -> File {
    // SAFETY: the name is a C string; the descriptor is new and ours.
    let file = unsafe { File::from_raw_fd(libc::memfd_create(name.as_ptr(), 0)) };
    file.set_len(12288).unwrap();
    file
}

fn pipe() -> (OwnedFd, OwnedFd) {
    let mut ends = [0; 2];
    // SAFETY: fills a live array; the descriptors are new and ours.
    unsafe {
        assert_eq!(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC), 0);
        (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1]))
    }
}

fn count(segment: &File) -> u64 {
    let mut word = [0; 8];
    segment.read_exact_at(&mut word, 4096).unwrap();
    u64::from_le_bytes(word)
}

fn echo(input: &mut impl Write, output: &mut impl BufRead, text: &str) {
    input.write_all(text.as_bytes()).unwrap();
    for _ in 0..2 {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, text);
    }
}

/// Starts `handover.c` with pipes for its streams and the segment under its own number.
fn start(program: &Path, number: RawFd, keep: &str) -> (Process, ChildStdin, ChildStdout) {
    let mut command = Command::new(program);
    command.args([number.to_string().as_str(), keep]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let (process, mut child) = Process::spawn_with(&mut command, number);
    // Stays open: the program writes to it.
    std::mem::forget(child.stderr.take());
    (process, child.stdin.unwrap(), child.stdout.unwrap())
}

fn streams_and_segment(keep: bool) {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "handover", &[]);
    let shared = segment(c"eyrie-job:test");
    let number = shared.as_raw_fd();
    let (mut process, mut input, output) = start(&program, number, if keep { "keep" } else { "" });
    let mut output = BufReader::new(output);
    echo(&mut input, &mut output, "before\n");
    for cycle in 0..3u64 {
        let image = folder.path().join(format!("image{cycle}"));
        checkpoint(process.pid, &image).unwrap();
        assert!(Image::open(&image).unwrap().summary().pages < 200);
        process.kill();
        assert_eq!(count(&shared), cycle + 1);
        let ((stdin, feed), (read, stdout), (errors, stderr)) = (pipe(), pipe(), pipe());
        let spec = RestoreSpec {
            image: &image,
            restorer: restorer(),
            stdio: [stdin, stdout, stderr],
            segments: vec![("eyrie-job:test".into(), shared.try_clone().unwrap().into())],
            start_stopped: false,
            options: Default::default(),
        };
        process = Process::of(restore(spec).unwrap());
        let mut feed = File::from(feed);
        let mut read = BufReader::new(File::from(read));
        echo(&mut feed, &mut read, "after\n");
        let mut mark = [0; 1];
        let mut errors = File::from(errors);
        errors.read_exact(&mut mark).unwrap();
        assert_eq!(&mark, b"!");
        // The next cycle finds these as its standard streams. A second mark may come: it was frozen
        // before it made the one of the line before.
        std::mem::forget((feed, read, errors));
    }
    assert_eq!(count(&shared), 4);
}

#[test]
fn new_streams_and_the_segment_without_its_descriptor() {
    streams_and_segment(false);
}

#[test]
fn new_streams_and_the_segment_with_its_descriptor() {
    streams_and_segment(true);
}

#[test]
fn a_segment_that_is_not_handed_over_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "handover", &[]);
    let shared = segment(c"eyrie-job:lost");
    let number = shared.as_raw_fd();
    let (mut process, mut input, output) = start(&program, number, "");
    echo(&mut input, &mut BufReader::new(output), "x\n");
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    let spec = RestoreSpec {
        image: &image,
        restorer: restorer(),
        stdio: [0; 3].map(|_| File::open("/dev/null").unwrap().into()),
        segments: vec![],
        start_stopped: false,
        options: Default::default(),
    };
    match restore(spec) {
        Err(RestoreError::Segment(name)) => assert_eq!(name, "eyrie-job:lost"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn with_its_number_taken_it_gets_another_and_knows_it() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "state", &[]);
    for flags in [&[][..], &["-static"][..]] {
        let program = if flags.is_empty() {
            program.clone()
        } else {
            common::compile_as(folder.path(), "state", "state-static", flags)
        };
        fs::remove_file(folder.path().join("out")).ok();
        let image = folder.path().join("image");
        // On a busy machine it may be over before it is frozen: then it has more to do.
        let taken = ["3000", "30000", "300000"].iter().find_map(|rounds| {
            fs::remove_dir(folder.path().join("sub")).ok();
            let mut original = Process::start(&program, &[rounds, "any-pid"], folder.path());
            // In its loop as soon as it has made its folder.
            common::appears(&folder.path().join("sub"));
            match checkpoint(original.pid, &image) {
                Ok(_) => Some((original, rounds)),
                Err(CaptureError::Gone) => {
                    original.succeed();
                    None
                }
                Err(e) => panic!("{e}"),
            }
        });
        let (mut original, rounds) = taken.expect("it has been frozen in its loop");
        // The original lives on and keeps its number. It stands still meanwhile: both write the
        // result to one file, and empty it first.
        original.stop();
        let mut again = common::bring_back(&image);
        assert_ne!(again.pid, original.pid);
        again.succeed();
        let result = fs::read_to_string(folder.path().join("out")).unwrap();
        assert_eq!(result, format!("{rounds} rounds 0 wrong\n"));
        original.go_on();
        original.succeed();
        fs::remove_dir(folder.path().join("sub")).unwrap();
    }
}

#[test]
fn with_its_number_taken_it_goes_on_loading_a_library() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "loading", &["-ldl"]);
    let plugin = ["-DPLUGIN", "-shared", "-fPIC", "-ldl"];
    common::compile_as(folder.path(), "loading", "plugin.so", &plugin);
    let at = |name: &str| folder.path().join(name);
    for arguments in [&[][..], &["thread"][..]] {
        ["inside", "go"].iter().for_each(|name| drop(fs::remove_file(at(name))));
        let mut original = Process::start(&program, arguments, folder.path());
        common::appears(&at("inside"));
        checkpoint(original.pid, &at("image")).unwrap();
        // The original lives on, with the dynamic linker's lock held, and keeps its numbers.
        let mut again = common::bring_back(&at("image"));
        assert_ne!(again.pid, original.pid);
        File::create(at("go")).unwrap();
        again.succeed();
        original.succeed();
    }
}

/// Restores a killed process whose number somebody else frees, once the restore waits for it.
fn comes_back_as_it_was_numbered(number: usize) -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut process = common::start_waiting(folder.path(), &format!("w-num{number}"), &["10000"]);
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    let pid = process.pid;
    // SAFETY: our own child, and a call without arguments.
    let own = unsafe {
        libc::kill(pid, libc::SIGKILL);
        libc::gettid()
    };
    let over = AtomicBool::new(false);
    let sleeps = || {
        let call = fs::read_to_string(format!("/proc/self/task/{own}/syscall")).unwrap();
        call.starts_with(&format!("{} ", libc::SYS_clock_nanosleep))
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) && !sleeps() {
                thread::yield_now();
            }
            process.wait();
        });
        let again = common::bring_back(&image);
        over.store(true, Relaxed);
        again.pid == pid
    })
}

#[test]
fn a_number_that_is_free_in_a_moment_is_waited_for() {
    // It is not waited for long: on a busy machine the other thread may be too late.
    assert!((0..20).any(comes_back_as_it_was_numbered));
}

#[test]
fn a_stopped_process_is_frozen_and_stays_stopped_but_its_image_runs() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = common::start_waiting(folder.path(), "w-sigstop", &["10000"]);
    let is = |pid, state: &str| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().any(|l| l.starts_with(&format!("State:\t{state}")))
    };
    let stopped = |pid| is(pid, "T (stopped)");
    let mut status = 0;
    // SAFETY: our own child.
    unsafe {
        libc::kill(process.pid, libc::SIGSTOP);
        assert_eq!(libc::waitpid(process.pid, &mut status, libc::WUNTRACED), process.pid);
    }
    assert!(stopped(process.pid));
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    while !stopped(process.pid) {
        std::thread::yield_now();
    }
    // SAFETY: as above.
    unsafe {
        libc::kill(process.pid, libc::SIGCONT);
        assert_eq!(libc::waitpid(process.pid, &mut status, libc::WCONTINUED), process.pid);
    }
    assert!(!stopped(process.pid));
    process.kill();
    let again = common::bring_back(&image);
    while !is(again.pid, "S (sleeping)") {
        assert!(!stopped(again.pid));
        std::thread::yield_now();
    }
}
