//! Images that are read while they come.

use super::*;
use crate::read::image::tests::Pair;
use crate::testing::memory;
use std::fs;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Brings what is asked for, and nothing else.
#[derive(Debug)]
struct OnDemand {
    whole: Vec<u8>,
    to: Arc<File>,
    asked: Mutex<Vec<(u64, u64)>>,
    over: AtomicBool,
}

impl Growing for OnDemand {
    fn wait(&self, at: u64, bytes: u64) -> io::Result<()> {
        if self.over.load(Ordering::Relaxed) {
            return Err(io::Error::other("too many are lost"));
        }
        let end = (at + bytes).min(self.whole.len() as u64);
        self.to.write_all_at(&self.whole[at as usize..end as usize], at)?;
        self.asked.lock().unwrap().push((at, bytes));
        Ok(())
    }
}

/// Takes a file away, and announces it.
fn comes(path: &Path, change: impl FnOnce(&mut Vec<u8>)) -> Arc<OnDemand> {
    let mut whole = fs::read(path).unwrap();
    change(&mut whole);
    fs::remove_file(path).unwrap();
    let file = tempfile::tempfile().unwrap();
    file.set_len(whole.len() as u64).unwrap();
    let to = Arc::new(file);
    let (asked, over) = (Mutex::default(), AtomicBool::new(false));
    let by = Arc::new(OnDemand { whole, to: Arc::clone(&to), asked, over });
    assert!(announce(path, to.clone(), by.clone()));
    assert!(!announce(path, to, by.clone()), "it was announced before");
    by
}

/// How many of the three pages of a file were asked for.
fn pages_asked(by: &OnDemand) -> usize {
    let header = crate::bytes::layout::HEADER_BYTES;
    let asked = by.asked.lock().unwrap();
    (0..3).filter(|p| asked.iter().any(|(at, _)| *at == header + p * crate::PAGE_BYTES)).count()
}

#[test]
fn an_image_and_one_that_it_builds_on_are_read_while_they_come() {
    let pair = Pair::new();
    let expected = memory(&Image::open(&pair.path("new")).unwrap());
    let files = ["new", "old"].map(|name| comes(&pair.path(name), |_| ()));
    let image = Image::open_knowing(&pair.path("new"), |_| true).unwrap();
    assert_eq!(files.each_ref().map(|by| pages_asked(by)), [0, 0], "only frames are read");
    image.wait_for_all().unwrap();
    assert_eq!(files.each_ref().map(|by| pages_asked(by)), [3, 1], "what is needed, of each");
    assert_eq!(memory(&image), expected);
    // It has its name; who has it open as it came goes on.
    fs::write(pair.path("new"), &files[0].whole).unwrap();
    ["new", "old"].iter().for_each(|name| withdraw(&pair.path(name)));
    assert!(!is_announced(&pair.path("new")));
    assert_eq!(memory(&image), expected);
    let error = Image::open(&pair.path("new")).unwrap_err();
    assert!(matches!(error, ImageError::Ancestor { .. }), "{error}");
}

#[test]
fn what_comes_damaged_or_not_at_all_is_no_image() {
    let at = crate::bytes::layout::HEADER_BYTES as usize;
    let pair = Pair::new();
    let new = pair.path("new");
    comes(&new, |bytes| bytes[at] ^= 1);
    let error = Image::open(&new).unwrap_err();
    assert!(matches!(error, ImageError::Checksum(_)), "{error}");
    withdraw(&new);

    let pair = Pair::new();
    let new = pair.path("new");
    let by = comes(&new, |_| ());
    let image = Image::open_knowing(&new, |_| true).unwrap();
    by.over.store(true, Ordering::Relaxed);
    let error = image.wait_for_all().unwrap_err().to_string();
    assert!(error.contains("too many are lost"), "{error}");
    withdraw(&new);
}
