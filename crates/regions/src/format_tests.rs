//! Parts that are whole, damaged, cut off, of others, of later versions.

use super::*;
use crate::convert::Conversion;
use crate::part::{Part, Writer};
use proptest::prelude::*;
use std::path::Path;

fn entry(id: i32, kind: Kind, size: u64, count: u64) -> Entry {
    Entry { id, kind, size, count, file: String::new(), hash: [0; 16] }
}

fn label() -> Label {
    let stamp = Stamp::new(1, 2, 3);
    Label { name: "heat".into(), version: 40, stamp, rank: 1 }
}

/// A part of two regions and a file.
fn written(folder: &Path) -> Vec<u8> {
    let mut writer = Writer::create(folder, &label(), None).unwrap();
    let doubles = [1.5f64, -2.0].map(f64::to_ne_bytes).concat();
    writer.add(entry(3, Kind::Float, 8, 2), &doubles).unwrap();
    writer.add(entry(-1, Kind::Bytes, 3, 1), b"abc").unwrap();
    assert!(writer.add(entry(3, Kind::Int, 4, 0), b"").is_err(), "one region of each number");
    std::fs::write(folder.join("own"), b"content").unwrap();
    writer.add_file("own", &folder.join("own")).unwrap();
    std::fs::read(writer.finish(&label(), 4).unwrap()).unwrap()
}

fn bytes() -> Vec<u8> {
    written(tempfile::tempdir().unwrap().path())
}

fn why(bytes: &[u8]) -> String {
    head(&bytes).unwrap_err().to_string()
}

#[test]
fn what_is_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = written(dir.path());
    let part = Part::open(&dir.path().join(label().to_string()), &label(), 4, None).unwrap();
    part.verify().unwrap();
    assert_eq!(part.head.ranks, 4);
    assert_eq!(part.head.bytes, Order::OWN);
    let mut content = Vec::new();
    part.read_file(2, &mut content).unwrap();
    assert_eq!(content, b"content");
    let element = part.head.entries[0].element();
    let same = Conversion::new((element, Order::OWN), (element, Order::OWN)).unwrap();
    let mut doubles = Vec::new();
    part.read(0, &same, &mut |bytes| doubles.extend_from_slice(bytes)).unwrap();
    assert_eq!(doubles, [1.5f64, -2.0].map(f64::to_ne_bytes).concat());
    assert!(!dir.path().join(format!("{}.part", label())).exists());
    assert_eq!(head(&&bytes[..]).unwrap(), part.head);
}

#[test]
fn a_part_of_another_checkpoint_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    written(dir.path());
    let path = dir.path().join(label().to_string());
    let why = |label: &Label, ranks| {
        Part::open(&path, label, ranks, None).err().map(|error| error.to_string()).unwrap()
    };
    assert_eq!(why(&label(), 3), "it is of 4 processes, and there are 3");
    let other = Label { rank: 2, ..label() };
    assert!(why(&other, 4).contains("by its name"));
}

#[test]
fn a_part_that_is_given_up_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    drop(Writer::create(dir.path(), &label(), None).unwrap());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn what_is_cut_off_foreign_or_newer_says_so() {
    let bytes = bytes();
    assert_eq!(
        why(b"PK\x03\x04 some other file that is long enough, and then some more of it"),
        "it is no part of a checkpoint of regions"
    );
    assert!(why(&bytes[..20]).contains("it has 20 bytes"));
    assert!(why(&bytes[..5]).contains("it has 5 bytes"));
    assert!(why(&[]).contains("it has 0 bytes"));
    let short = &bytes[..bytes.len() - 1];
    assert!(why(short).contains(&format!("and {} were written", bytes.len())), "{}", why(short));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert_eq!(why(&newer), "it has version 2, and this library reads version 1: use a newer one");
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = bytes();
    for bit in 0..bytes.len() * 8 {
        let mut bad = bytes.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let found = Part::of(&bad[..]).and_then(|part| part.verify());
        assert!(found.is_err(), "bit {bit}");
    }
}

/// A part whose head says this, behind checksums that hold.
fn made(head: &Head, data: &[u8]) -> Vec<u8> {
    let mut raw = record::encode(head).unwrap();
    let at = (PREFACE_BYTES + data.len()) as u64;
    let mut bytes = preface(at, raw.len() as u64).to_vec();
    bytes.extend(data);
    bytes.append(&mut raw);
    bytes
}

#[test]
fn a_part_of_a_machine_of_the_other_byte_order_is_read() {
    let data: Vec<u8> = [7i64.to_be_bytes(), (-7i64).to_be_bytes()].concat();
    let mut region = entry(1, Kind::Int, 8, 2);
    region.hash = hash(&data);
    let label = label();
    let head = Head {
        name: label.name.clone(),
        version: label.version,
        order: label.stamp.order,
        run: label.stamp.run,
        rank: 1,
        ranks: 4,
        bytes: Order::Big,
        entries: vec![region],
    };
    let bytes = made(&head, &data);
    let part = Part::of(&bytes[..]).unwrap();
    part.verify().unwrap();
    let int = Type { kind: Kind::Int, size: 4 };
    let from = part.head.entries[0].element();
    let conversion = Conversion::new((from, part.head.bytes), (int, Order::OWN)).unwrap();
    let mut out = Vec::new();
    part.read(0, &conversion, &mut |bytes| out.extend_from_slice(bytes)).unwrap();
    assert_eq!(out, [7i32, -7].map(i32::to_ne_bytes).concat());
}

#[test]
fn a_head_that_contradicts_itself_is_refused() {
    let bytes = bytes();
    let good = head(&&bytes[..]).unwrap();
    let data = &bytes[PREFACE_BYTES..PREFACE_BYTES + 26];
    assert!(head(&&made(&good, data)[..]).is_ok());
    let refused = |change: fn(&mut Head)| {
        let mut bad = good.clone();
        change(&mut bad);
        why(&made(&bad, data))
    };
    assert!(refused(|h| h.entries[0].count = 3).contains("lengths of its regions"));
    assert!(refused(|h| h.entries[0].count = u64::MAX).contains("too many regions or bytes"));
    assert!(refused(|h| h.entries[0].size = 5).contains("a region"));
    assert!(refused(|h| h.entries[1].id = 3).contains("a region"));
    assert!(refused(|h| h.entries[2].file.clear()).contains("a region"));
    assert!(refused(|h| h.rank = 4).contains("its process"));
    assert!(refused(|h| h.name = "../heat".into()).contains("its name"));
    assert!(refused(|h| h.run = -1).contains("its numbers"));
}

proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert!(head(&&bytes[..]).is_err());
        let mut ours = MAGIC.to_vec();
        ours.extend(&bytes);
        prop_assert!(head(&&ours[..]).is_err());
    }
}
