//! What must be refused, and what must be left behind when something dies in the middle: nothing.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test
#![allow(unsafe_code)]

mod common;

use common::{
    Process, appears, bring_back, checkpoint, children_named, compile_as, files_in, restorer,
    start_waiting, wait_for_line,
};
use eyrie_image::{
    CaptureError, FreezeError, Frozen, Image, ImageError, Mode, RestoreError, RestoreSpec, Tracker,
    Tracking, fits_here, restore,
};
use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

fn stdio() -> [OwnedFd; 3] {
    [0; 3].map(|_| File::options().read(true).write(true).open("/dev/null").unwrap().into())
}

fn try_restore(image: &Path) -> Result<libc::pid_t, RestoreError> {
    let spec = RestoreSpec {
        image,
        restorer: restorer(),
        stdio: stdio(),
        segments: vec![],
        start_stopped: false,
        options: Default::default(),
    };
    restore(spec)
}

#[test]
fn damaged_images_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let process = start_waiting(folder.path(), "w-damaged", &["10000"]);
    checkpoint(process.pid, &image).unwrap();
    drop(process);
    let good = fs::read(&image).unwrap();
    assert_eq!(Image::open(&image).unwrap().summary().comm, "w-damaged");
    let bad = folder.path().join("bad");
    for cut in [0, 1, 100, 4095, 4096, good.len() / 2, good.len() - 1] {
        fs::write(&bad, &good[..cut]).unwrap();
        assert!(Image::open(&bad).is_err(), "cut to {cut}");
    }
    let mut longer = good.clone();
    longer.push(0);
    fs::write(&bad, &longer).unwrap();
    assert!(matches!(Image::open(&bad), Err(ImageError::Length { .. })));
    // Every byte of header and tables, and a sample of the pages.
    let tables = good.len() - 4096;
    let positions =
        (0..4096).step_by(7).chain((4096..tables).step_by(997)).chain(tables..good.len());
    let mut damaged = good.clone();
    let file = File::create(&bad).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &good, 0).unwrap();
    for position in positions {
        damaged[position] ^= 1 << (position % 8);
        let byte = [damaged[position]];
        std::os::unix::fs::FileExt::write_all_at(&file, &byte, position as u64).unwrap();
        assert!(Image::open(&bad).is_err(), "bit flipped in byte {position}");
        damaged[position] = good[position];
        let byte = [good[position]];
        std::os::unix::fs::FileExt::write_all_at(&file, &byte, position as u64).unwrap();
    }
    assert!(Image::open(&bad).is_ok());
    std::os::unix::fs::FileExt::write_all_at(&file, &[1], 5000).unwrap();
    assert!(try_restore(&bad).is_err());
    assert!(
        matches!(try_restore(&folder.path().join("none")), Err(e) if e.to_string().contains("none"))
    );
}

/// Pages are only looked at when they are loaded; damage is told as when all is looked at before.
#[test]
fn damage_found_while_loading_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    let process = start_waiting(folder.path(), "w-unverified", &["10000"]);
    checkpoint(process.pid, &image).unwrap();
    drop(process);
    drop(Process::of(try_restore(&image).unwrap()));
    let file = File::options().write(true).read(true).open(&image).unwrap();
    let mut byte = [0];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut byte, 5000).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[byte[0] ^ 1], 5000).unwrap();
    let error = try_restore(&image).unwrap_err().to_string();
    assert!(error.contains("checksum"), "{error}");
    assert_eq!(error, Image::open(&image).unwrap_err().to_string());
    assert_eq!(children_named("w-unverified"), []);
}

#[test]
fn what_cannot_come_back_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    for (what, expected) in [
        ("pipe", "a pipe to a process outside"),
        ("unix", "to a process outside"),
        ("tcp", "whose other end is in no process that is checkpointed with this one"),
        ("rights", "with file descriptors in flight"),
        ("events", "events that the program has not read"),
        ("uring", "io_uring"),
    ] {
        fs::remove_file(folder.path().join("ready")).ok();
        let process = start_waiting(folder.path(), "w-refused", &["10000", what]);
        let error = checkpoint(process.pid, &folder.path().join("image")).unwrap_err();
        assert!(error.to_string().contains(expected), "{what}: {error}");
        assert!(!files_in(folder.path()).iter().any(|f| f.contains("image")));
        assert_eq!(children_named("w-refused"), [process.pid], "{what}");
    }
}

#[test]
fn a_traced_process_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-traced", &["10000"]);
    let pid = process.pid;
    let frozen = Frozen::stop(pid).unwrap();
    let other = std::thread::spawn(move || Frozen::stop(pid).map(drop).unwrap_err());
    assert!(matches!(other.join().unwrap(), FreezeError::Traced));
    frozen.release().unwrap();
    Frozen::stop(pid).unwrap().release().unwrap();
}

#[test]
fn a_process_killed_during_capture_is_gone_and_leaves_no_twin() {
    killed_during_capture("w-killed", &["10000"], false, 1500);
}

#[test]
fn a_process_with_threads_killed_during_capture_is_gone_too() {
    killed_during_capture("w-killed-too", &["10000", "threads"], true, 12_000);
}

fn killed_during_capture(name: &str, args: &[&str], when_ready: bool, longest_us: u64) {
    let folder = tempfile::tempdir().unwrap();
    let mut random = common::Random::new();
    let mut outcomes = [0; 2];
    let program = compile_as(folder.path(), "waiting", name, &[]);
    for round in 0..200 {
        fs::remove_file(folder.path().join("ready")).ok();
        let mut process = Process::start(&program, args, folder.path());
        if when_ready {
            common::wait_for_line(folder.path());
        }
        let pid = process.pid;
        let delay = Duration::from_micros(random.below(longest_us));
        let killer = std::thread::spawn(move || {
            std::thread::sleep(delay);
            // SAFETY: a child that is reaped only after this thread is joined.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        });
        let image = folder.path().join(format!("image{round}"));
        let result = checkpoint(pid, &image);
        killer.join().unwrap();
        // Its exit status is still there for its parent.
        let status = process.wait();
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL);
        match result {
            Ok(_) => {
                outcomes[0] += 1;
                Image::open(&image).unwrap();
            }
            Err(CaptureError::Gone) => outcomes[1] += 1,
            Err(other) => panic!("round {round}: {other}"),
        }
        assert_eq!(children_named(name), [], "round {round}");
    }
    println!("{} images, {} gone", outcomes[0], outcomes[1]);
    let left = files_in(folder.path());
    assert!(!left.iter().any(|f| f.contains("tmp")), "{left:?}");
}

#[test]
fn a_killed_twin_is_an_error_and_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-twinless", &["10000"]);
    let mut frozen = Frozen::stop(process.pid).unwrap();
    let twin = frozen.twin().unwrap();
    frozen.release().unwrap();
    // SAFETY: the twin is ours.
    unsafe { libc::kill(twin.pid(), libc::SIGKILL) };
    let image = folder.path().join("image");
    assert!(matches!(twin.write_image(&image, b""), Err(CaptureError::TwinGone)));
    assert!(!files_in(folder.path()).iter().any(|f| f.contains("image")));
    assert_eq!(children_named("w-twinless"), [process.pid]);
    // The process itself is none the worse for it.
    checkpoint(process.pid, &image).unwrap();
}

#[test]
fn a_mapped_file_that_changed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-changed", &["10000"]);
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    let program = folder.path().join("w-changed");
    let mut content = fs::read(&program).unwrap();
    fs::remove_file(&program).unwrap();
    let refused = |word: &str| {
        for error in [try_restore(&image).unwrap_err(), fits_here(&image, &[]).unwrap_err()] {
            assert!(matches!(error, RestoreError::File { .. }), "{error}");
            let text = error.to_string();
            assert!(text.contains("w-changed") && text.contains(word), "{text}");
        }
    };
    refused("gone");
    // The flags of an ELF header, which nobody looks at, but which are mapped.
    content[48] ^= 1;
    fs::write(&program, &content).unwrap();
    refused("content");
    content[48] ^= 1;
    fs::write(&program, [&content[..], &[0]].concat()).unwrap();
    refused("content");
    fs::remove_file(&program).unwrap();
    fs::create_dir(&program).unwrap();
    refused("kind");
    assert_eq!(children_named("w-changed"), []);
}

/// A library that lies where its program looks for it.
fn library(folder: &Path) -> PathBuf {
    let (source, library) = (folder.join("part.c"), folder.join("libpart.so"));
    let text = "int part(int n) { static int sum = 5; return sum += n; }\n";
    fs::write(&source, text).unwrap();
    let mut cc = Command::new("cc");
    let status = cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(status.success());
    library
}

#[test]
fn the_same_library_as_another_file_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let library = library(folder.path());
    let flags = ["-Wl,--no-as-needed", library.to_str().unwrap()];
    let program = compile_as(folder.path(), "waiting", "w-part", &flags);
    let mut process = Process::start(&program, &["10000"], folder.path());
    wait_for_line(folder.path());
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    let first = fs::metadata(&library).unwrap();
    // Twice, as what was compared before is known the second time.
    for round in 0..2 {
        for name in [&library, &program] {
            let copy = folder.path().join("copy");
            fs::copy(name, &copy).unwrap();
            fs::rename(&copy, name).unwrap();
        }
        let now = fs::metadata(&library).unwrap();
        assert!(now.modified().unwrap() != first.modified().unwrap());
        assert!(now.ino() != first.ino() || round == 1);
        fits_here(&image, &[]).unwrap();
        let mut again = bring_back(&image);
        checkpoint(again.pid, &image).unwrap();
        again.kill();
    }
    // All others stay as they are: the loader's, and the C library's.
    let mut content = fs::read(&library).unwrap();
    content[48] ^= 1;
    fs::write(&library, content).unwrap();
    for error in [try_restore(&image).unwrap_err(), fits_here(&image, &[]).unwrap_err()] {
        let text = error.to_string();
        assert!(text.contains("libpart.so") && text.contains("same version"), "{text}");
    }
}

#[test]
fn a_lock_that_somebody_else_holds_is_told_as_that() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile_as(folder.path(), "locking", "w-locking", &[]);
    let mut process = Process::start(&program, &["1000000000"], folder.path());
    let data = folder.path().join("data");
    appears(&data);
    let file = File::open(&data).unwrap();
    while file.try_lock().is_ok() {
        file.unlock().unwrap();
        std::thread::yield_now();
    }
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    file.try_lock().unwrap();
    let error = try_restore(&image).unwrap_err();
    assert!(matches!(error, RestoreError::Locked { .. }), "{error}");
    assert!(error.to_string().contains("somebody else holds"), "{error}");
    file.unlock().unwrap();
    drop(bring_back(&image));
}

/// An image with nothing of what files hold.
fn checkpoint_without_files(pid: libc::pid_t, image: &Path) {
    let mut tracker = Tracker::new(Tracking::Auto);
    tracker.keep_files(0);
    let mut frozen = Frozen::stop(pid).unwrap();
    let snapshot = frozen.snapshot(image, &mut tracker, Mode::Auto).unwrap();
    frozen.release().unwrap();
    snapshot.write_image(b"meta", &mut tracker).unwrap();
}

#[test]
fn an_open_file_that_shrank_or_went_is_named_or_made_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-shrunk", &["10000", "log"]);
    let (image, bare) = (folder.path().join("image"), folder.path().join("bare"));
    checkpoint_without_files(process.pid, &bare);
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    let log = folder.path().join("log");
    let whole = fs::read(&log).unwrap();
    let shrink = || {
        let writer = File::options().write(true).open(&log).unwrap();
        writer.set_len(1).unwrap();
    };
    shrink();
    let error = try_restore(&bare).unwrap_err().to_string();
    assert!(error.contains("log") && error.contains("shrunk"), "{error}");
    // What was appended after the checkpoint is cut off at restore, and only then.
    fs::write(&log, [whole.as_slice(), b"and more"].concat()).unwrap();
    drop(bring_back(&bare));
    assert_eq!(fs::read(&log).unwrap(), whole);
    fs::remove_file(&log).unwrap();
    let error = try_restore(&bare).unwrap_err().to_string();
    assert!(error.contains("log") && error.contains("gone"), "{error}");
    // With what it held it is made again, and what is missing of it comes back.
    for harm in [&(|| ()) as &dyn Fn(), &shrink] {
        harm();
        drop(bring_back(&image));
        assert_eq!(fs::read(&log).unwrap(), whole);
    }
}

#[test]
fn a_missing_restorer_and_a_wrong_one_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-restorerless", &["10000"]);
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    for restorer in ["/nowhere/restorer", "/dev/null", "/bin/true"] {
        let spec = RestoreSpec {
            image: &image,
            restorer: Path::new(restorer),
            stdio: stdio(),
            segments: vec![],
            start_stopped: false,
            options: Default::default(),
        };
        assert!(restore(spec).is_err(), "{restorer}");
    }
}

#[test]
fn started_stopped_it_waits_for_sigcont() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start_waiting(folder.path(), "w-stopped", &["10000"]);
    let image = folder.path().join("image");
    checkpoint(process.pid, &image).unwrap();
    process.kill();
    let spec = RestoreSpec {
        image: &image,
        restorer: restorer(),
        stdio: stdio(),
        segments: vec![],
        start_stopped: true,
        options: Default::default(),
    };
    let process = Process::of(restore(spec).unwrap());
    let mut status = 0;
    // SAFETY: waits for our own child.
    unsafe {
        assert_eq!(libc::waitpid(process.pid, &mut status, libc::WUNTRACED), process.pid);
        assert!(libc::WIFSTOPPED(status) && libc::WSTOPSIG(status) == libc::SIGSTOP);
        libc::kill(process.pid, libc::SIGCONT);
        assert_eq!(libc::waitpid(process.pid, &mut status, libc::WCONTINUED), process.pid);
        assert!(libc::WIFCONTINUED(status));
    }
}
