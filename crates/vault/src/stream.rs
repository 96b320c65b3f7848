//! Files that are encrypted outside of a vault, such as what goes to an object store. Bytes in
//! `docs/formats/sealed.md`.
//!
//! Kept true: no two chunks are sealed with the same key and nonce, as each file has a random salt
//! and each chunk of it a number; what was cut off, put together anew or renamed is found.

use crate::disk;
use crate::record::Hash;
use crate::seal::{Key, Sealer};
use std::io::{self, Read, Write};
use xxhash_rust::xxh3::Xxh3;

const MAGIC: [u8; 8] = *b"EYRIESLD";
const VERSION: u32 = 1;
/// Bytes that are sealed at once.
const CHUNK_BYTES: usize = 64 << 10;
const TAG_BYTES: usize = 16;
const HEAD_BYTES: usize = 32;
/// Set in the number of the last chunk.
const LAST: u64 = 1 << 63;

/// Why what is sealed cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0} is not encrypted, and a key was given")]
    Plain(String),
    #[error("{0} is encrypted by a later eyrie")]
    Version(String),
    #[error("{0} was encrypted with another key, or was changed by somebody without it")]
    Key(String),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Whether these are the first bytes of something that is sealed.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC)
}

/// Reads as much as there is, up to the length of `to`.
pub(crate) fn fill(from: &mut dyn Read, to: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < to.len() {
        match from.read(&mut to[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// The XXH3 of what `from` has, and its length.
pub fn hash_of(from: &mut dyn Read) -> io::Result<(Hash, u64)> {
    let (mut sum, mut bytes) = (Xxh3::new(), 0);
    let mut buffer = vec![0; CHUNK_BYTES];
    loop {
        let count = fill(from, &mut buffer)?;
        if count == 0 {
            return Ok((sum.digest128().to_le_bytes(), bytes));
        }
        sum.update(&buffer[..count]);
        bytes += count as u64;
    }
}

/// Seals what `from` has, to be opened under this name only.
pub fn seal(key: &Key, name: &str, from: &mut dyn Read, to: &mut dyn Write) -> io::Result<()> {
    let salt: [u8; 16] = disk::random()?;
    let sealer = Sealer::of_file(key, salt, name);
    to.write_all(&MAGIC)?;
    to.write_all(&VERSION.to_le_bytes())?;
    to.write_all(&(CHUNK_BYTES as u32).to_le_bytes())?;
    to.write_all(&salt)?;
    let (mut chunk, mut next) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let mut count = fill(from, &mut chunk)?;
    for number in 0.. {
        let more = if count == CHUNK_BYTES { fill(from, &mut next)? } else { 0 };
        let last = if more == 0 { LAST } else { 0 };
        let tag = sealer.close(number | last, &mut chunk[..count]);
        to.write_all(&chunk[..count])?;
        to.write_all(&tag.map_err(io::Error::other)?)?;
        if more == 0 {
            break;
        }
        std::mem::swap(&mut chunk, &mut next);
        count = more;
    }
    to.flush()
}

/// Opens what was sealed under this name. What was written to `to` counts only if all went well.
pub fn open(
    key: &Key,
    name: &str,
    from: &mut dyn Read,
    to: &mut dyn Write,
) -> Result<u64, OpenError> {
    let mut head = [0; HEAD_BYTES];
    let bad = || OpenError::Key(name.to_string());
    if fill(from, &mut head)? < HEAD_BYTES || !is_sealed(&head) {
        return Err(OpenError::Plain(name.to_string()));
    }
    let (_, rest) = head.split_at(MAGIC.len());
    let (numbers, salt) = rest.split_at(8);
    let expected = [VERSION.to_le_bytes(), (CHUNK_BYTES as u32).to_le_bytes()].concat();
    if numbers != expected {
        return Err(OpenError::Version(name.to_string()));
    }
    let sealer = Sealer::of_file(key, salt.try_into().map_err(|_| bad())?, name);
    let (mut chunk, mut next) =
        (vec![0; CHUNK_BYTES + TAG_BYTES], vec![0; CHUNK_BYTES + TAG_BYTES]);
    let mut count = fill(from, &mut chunk)?;
    let mut bytes = 0;
    for number in 0.. {
        let more = if count == chunk.len() { fill(from, &mut next)? } else { 0 };
        let last = if more == 0 { LAST } else { 0 };
        let plain = count.checked_sub(TAG_BYTES).ok_or_else(bad)?;
        let (sealed, tag) = chunk[..count].split_at_mut(plain);
        let tag = (&*tag).try_into().map_err(|_| bad())?;
        if !sealer.open(number | last, sealed, &tag) {
            return Err(bad());
        }
        to.write_all(sealed)?;
        bytes += plain as u64;
        if more == 0 {
            break;
        }
        std::mem::swap(&mut chunk, &mut next);
        count = more;
    }
    to.flush()?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> Key {
        Key::new(&[byte; 32]).unwrap()
    }

    fn sealed(bytes: &[u8]) -> Vec<u8> {
        let mut to = Vec::new();
        seal(&key(1), "data/a", &mut &bytes[..], &mut to).unwrap();
        to
    }

    fn opened(key: &Key, name: &str, bytes: &[u8]) -> Result<Vec<u8>, OpenError> {
        let mut to = Vec::new();
        let count = open(key, name, &mut &bytes[..], &mut to)?;
        assert_eq!(count, to.len() as u64);
        Ok(to)
    }

    #[test]
    fn files_of_any_length_come_back() {
        for bytes in [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES] {
            let plain: Vec<u8> = (0..bytes).map(|n| ((n * n) >> 3) as u8).collect();
            let sealed = sealed(&plain);
            let chunks = bytes.div_ceil(CHUNK_BYTES).max(1);
            assert_eq!(sealed.len(), HEAD_BYTES + bytes + chunks * TAG_BYTES);
            assert!(opened(&key(1), "data/a", &sealed).unwrap() == plain, "{bytes}");
            assert!(bytes < 64 || !sealed.windows(64).any(|w| w == &plain[..64]));
        }
        assert_ne!(sealed(b"same"), sealed(b"same"), "a salt of its own");
    }

    #[test]
    fn only_the_key_the_name_and_all_of_the_bytes_open_it() {
        let plain = vec![7; 2 * CHUNK_BYTES];
        let sealed = sealed(&plain);
        assert!(opened(&key(2), "data/a", &sealed).is_err(), "another key");
        assert!(opened(&key(1), "data/b", &sealed).is_err(), "another name");
        for bit in [100, HEAD_BYTES * 8, sealed.len() * 8 - 1, 70_000 * 8] {
            let mut bad = sealed.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(opened(&key(1), "data/a", &bad).is_err(), "bit {bit}");
        }
        let piece = CHUNK_BYTES + TAG_BYTES;
        for cut in [0, 7, HEAD_BYTES, HEAD_BYTES + 5, HEAD_BYTES + piece, sealed.len() - 1] {
            assert!(opened(&key(1), "data/a", &sealed[..cut]).is_err(), "cut at {cut}");
        }
        let (head, body) = sealed.split_at(HEAD_BYTES);
        let (first, second) = body.split_at(piece);
        for wrong in [[head, second, first], [head, first, first], [head, second, second]] {
            assert!(opened(&key(1), "data/a", &wrong.concat()).is_err(), "chunks elsewhere");
        }
        let plain = opened(&key(1), "data/a", &[0; 99]).unwrap_err().to_string();
        assert_eq!(plain, "data/a is not encrypted, and a key was given");
    }
}
