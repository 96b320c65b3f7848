//! Files that come while they are read.

use super::*;
use eyrie_image::Image;
use eyrie_vault::stream;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, Sender, channel};

const PIECE: usize = 64 << 10;
const LIMIT: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(10);

/// Gives a piece each time that the test says what it is to answer; tells where it was asked.
struct Scripted {
    bytes: Vec<u8>,
    asked: Sender<u64>,
    answers: Receiver<Result<(), Unread>>,
}

impl Source for Scripted {
    fn read(&mut self, at: u64) -> Result<Vec<u8>, Unread> {
        let _ = self.asked.send(at);
        // Nobody answers any more: all goes well.
        self.answers.recv().unwrap_or(Ok(()))?;
        let start = at as usize;
        Ok(self.bytes[start..self.bytes.len().min(start + PIECE)].to_vec())
    }

    fn rest(&mut self) {}
}

struct Setup {
    folder: tempfile::TempDir,
    image: Vec<u8>,
    feed: LazyFetch,
    asked: Receiver<u64>,
    answers: Sender<Result<(), Unread>>,
}

impl Setup {
    /// `change`: what comes is not what was stored.
    fn new(change: impl FnOnce(&mut Vec<u8>)) -> Setup {
        let folder = tempfile::tempdir().unwrap();
        let image = eyrie_image::fuzzing::sign(&vec![0; 6 * PIECE]).unwrap();
        let mut bytes = image.clone();
        change(&mut bytes);
        let ((asked, was_asked), (answers, to_answer)) = (channel(), channel());
        let mut feed = LazyFetch::start(PATIENCE).unwrap();
        let (hash, _) = stream::hash_of(&mut &image[..]).unwrap();
        let source = Box::new(Scripted { bytes, asked, answers: to_answer });
        let path = folder.path().join("rank-2.gen-4");
        assert!(!feed.joins(&path));
        let (bytes, hash) = (image.len() as u64, Some(hash));
        feed.add(Coming { path, bytes, hash, source }).unwrap();
        Setup { folder, image, feed, asked: was_asked, answers }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("rank-2.gen-4")
    }

    /// What lies in the folder.
    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path()).unwrap().flatten();
        entries.map(|e| e.file_name().into_string().unwrap()).collect()
    }

    fn is_asked(&self) -> u64 {
        self.asked.recv_timeout(LIMIT).unwrap()
    }

    fn answer(&self, with: Result<(), Unread>) {
        self.answers.send(with).unwrap();
    }
}

#[test]
fn what_somebody_waits_for_comes_first_and_the_name_last() {
    let it = Setup::new(|_| ());
    assert_eq!(it.is_asked(), 0);
    assert!(eyrie_image::is_announced(&it.path()) && !it.path().exists());
    let path = it.path();
    // The header, which is under way, and the table at the end, which nobody would read next.
    let opened = std::thread::spawn(move || Image::identity_of(&path));
    let last = 5 * PIECE as u64;
    it.answer(Ok(()));
    let (mut next, mut turn) = (it.is_asked(), PIECE as u64);
    // What is wanted comes out of its turn, if whoever wants it is there before all has come.
    while next == turn && next < last {
        it.answer(Ok(()));
        (next, turn) = (it.is_asked(), turn + PIECE as u64);
        assert!(next >= last || !opened.is_finished(), "it did not wait");
    }
    assert!(!it.path().exists());
    let Setup { folder, image, feed, answers, .. } = it;
    let path = folder.path().join("rank-2.gen-4");
    drop(answers);
    opened.join().unwrap().unwrap();
    feed.finish().unwrap();
    assert!(!eyrie_image::is_announced(&path));
    assert!(std::fs::read(&path).unwrap() == image);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn what_cannot_be_read_now_is_tried_again_from_there_on() {
    let it = Setup::new(|_| ());
    assert_eq!(it.is_asked(), 0);
    it.answer(Ok(()));
    for _ in 0..2 {
        assert_eq!(it.is_asked(), PIECE as u64);
        it.answer(Err(Unread::Later("a node is gone".into())));
    }
    assert_eq!(it.is_asked(), PIECE as u64);
    drop(it.answers);
    it.feed.finish().unwrap();
    assert!(std::fs::read(it.folder.path().join("rank-2.gen-4")).unwrap() == it.image);
}

#[test]
fn what_is_lost_or_not_what_was_stored_gets_no_name_and_nobody_waits_for_it() {
    let it = Setup::new(|_| ());
    it.is_asked();
    let path = it.path();
    let opened = std::thread::spawn(move || Image::identity_of(&path));
    it.answer(Err(Unread::Gone));
    assert!(opened.join().unwrap().is_err());
    assert_eq!(it.feed.finish(), Err(Unread::Gone));
    assert_eq!(it.names(), Vec::<String>::new());
    assert!(!eyrie_image::is_announced(&it.path()));

    let it = Setup::new(|bytes| bytes[3 * PIECE] ^= 1);
    let Setup { folder, feed, answers, .. } = it;
    drop(answers);
    assert!(matches!(feed.finish(), Err(Unread::Never(_))));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn one_that_is_given_up_gets_no_name_and_comes_to_who_has_it_open() {
    let it = Setup::new(|_| ());
    it.is_asked();
    // What a restore holds.
    let (file, growing) = {
        let state = it.feed.inner.lock();
        (Arc::clone(&state.files[0].file), state.files[0].held.upgrade().unwrap())
    };
    image_files::remove(it.folder.path(), 2, &[4]);
    assert_eq!(it.names(), Vec::<String>::new());
    let Setup { folder, image, feed, answers, .. } = it;
    drop(answers);
    growing.wait(0, image.len() as u64).unwrap();
    let mut found = vec![0; image.len()];
    file.read_exact_at(&mut found, 0).unwrap();
    assert!(found == image);
    feed.finish().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    settle(folder.path(), 2, &[4]);
}

#[test]
fn two_searches_share_what_comes() {
    let it = Setup::new(|_| ());
    it.is_asked();
    let mut other = LazyFetch::start(PATIENCE).unwrap();
    assert!(other.joins(&it.path()) && !other.is_empty());
    it.answer(Err(Unread::Never("it is damaged".into())));
    assert_eq!(other.finish(), Err(Unread::Never("it is damaged".into())));
    assert_eq!(it.feed.failed(), other.failed());
}
