//! Files that are sealed: what is in them tells nothing, and whoever has no key changes nothing.

use super::*;
use crate::bytes::encoding::{Reader, Wire};
use crate::bytes::layout::{
    self, Extent, HEADER_BYTES, MAX_META_BYTES, MAX_TABLE_BYTES, SECTIONS, Section, codec, section,
};
use crate::error::ImageError;
use crate::read::blocks::Blocks;
use crate::read::frame::Part;
use crate::testing::state;
use crate::write::pack::{Packer, Tuner};
use crate::write::sink::FileSink;
use crate::write::writer::{Contents, ImageWriter};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PAGE: usize = crate::PAGE_BYTES as usize;
const META: &[u8] = b"for whoever restores it, and nobody else";

fn key(byte: u8) -> Key {
    Key::new(&[byte; KEY_BYTES])
}

fn content() -> Vec<u8> {
    (0..3 * PAGE).map(|i| (i / PAGE * 7 + i % 64) as u8).collect()
}

fn extents() -> Vec<Extent> {
    vec![Extent { start: PAGE as u64, pages: 3, home: 0, reserved: 0, first: 0 }]
}

/// Writes an image of three blocks.
fn write(path: &Path, key: Option<&Key>, how: u32) {
    let sink = Box::new(FileSink::create(path).unwrap());
    let writer = ImageWriter::sealed_to(sink, key).unwrap();
    let (mut packer, tuner) = (Packer::default(), Tuner::new(Some(how)));
    for (number, page) in content().chunks(PAGE).enumerate() {
        let packed = packer.pack(&tuner, page).unwrap();
        assert!(writer.turn(number).store(Some(&packed), |_| ()).unwrap());
    }
    let (state, extents) = (&state(), &extents());
    writer.commit(&Contents { state, extents, ancestors: &[], meta: META }).unwrap();
}

/// Reads all that is in a file: its pages, and what is the caller's.
fn read(path: &Path, key: Option<&Key>) -> Result<(Vec<u8>, Vec<u8>), ImageError> {
    let part = Part::open_with(path, key)?.again()?;
    let (mut blocks, mut pages) = (Blocks::default(), Vec::new());
    for i in 0..part.blocks().len() {
        pages.extend_from_slice(blocks.pages(&part, i)?);
    }
    let ancestors = part.section(section::ANCESTORS, "ancestors", MAX_TABLE_BYTES)?;
    assert_eq!(ancestors, [0; 4]);
    assert_eq!(part.list::<Extent>(section::RUNS, "runs", MAX_TABLE_BYTES)?, extents());
    assert_eq!(part.state()?, state());
    Ok((pages, part.section(section::META, "caller's part", MAX_META_BYTES)?))
}

fn sealed(how: u32) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    write(&path, Some(&key(1)), how);
    (folder, path)
}

fn holds(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[test]
fn what_is_sealed_tells_nothing_and_is_read_with_its_key() {
    for how in [codec::NONE, codec::LZ4, codec::ZSTD] {
        let (folder, path) = sealed(how);
        let (pages, meta) = read(&path, Some(&key(1))).unwrap();
        assert!(pages == content() && meta == META);
        let plain = folder.path().join("plain");
        write(&plain, None, codec::NONE);
        let [plain, bytes] = [plain, path].map(|path| fs::read(path).unwrap());
        // The first page, the state's paths, what is the caller's, a page's checksum.
        for part in [&content()[..64], b"/bin/x", META, &layout::hash(&content()[..PAGE])] {
            assert!(holds(&plain, part), "it would not be found where it is, either");
            assert!(!holds(&bytes, part));
        }
    }
}

#[test]
fn it_takes_the_key_and_nothing_plain_is_taken_for_sealed() {
    let (folder, path) = sealed(codec::LZ4);
    let told = |path: &Path, key: Option<&Key>| read(path, key).unwrap_err().to_string();
    assert!(told(&path, Some(&key(2))).contains("with another key"));
    assert_eq!(told(&path, None), "the image is encrypted, and there is no key for it here");
    let plain = folder.path().join("plain");
    write(&plain, None, codec::NONE);
    assert_eq!(told(&plain, Some(&key(1))), "the image is not encrypted, and a key was given");
    assert!(read(&plain, None).is_ok());
}

#[test]
fn every_change_is_found() {
    let (_folder, path) = sealed(codec::LZ4);
    let bytes = fs::read(&path).unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    for (at, byte) in bytes.iter().enumerate() {
        // All bits where there are numbers, elsewhere one of each byte.
        let bits = if at < 128 { 0..8 } else { at % 8..at % 8 + 1 };
        for bit in bits {
            file.write_all_at(&[byte ^ 1 << bit], at as u64).unwrap();
            assert!(read(&path, Some(&key(1))).is_err(), "bit {bit} of byte {at}");
        }
        file.write_all_at(&[*byte], at as u64).unwrap();
    }
    assert!(read(&path, Some(&key(1))).is_ok());
    for length in (0..bytes.len()).step_by(61) {
        file.set_len(length as u64).unwrap();
        assert!(read(&path, Some(&key(1))).is_err(), "cut at {length}");
    }
}

/// Makes the checksums of sections, section table and header hold, as anybody can.
fn sum(image: &mut [u8]) {
    let mut header = layout::parse_header(&image[..HEADER_BYTES as usize]).unwrap();
    let table_at = header.table_offset as usize;
    let mut from = Reader::new(&image[table_at..]);
    let mut raw = Vec::new();
    for kind in SECTIONS {
        let mut entry = Section::get(&mut from).unwrap();
        if kind != section::PAGES {
            entry.hash = layout::hash(&image[entry.offset as usize..][..entry.bytes as usize]);
        }
        entry.put(&mut raw);
    }
    header.table_hash = layout::hash(&raw);
    let page = layout::header_page(&header);
    image[table_at..].copy_from_slice(&raw);
    image[..72].copy_from_slice(&page[..72]);
}

/// Checksums are no secret: what was changed and summed anew is refused by the key alone.
#[test]
fn right_checksums_are_of_no_use_without_the_key() {
    let (folder, path) = sealed(codec::NONE);
    let whole = fs::read(&path).unwrap();
    let refused = |image: &[u8], what: &str| {
        fs::write(&path, image).unwrap();
        match read(&path, Some(&key(1))) {
            Err(ImageError::Key(_)) => {}
            other => panic!("{what}: {other:?}"),
        }
    };
    let mut same = whole.clone();
    sum(&mut same);
    assert!(same == whole);
    let header = layout::parse_header(&whole[..HEADER_BYTES as usize]).unwrap();
    for at in (HEADER_BYTES as usize + 3 * PAGE..header.table_offset as usize).step_by(997) {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        sum(&mut bad);
        refused(&bad, &format!("byte {at}"));
    }
    // The frame of one file before the content of another one of the same key.
    let other = folder.path().join("other");
    write(&other, Some(&key(1)), codec::NONE);
    let mut mixed = fs::read(&other).unwrap();
    mixed[72..104].copy_from_slice(&whole[72..104]);
    refused(&mixed, "another file's salt and signature");
}

/// A change of any byte that is written for the same content is a change of version.
#[test]
fn the_format_does_not_change_unnoticed() {
    let seal = Seal::of(&key(1), [5; 16]).unwrap();
    let mut bytes = b"golden".to_vec();
    let tag = seal.close_block(7, &mut bytes).unwrap();
    bytes.extend_from_slice(&tag);
    seal.close_section(section::STATE, &mut bytes).unwrap();
    bytes.extend_from_slice(&seal.sign(b"header", b"table").unwrap());
    assert_eq!(u128::from_le_bytes(layout::hash(&bytes)), 218207433252503503836843876727560709904);
}
