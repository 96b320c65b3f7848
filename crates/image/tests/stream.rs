//! Images that are sent while they are pulled, and what is left when one end goes away.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Process, Random, bring_back, compile, files_in, start_waiting};
use eyrie_image::{CaptureError, Frozen, Image, Twin, receive};
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

fn twin(pid: libc::pid_t) -> Result<Twin, CaptureError> {
    let mut frozen = match Frozen::stop(pid) {
        Ok(frozen) => frozen,
        Err(_) => return Err(CaptureError::Gone),
    };
    let twin = frozen.twin()?;
    let _ = frozen.release();
    Ok(twin)
}

/// Sends an image through a socket to a thread that stores it.
fn send(pid: libc::pid_t, image: &Path) -> Result<u64, CaptureError> {
    let twin = twin(pid)?;
    let (to, mut from) = UnixStream::pair().unwrap();
    let received = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&mut from, image));
        twin.write_stream(to, b"sent")?;
        Ok::<u64, CaptureError>(receiver.join().unwrap()?)
    })?;
    assert_eq!(received, fs::metadata(image).unwrap().len());
    assert_eq!(Image::open(image).unwrap().meta(), b"sent");
    Ok(received)
}

#[test]
fn a_process_goes_on_from_an_image_that_was_sent() {
    let folder = tempfile::tempdir().unwrap();
    let program = compile(folder.path(), "bigheap", &[]);
    let run = |name: &str| {
        let sub = folder.path().join(name);
        fs::create_dir(&sub).unwrap();
        let process = Process::start(&program, &["3"], &sub);
        (sub, process)
    };
    let (plain, mut process) = run("undisturbed");
    process.succeed();
    let mut random = Random::new();
    let (sent, mut process) = run("sent");
    for cycle in 0..3 {
        // Random instants; the first is early enough for any machine.
        std::thread::sleep(Duration::from_millis(random.below(200) * cycle));
        let image = sent.join(format!("image{cycle}"));
        match send(process.pid, &image) {
            Err(CaptureError::Gone) if cycle > 0 => break,
            other => other.unwrap(),
        };
        process.kill();
        process = bring_back(&image);
    }
    process.succeed();
    assert_eq!(fs::read(plain.join("out")).unwrap(), fs::read(sent.join("out")).unwrap());
}

/// Passes on so many bytes and then fails.
struct Broken(usize);

impl Write for Broken {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::BrokenPipe)?;
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_receiver_that_goes_away_is_an_error_and_does_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-unheard", &["10000"]);
    let mut whole = Vec::new();
    twin(process.pid).unwrap().write_stream(&mut whole, b"").unwrap();
    for cut in [0, 5000, whole.len() / 2, whole.len() - 1] {
        let error = twin(process.pid).unwrap().write_stream(Broken(cut), b"").unwrap_err();
        assert!(error.to_string().starts_with("send the image"), "{error}");
        assert_eq!(common::children_named("w-unheard"), [process.pid]);
    }
    let image = folder.path().join("image");
    common::checkpoint(process.pid, &image).unwrap();
    Image::open(&image).unwrap();
}

#[test]
fn a_stream_that_ends_early_or_is_longer_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let process = start_waiting(folder.path(), "w-unsent", &["10000"]);
    let mut whole = Vec::new();
    twin(process.pid).unwrap().write_stream(&mut whole, b"").unwrap();
    let image = folder.path().join("image");
    let before = files_in(folder.path());
    for cut in [0, 1, 4096, 8192, whole.len() / 2, whole.len() - 4096, whole.len() - 1] {
        assert!(receive(&mut &whole[..cut], &image).is_err(), "cut to {cut}");
    }
    let longer = whole.iter().copied().chain([0; 4096]).collect::<Vec<u8>>();
    assert!(receive(&mut longer.as_slice(), &image).is_err());
    assert!(receive(&mut io::repeat(7).take(3 << 20), &image).is_err());
    assert_eq!(files_in(folder.path()), before);
    receive(&mut whole.as_slice(), &image).unwrap();
    Image::open(&image).unwrap();
}
