//! Any bytes as a part of a checkpoint, as its head behind checksums that hold, as a label, and as
//! elements to be converted: refused, or read within their bounds and written again as the same.
#![no_main]

use eyrie_regions::convert::Conversion;
use eyrie_regions::format::{Head, PREFACE_BYTES, preface};
use eyrie_regions::kind::{Kind, Order, Type};
use eyrie_regions::label::{Label, Stamp};
use eyrie_regions::part::Part;
use eyrie_regions::sealed::Stored;
use eyrie_vault::record::{self, Record, VERSION};
use eyrie_vault::seal::Key;
use libfuzzer_sys::fuzz_target;

const SIZES: [usize; 6] = [1, 2, 4, 8, 16, 3];

/// A part whose head has this body, and so many bytes of regions.
fn behind_checksums(body: &[u8], data: &[u8]) -> Vec<u8> {
    let mut head = Head::MAGIC.to_vec();
    head.extend(u64::from(VERSION).to_le_bytes());
    head.extend((body.len() as u64).to_le_bytes());
    head.extend(record::hash(body));
    head.extend(body);
    let at = (PREFACE_BYTES + data.len()) as u64;
    let mut part = preface(at, head.len() as u64).to_vec();
    part.extend(data);
    part.extend(head);
    part
}

fn read(bytes: &[u8]) {
    let Ok(part) = Part::of(bytes) else { return };
    let again = record::encode(&part.head).expect("a head can be written");
    assert_eq!(record::decode::<Head>(&again).as_ref(), Ok(&part.head));
    let _ = part.verify();
    for (number, entry) in part.head.entries.iter().enumerate().take(8) {
        let from = (entry.element(), part.head.bytes);
        for (kind, size) in (0..5).filter_map(Kind::of).zip(SIZES) {
            let to = (Type { kind, size }, Order::OWN);
            let Ok(conversion) = Conversion::new(from, to) else { continue };
            let mut length = 0u64;
            let read = part.read(number, &conversion, &mut |bytes| length += bytes.len() as u64);
            assert!(read.is_err() || length == entry.count * size as u64);
        }
    }
}

/// What nobody sealed is refused, whatever it is.
fn unseal(bytes: &[u8]) {
    let key = Key::new(&[7; 32]).expect("a key");
    let label = Label { name: "a".into(), version: 0, stamp: Stamp::new(1, 1, 1), rank: 0 };
    let Ok(sealed) = Stored::open(bytes, Some(&key), &label) else { return };
    assert!(Part::of(sealed).is_err());
}

fn convert(choice: u8, bytes: &[u8]) {
    let [from, to] = [choice % 4 + 1, choice / 4 % 4 + 1].map(|n| Kind::of(n.into()).unwrap());
    for (from_size, to_size) in SIZES.into_iter().flat_map(|a| SIZES.map(|b| (a, b))) {
        if !from.takes(from_size as u64) || !to.takes(to_size as u64) {
            continue;
        }
        let stored = (Type { kind: from, size: from_size }, Order::Big);
        let own = (Type { kind: to, size: to_size }, Order::Little);
        let (Ok(there), Ok(back)) = (Conversion::new(stored, own), Conversion::new(own, stored))
        else {
            continue;
        };
        let whole = &bytes[..bytes.len() / from_size * from_size];
        let (mut out, mut again) = (Vec::new(), Vec::new());
        if there.run(0, whole, &mut out).is_ok() {
            assert_eq!(out.len(), whole.len() / from_size * to_size);
            // What fitted fits again; not-a-numbers may have other bits.
            back.run(0, &out, &mut again).expect("what became of a value becomes it again");
            assert!(matches!(from, Kind::Float | Kind::Complex) || again == whole);
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((choice, rest)) = data.split_first() else { return };
    match choice % 4 {
        0 => {
            read(rest);
            unseal(rest);
        }
        1 => {
            let bytes = usize::from(choice / 4).min(rest.len());
            let (data, body) = rest.split_at(bytes);
            read(&behind_checksums(body, data));
        }
        2 => {
            if let Some(label) = std::str::from_utf8(rest).ok().and_then(Label::parse) {
                assert_eq!(label.to_string().as_bytes(), rest);
            }
        }
        _ => convert(choice / 4, rest),
    }
});
