//! `--encrypt-at-rest`: what this process stores of a job is encrypted with the job's key, which is
//! in its memory only. Images are sealed as they are written (`eyrie_image::seal_with`), here is
//! the same of all else: logs of ranks, and what is saved of a segment.
//!
//! Kept true: with a key nothing is read that is not sealed, and nothing written that is; what is
//! sealed under one name is not opened under another one. What is copied between nodes, coded and
//! held against checksums is the ciphertext.

use eyrie_control::auth;
use eyrie_ledger::memory;
use eyrie_vault::seal::{KEY_BYTES, Key, Tag};
use eyrie_vault::stream::{self, OpenError};
use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::OnceLock;

const BUFFER_BYTES: usize = 1 << 20;

/// The job's. A process has one job.
static KEY: OnceLock<Key> = OnceLock::new();

/// From now on all is sealed with this key.
pub fn begin(key: &[u8; KEY_BYTES]) -> io::Result<()> {
    let other = || io::Error::other("this process has another key");
    let key_of = Key::new(key).ok_or_else(other)?;
    let first = *KEY.get_or_init(|| key_of.clone()) == key_of;
    if first && eyrie_image::seal_with(key) { Ok(()) } else { Err(other()) }
}

/// The key that a file has, which nobody but its owner may read.
pub fn read(path: &Path) -> io::Result<Key> {
    let key = Key::read_private(path);
    key.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", path.display())))
}

/// The same with the key that a file has, which is to have this mark. Returns it.
pub fn begin_with(path: &Path, mark: &Tag) -> io::Result<auth::Key> {
    let key = read(path)?;
    if key.fingerprint() != *mark {
        let why = format!("{}: this is another key than the job's", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    begin(key.bytes())?;
    Ok(auth::Key(*key.bytes()))
}

/// The job's key, if what is stored of it is sealed.
pub fn key() -> Option<&'static [u8; KEY_BYTES]> {
    KEY.get().map(Key::bytes)
}

/// Has `write` make a file that only its owner reads; what it writes in, as a file that can be
/// written at any place, is sealed when it is there if there is a key. If it is to be `lasting` it
/// is forced to the disk then. Returns what `write` does.
pub fn create(
    path: &Path,
    lasting: bool,
    write: impl FnOnce(&File) -> io::Result<u64>,
) -> io::Result<u64> {
    create_with(KEY.get(), path, lasting, write)
}

fn create_with(
    key: Option<&Key>,
    path: &Path,
    lasting: bool,
    write: impl FnOnce(&File) -> io::Result<u64>,
) -> io::Result<u64> {
    let mut options = File::options();
    let to = options.write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let Some(key) = key else { return write(&to) };
    let mut plain = memory::plain("eyrie-sealing")?;
    let bytes = write(&plain)?;
    plain.rewind()?;
    let mut from = BufReader::with_capacity(BUFFER_BYTES, plain);
    let mut sealed = BufWriter::with_capacity(BUFFER_BYTES, &to);
    stream::seal(key, &name(path), &mut from, &mut sealed)?;
    sealed.flush()?;
    drop(sealed);
    if lasting {
        to.sync_data()?;
    }
    Ok(bytes)
}

/// Opens a file for reading; one that is sealed in memory, as what it was.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(KEY.get(), path)
}

fn open_with(key: Option<&Key>, path: &Path) -> io::Result<File> {
    let mut file = eyrie_image::open_plain(path)?;
    let bad = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    let Some(key) = key else {
        // Whoever reads it would only say that it is of no kind that he knows.
        let mut head = Vec::new();
        (&file).take(8).read_to_end(&mut head)?;
        file.rewind()?;
        let sealed = stream::is_sealed(&head);
        let no_key = || bad(format!("{} is encrypted, and there is no key for it", name(path)));
        return if sealed { Err(no_key()) } else { Ok(file) };
    };
    let mut plain = memory::plain("eyrie-sealed")?;
    let mut from = BufReader::with_capacity(BUFFER_BYTES, file);
    let opened = stream::open(key, &name(path), &mut from, &mut plain);
    opened.map_err(|error| match error {
        OpenError::Io(error) => error,
        error => bad(error.to_string()),
    })?;
    plain.rewind()?;
    Ok(plain)
}

/// The name under which it is sealed.
fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::FileExt;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; KEY_BYTES]).unwrap()
    }

    fn write(to: &File) -> io::Result<u64> {
        to.write_all_at(b"and the rest", 4)?;
        to.write_all_at(b"head", 0)?;
        Ok(16)
    }

    fn read(key: Option<&Key>, path: &Path) -> Result<String, String> {
        let mut text = String::new();
        let mut file = open_with(key, path).map_err(|e| e.to_string())?;
        file.read_to_string(&mut text).map_err(|e| e.to_string())?;
        Ok(text)
    }

    #[test]
    fn what_is_sealed_is_read_with_its_key_under_its_name_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rank-1.gen-2.log");
        assert_eq!(create_with(Some(&key(1)), &path, true, write).unwrap(), 16);
        let bytes = fs::read(&path).unwrap();
        assert!(!bytes.windows(4).any(|four| four == b"head" || four == b"rest"));
        assert_eq!(read(Some(&key(1)), &path).unwrap(), "headand the rest");
        let why = read(Some(&key(2)), &path).unwrap_err();
        assert!(why.contains("another key"), "{why}");
        let why = read(None, &path).unwrap_err();
        assert_eq!(why, "rank-1.gen-2.log is encrypted, and there is no key for it");
        let other = folder.path().join("rank-1.gen-3.log");
        fs::copy(&path, &other).unwrap();
        assert!(read(Some(&key(1)), &other).is_err(), "another name");
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            fs::write(&path, &bad).unwrap();
            assert!(read(Some(&key(1)), &path).is_err(), "bit {bit}");
        }
        for length in 0..bytes.len() {
            fs::write(&path, &bytes[..length]).unwrap();
            assert!(read(Some(&key(1)), &path).is_err(), "cut at {length}");
        }
    }

    #[test]
    fn without_a_key_it_is_the_file_itself_and_with_one_that_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("segment.3");
        assert_eq!(create_with(None, &path, true, write).unwrap(), 16);
        assert_eq!(fs::read(&path).unwrap(), b"headand the rest");
        assert_eq!(read(None, &path).unwrap(), "headand the rest");
        let why = read(Some(&key(1)), &path).unwrap_err();
        assert_eq!(why, "segment.3 is not encrypted, and a key was given");
    }
}
