//! Standard input of rank 0, kept so that it can be fed again.
//!
//! Kept true: what was read from the console is in the file at its position before any of it is
//! passed on; no more is on the way to the process than a window. What a full disk does not take
//! waits in memory, and the console sends no more until it did. Who goes on with the file finds in
//! it what was written, by its hash. No clock is read here: who asks says what time it is.

use crate::shortage::is_full;
use serde::{Deserialize, Serialize};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;
use xxhash_rust::xxh3::Xxh3;

/// Bytes the console may be ahead of the program.
pub const WINDOW_BYTES: u64 = 256 * 1024;
/// Most bytes passed on at a time.
const PIECE_BYTES: u64 = 64 * 1024;
/// Most bytes that wait for room: what the console was given leave for, and more only of a job that
/// is being saved, which takes in all there is.
const MOST_LATE_BYTES: usize = 16 << 20;
/// How often it is looked whether there is room again.
pub const LATE: Duration = Duration::from_millis(500);

/// What is to be passed on next.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    Bytes(Vec<u8>),
    /// That was all there will ever be.
    Over,
    /// Nothing for now.
    Wait,
}

/// Where everybody stands in it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Cursor {
    written: u64,
    fed: u64,
    sent: u64,
    over: bool,
    greedy: bool,
    reader: Option<u64>,
    hash: Hash,
}

/// XXH3-128 of what is written.
pub type Hash = [u8; 16];

/// Where it is kept.
pub trait Kept {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;
    /// Returns how much there is from there on, up to the length of `into`; 0: nothing.
    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize>;
    fn length(&self) -> io::Result<u64>;
    /// Makes it outlive the machine.
    fn sync(&self) -> io::Result<()>;
}

impl Kept for File {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, at)
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, into, at)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The file of a new job.
pub fn create(path: &Path) -> io::Result<File> {
    OpenOptions::new().create_new(true).read(true).write(true).mode(0o600).open(path)
}

/// The file of a job that there was before.
pub fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The input of a job.
pub struct Input {
    file: Box<dyn Kept>,
    written: u64,
    /// Position up to which the present process was fed.
    fed: u64,
    /// Position up to which bytes are on their way to it.
    sent: u64,
    over: bool,
    /// All that the console has is taken in, however far the program is behind.
    greedy: bool,
    /// Number of the start of the present process, as long as there is something to tell it.
    reader: Option<u64>,
    late: Late,
    hasher: Box<Xxh3>,
}

/// What there is no room for.
#[derive(Default)]
struct Late {
    bytes: Vec<u8>,
    /// When it was tried last, by a clock that nobody sets.
    tried: Option<Duration>,
    /// And that is all.
    over: bool,
}

impl Input {
    /// That of a new job.
    pub fn new(file: Box<dyn Kept>) -> Input {
        Input::of(file, 0, false, Box::default())
    }

    /// Goes on with a job's input, of which `written` bytes of this hash are known, and with `over`
    /// all.
    pub fn reopen(
        file: Box<dyn Kept>,
        (written, over): (u64, bool),
        hash: &Hash,
    ) -> io::Result<Input> {
        if file.length()? < written {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (mut hasher, mut piece) = (Box::<Xxh3>::default(), vec![0; PIECE_BYTES as usize]);
        let mut at = 0;
        while at < written {
            let most = (written - at).min(PIECE_BYTES) as usize;
            match file.read_at(&mut piece[..most], at)? {
                0 => break,
                count => {
                    hasher.update(&piece[..count]);
                    at += count as u64;
                }
            }
        }
        if written > 0 && hasher.digest128().to_le_bytes() != *hash {
            return Err(io::Error::other("it is damaged, its checksum does not hold"));
        }
        Ok(Input::of(file, written, over, hasher))
    }

    fn of(file: Box<dyn Kept>, written: u64, over: bool, hasher: Box<Xxh3>) -> Input {
        let late = Late::default();
        Input { file, written, fed: 0, sent: 0, over, greedy: false, reader: None, late, hasher }
    }

    /// That of what is known.
    pub fn hash(&self) -> Hash {
        self.hasher.digest128().to_le_bytes()
    }

    /// Where everybody stands.
    pub fn cursor(&self) -> Cursor {
        let Input { written, fed, sent, over, greedy, reader, .. } = *self;
        Cursor { written, fed, sent, over, greedy, reader, hash: self.hash() }
    }

    /// Goes on from there. What was read beyond that is read again.
    pub fn resume(file: Box<dyn Kept>, at: &Cursor) -> io::Result<Input> {
        let Cursor { fed, sent, greedy, reader, .. } = *at;
        let input = Input::reopen(file, (at.written, at.over), &at.hash)?;
        Ok(Input { fed, sent, greedy, reader, ..input })
    }

    /// How much is known, and whether that is all.
    pub fn known(&self) -> (u64, bool) {
        (self.written, self.over)
    }

    /// Makes what is known outlive the machine.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }

    /// From now on all that the console has is taken in.
    pub fn take_all(&mut self) {
        self.greedy = true;
    }

    /// Takes bytes from the console, `now`. Returns why they wait for room, if they do.
    pub fn push(&mut self, bytes: &[u8], now: Duration) -> io::Result<Option<io::Error>> {
        let full = match self.is_late() {
            true => io::ErrorKind::StorageFull.into(),
            false => match self.write(bytes) {
                Ok(()) => return Ok(None),
                Err(error) if is_full(&error) => error,
                Err(error) => return Err(error),
            },
        };
        if self.late.bytes.len() + bytes.len() > MOST_LATE_BYTES {
            return Err(full);
        }
        self.late.bytes.extend_from_slice(bytes);
        self.late.tried.get_or_insert(now);
        Ok(Some(full))
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.written)?;
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        Ok(())
    }

    /// Whether something waits for room.
    pub fn is_late(&self) -> bool {
        !self.late.bytes.is_empty()
    }

    /// Tries again, if it is time. Returns what has waited, if there was room.
    pub fn catch_up(&mut self, now: Duration) -> io::Result<Option<Vec<u8>>> {
        if self.late.tried.is_none_or(|at| now.saturating_sub(at) < LATE) {
            return Ok(None);
        }
        let late = std::mem::take(&mut self.late);
        match self.write(&late.bytes) {
            Ok(()) => {
                self.over |= late.over;
                Ok(Some(late.bytes))
            }
            Err(error) => {
                self.late = Late { tried: Some(now), ..late };
                if is_full(&error) { Ok(None) } else { Err(error) }
            }
        }
    }

    /// The console's input is over.
    pub fn end(&mut self) {
        match self.is_late() {
            true => self.late.over = true,
            false => self.over = true,
        }
    }

    /// Furthest the console may go.
    pub fn limit(&self) -> u64 {
        if self.greedy { u64::MAX } else { self.window() }
    }

    /// Furthest that the process is fed.
    fn window(&self) -> u64 {
        self.fed.saturating_add(WINDOW_BYTES)
    }

    /// The process of that start reads now, and stands at `position`.
    pub fn attach(&mut self, start: u64, position: u64) {
        self.reader = Some(start);
        self.fed = position.min(self.written);
        self.sent = self.fed;
    }

    pub fn detach(&mut self) {
        self.reader = None;
    }

    /// The process that reads.
    pub fn reader(&self) -> Option<u64> {
        self.reader
    }

    /// The process of that start was fed up to `position`.
    pub fn fed(&mut self, start: u64, position: u64) {
        if self.reader == Some(start) {
            self.fed = position.clamp(self.fed, self.sent);
        }
    }

    /// What to pass on now.
    pub fn next_piece(&mut self) -> Next {
        if self.reader.is_none() {
            return Next::Wait;
        }
        if self.sent == self.written && self.over {
            self.reader = None;
            return Next::Over;
        }
        let room = self.window().min(self.written).saturating_sub(self.sent);
        if room == 0 {
            return Next::Wait;
        }
        let mut piece = vec![0; room.min(PIECE_BYTES) as usize];
        match self.file.read_at(&mut piece, self.sent) {
            Ok(got) if got > 0 => {
                piece.truncate(got);
                self.sent += got as u64;
                Next::Bytes(piece)
            }
            // What cannot be read any more ends the input, as a broken terminal does.
            _ => {
                self.reader = None;
                Next::Over
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Some time.
    const NOW: Duration = Duration::from_secs(7);

    fn created(path: &Path) -> Input {
        Input::new(Box::new(create(path).unwrap()))
    }

    fn reopened(path: &Path, known: (u64, bool), hash: &Hash) -> io::Result<Input> {
        Input::reopen(Box::new(open(path).unwrap()), known, hash)
    }

    #[test]
    fn input_is_passed_on_again_from_where_the_program_stood() {
        let dir = tempfile::tempdir().unwrap();
        let mut input = created(&dir.path().join("stdin"));
        input.push(b"one two three", NOW).unwrap();
        assert_eq!(input.next_piece(), Next::Wait);
        input.attach(1, 0);
        assert_eq!(input.next_piece(), Next::Bytes(b"one two three".to_vec()));
        assert_eq!(input.next_piece(), Next::Wait);
        input.fed(1, 13);
        input.attach(2, 4);
        input.fed(1, 13);
        assert_eq!(input.limit(), 4 + WINDOW_BYTES);
        input.end();
        assert_eq!(input.next_piece(), Next::Bytes(b"two three".to_vec()));
        assert_eq!(input.next_piece(), Next::Over);
        assert_eq!(input.next_piece(), Next::Wait);
    }

    #[test]
    fn a_job_that_goes_on_has_the_same_input() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stdin");
        let mut input = created(&path);
        input.push(b"one two three", NOW).unwrap();
        input.take_all();
        assert_eq!(input.limit(), u64::MAX);
        input.end();
        let (known, hash) = (input.known(), input.hash());
        assert!(reopened(&path, (known.0 + 1, true), &hash).is_err());
        assert!(reopened(&path, (known.0 - 1, true), &hash).is_err());
        std::fs::write(&path, b"one two tHree and more").unwrap();
        assert!(reopened(&path, known, &hash).is_err());
        // What is behind it is nobody's yet.
        std::fs::write(&path, b"one two three and more").unwrap();
        let mut input = reopened(&path, known, &hash).unwrap();
        assert_eq!(input.hash(), hash);
        input.attach(1, 4);
        assert_eq!(input.next_piece(), Next::Bytes(b"two three".to_vec()));
        assert_eq!(input.next_piece(), Next::Over);
    }

    #[test]
    fn what_there_is_no_room_for_waits_and_comes_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut input = created(&dir.path().join("stdin"));
        assert!(input.push(b"one ", NOW).unwrap().is_none());
        let file = std::mem::replace(&mut input.file, Box::new(File::create("/dev/full").unwrap()));
        assert!(input.push(b"two ", NOW).unwrap().is_some_and(|why| is_full(&why)));
        assert!(input.push(b"three", NOW).unwrap().is_some() && input.is_late());
        input.end();
        assert_eq!(input.known(), (4, false));
        assert_eq!(input.catch_up(NOW + LATE).unwrap(), None);
        input.file = file;
        // Not before it is time.
        assert_eq!(input.catch_up(NOW + LATE).unwrap(), None);
        assert_eq!(input.catch_up(NOW + 2 * LATE).unwrap(), Some(b"two three".to_vec()));
        assert_eq!((input.known(), input.is_late()), ((13, true), false));
        input.attach(1, 0);
        assert_eq!(input.next_piece(), Next::Bytes(b"one two three".to_vec()));
        assert_eq!(input.next_piece(), Next::Over);
    }

    #[test]
    fn no_more_than_a_window_is_on_its_way() {
        let dir = tempfile::tempdir().unwrap();
        let mut input = created(&dir.path().join("stdin"));
        input.push(&vec![7; 3 * WINDOW_BYTES as usize], NOW).unwrap();
        input.attach(1, 0);
        let mut sent = 0;
        while let Next::Bytes(piece) = input.next_piece() {
            sent += piece.len() as u64;
        }
        assert_eq!(sent, WINDOW_BYTES);
        input.fed(1, 1000);
        assert_eq!(input.next_piece(), Next::Bytes(vec![7; 1000]));
    }
}
