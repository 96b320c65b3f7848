//! Encrypted parts: of any length, with the wrong key or none, with other bytes.

use super::*;
use crate::format::Entry;
use crate::kind::Kind;
use crate::label::Stamp;
use crate::part::{Part, Writer};
use std::path::Path;

const WORD: &[u8] = b"nobody is to read this on a disk";

fn key(byte: u8) -> Key {
    Key::new(&[byte; 32]).unwrap()
}

fn label(rank: u32) -> Label {
    Label { name: "heat".into(), version: 40, stamp: Stamp::new(1, 2, 3), rank }
}

fn lock(settled: Option<Salt>) -> Lock {
    Lock { key: key(1), settled }
}

fn content(bytes: usize) -> Vec<u8> {
    WORD.iter().copied().cycle().take(bytes).collect()
}

fn fill(writer: &mut Writer, bytes: usize) {
    let entry = |id, count| {
        let (kind, file) = (Kind::Bytes, String::new());
        Entry { id, kind, size: 1, count, file, hash: [0; 16] }
    };
    let content = content(bytes);
    let (some, rest) = content.split_at(bytes / 3);
    writer.add(entry(1, some.len() as u64), some).unwrap();
    writer.add(entry(2, rest.len() as u64), rest).unwrap();
}

/// A part with so many bytes of regions, from a file.
fn sealed(folder: &Path, bytes: usize) -> Vec<u8> {
    let mut writer = Writer::create(folder, &label(1), Some(lock(None))).unwrap();
    fill(&mut writer, bytes);
    std::fs::read(writer.finish(&label(1), 4).unwrap()).unwrap()
}

/// What comes back, or why nothing does.
fn read(bytes: &[u8], key: Option<&Key>, label: &Label) -> Result<Vec<u8>, String> {
    let stored = Stored::open(bytes, key, label).map_err(|error| error.to_string())?;
    let part = Part::of(stored).map_err(|error| error.to_string())?;
    part.verify().map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    for number in 0..part.head.entries.len() {
        let element = part.head.entries[number].element();
        let same = (element, part.head.bytes);
        let conversion = crate::convert::Conversion::new(same, same).unwrap();
        let mut take = |bytes: &[u8]| all.extend_from_slice(bytes);
        part.read(number, &conversion, &mut take).map_err(|error| error.to_string())?;
    }
    Ok(all)
}

#[test]
fn parts_of_any_length_come_back_and_nothing_of_them_is_to_be_seen() {
    let dir = tempfile::tempdir().unwrap();
    for chunks in 0..4 {
        // Around a boundary, wherever the head begins and ends.
        for off in (0..600).step_by(29) {
            let bytes = (chunks * CHUNK_BYTES + off).saturating_sub(300);
            let sealed = sealed(dir.path(), bytes);
            assert!(read(&sealed, Some(&key(1)), &label(1)).unwrap() == content(bytes), "{bytes}");
            for word in [&WORD[..16], b"heat"] {
                assert!(!sealed.windows(word.len()).any(|there| there == word), "{bytes}");
            }
        }
    }
    assert_ne!(sealed(dir.path(), 9), sealed(dir.path(), 9), "salts of their own");
}

#[test]
fn in_memory_it_is_the_same_again_to_the_byte_with_a_salt_that_is_settled() {
    let held = |salt| {
        let mut writer = Writer::hold(Path::new("nowhere"), &label(1), Some(lock(salt)));
        fill(&mut writer, 2 * CHUNK_BYTES + 9);
        writer.finish(&label(1), 4).unwrap();
        writer.held().unwrap()
    };
    let (one, other) = (held(Some([7; 16])), held(Some([7; 16])));
    assert!(one == other && one != held(Some([8; 16])) && held(None) != held(None));
    for bytes in [one, held(None)] {
        let want = content(2 * CHUNK_BYTES + 9);
        assert!(read(&bytes, Some(&key(1)), &label(1)).unwrap() == want);
    }
}

#[test]
fn without_its_key_its_label_and_each_of_its_bits_nothing_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = sealed(dir.path(), 2 * CHUNK_BYTES);
    let why = |bytes: &[u8], key: Option<&Key>, rank| read(bytes, key, &label(rank)).unwrap_err();
    let other = "it was encrypted with another key, or was changed by somebody without it";
    assert_eq!(why(&bytes, Some(&key(2)), 1), other);
    assert_eq!(why(&bytes, Some(&key(1)), 2), other, "another process's");
    assert!(why(&bytes, None, 1).contains("EYRIE_REGIONS_KEY"));
    let every = bytes.len() * 8 / 97;
    for bit in (0..bytes.len() * 8).step_by(every).chain([bytes.len() * 8 - 1]) {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let why = why(&bad, Some(&key(1)), 1);
        assert!(why == other || bit / 8 < HEADER_BYTES, "bit {bit}: {why}");
    }
    for (first, second) in [(1, 2), (0, 1)] {
        // Chunks that lie elsewhere.
        let mut bad = bytes.clone();
        let at = |chunk| place(chunk) as usize..place(chunk) as usize + 100;
        bad[at(first)].copy_from_slice(&bytes[at(second)]);
        assert_eq!(why(&bad, Some(&key(1)), 1), other);
    }
}

#[test]
fn what_is_cut_off_or_longer_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = sealed(dir.path(), 2 * CHUNK_BYTES);
    let boundaries = (0..3).flat_map(|chunk| [0, 1, 32, 33].map(|off| place(chunk) as usize + off));
    for length in (0..HEADER_BYTES + 40).chain(boundaries).chain([bytes.len() - 1]) {
        assert!(read(&bytes[..length], Some(&key(1)), &label(1)).is_err(), "{length}");
    }
    for more in [1, 32, 33, STORED_BYTES] {
        let longer = [&bytes[..], &vec![0; more]].concat();
        assert!(read(&longer, Some(&key(1)), &label(1)).is_err(), "{more}");
    }
}

#[test]
fn with_a_key_nothing_is_read_that_is_not_encrypted() {
    let mut writer = Writer::hold(Path::new("nowhere"), &label(1), None);
    fill(&mut writer, 100);
    writer.finish(&label(1), 4).unwrap();
    let plain = writer.held().unwrap();
    assert_eq!(read(&plain, None, &label(1)).unwrap(), content(100));
    let why = read(&plain, Some(&key(1)), &label(1)).unwrap_err();
    assert!(why.contains("nothing is read that is not"), "{why}");
    let foreign = read(b"\x7fELF and more than a header", Some(&key(1)), &label(1)).unwrap_err();
    assert!(foreign.contains("no part"), "{foreign}");
}
