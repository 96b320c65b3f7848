//! Live pre-copy of programs that go on writing: what was sent in rounds is, in the end, what they
//! hold.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Process, compile};
use eyrie_image::{
    Mode, PageSink, Precopied, PrecopyEnd, PrecopyLimits, Tracker, Tracking, precopy,
};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

const PAGE: usize = 4096;

#[derive(Default)]
struct Pages(BTreeMap<u64, Vec<u8>>);

impl PageSink for Pages {
    fn pages(&mut self, address: u64, content: &[u8]) -> std::io::Result<()> {
        for (i, page) in content.chunks(PAGE).enumerate() {
            self.0.insert(address + (i * PAGE) as u64, page.to_vec());
        }
        Ok(())
    }
}

fn start(folder: &Path) -> Process {
    let program = compile(folder, "churn", &[]);
    let process = Process::start(&program, &[], folder);
    while !fs::metadata(folder.join("out")).is_ok_and(|m| m.len() > 0) {
        std::thread::yield_now();
    }
    process
}

/// Holds what was sent against the memory of the process, which stands still.
fn compare(copied: &Precopied, sent: &Pages) {
    let mem = File::open(format!("/proc/{}/mem", copied.frozen.pid())).unwrap();
    let mut held = vec![0; PAGE];
    let mut pages = 0;
    for page in copied.pages.iter().flat_map(|&(start, end)| (start..end).step_by(PAGE)) {
        if mem.read_exact_at(&mut held, page).is_err() {
            assert!(!sent.0.contains_key(&page), "a page that cannot be read was sent");
            continue;
        }
        assert!(sent.0.get(&page).is_some_and(|sent| *sent == held), "page {page:#x} differs");
        pages += 1;
    }
    assert!(pages > 256, "{pages} pages");
}

#[test]
fn what_was_sent_is_what_it_holds() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path());
    // More than once: what another has noted before is not in the way.
    for pause_us in [0, 1, 100, 100_000] {
        let mut sent = Pages::default();
        let limits = PrecopyLimits {
            pause: Duration::from_micros(pause_us),
            // However little of it ran meanwhile: it is not to be outrun.
            least_gain: f64::NEG_INFINITY,
            ..PrecopyLimits::default()
        };
        let copied = match precopy(process.pid, &mut sent, &limits) {
            Ok(copied) => copied,
            Err(e) if e.to_string().contains("does not note") => {
                println!("NOT RUN: {e}");
                return;
            }
            Err(e) => panic!("{e}; {}", process.fate()),
        };
        println!("{:?}: {:?}, then {:?}", copied.end, copied.rounds, copied.last);
        compare(&copied, &sent);
        assert!(copied.end != PrecopyEnd::Outrun);
        assert!(copied.end != PrecopyEnd::Rounds || copied.rounds.len() == 8);
        copied.frozen.release().unwrap();
    }
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
}

/// After the last round the rest of the process can be kept, and it comes back from that.
#[test]
fn an_image_can_follow() {
    let folder = tempfile::tempdir().unwrap();
    let mut process = start(folder.path());
    let mut copied = match precopy(process.pid, &mut Pages::default(), &PrecopyLimits::default()) {
        Ok(copied) => copied,
        Err(e) if e.to_string().contains("does not note") => {
            println!("NOT RUN: {e}");
            return;
        }
        Err(e) => panic!("{e}"),
    };
    let image = folder.path().join("image");
    let mut tracker = Tracker::new(Tracking::Off);
    let snapshot = copied.frozen.snapshot(&image, &mut tracker, Mode::Twin).unwrap();
    copied.frozen.release().unwrap();
    snapshot.write_image(b"", &mut tracker).unwrap();
    process.kill();
    let mut process = common::bring_back(&image);
    fs::write(folder.path().join("stop"), "").unwrap();
    process.succeed();
}
