//! Any bytes as a saved log whose checksums hold: refused, or read through to its end by the reader
//! and the door.

#![no_main]

use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

use eyrie_ledger::door::{Call, Door};
use eyrie_ledger::reader::Reader;
use eyrie_ledger::saved;
use eyrie_ledger::segment::Segment;
use libfuzzer_sys::fuzz_target;
use xxhash_rust::xxh3::xxh3_128;

const HEADER: usize = 64;
const ENTRY: usize = 40;
const MOST_RANKS: u32 = 4;

fuzz_target!(|data: &[u8]| {
    let Some(bytes) = sign(data) else { return };
    // SAFETY: the name is a constant; the descriptor is new and ours.
    let file = unsafe { File::from_raw_fd(memfd_create(c"fuzz".as_ptr(), 0)) };
    if file.as_raw_fd() < 0 || file.write_all_at(&bytes, 0).is_err() {
        return;
    }
    let Ok(loaded) = saved::load(&file, "fuzz") else { return };
    // SAFETY: what borrows it for ever is gone before it is.
    let segment: &'static Segment = unsafe { &*(&raw const loaded.segment) };
    for source in 0..segment.geometry().ranks.min(MOST_RANKS) {
        let mut reader = Reader::new(segment, source, loaded.rank);
        let mut left = 10_000;
        while let (Ok(Some(entry)), 1..) = (reader.peek(), left) {
            reader.pass(&entry);
            left -= 1;
        }
    }
    let mut door = Door::new(segment, loaded.rank);
    for _ in 0..1000 {
        if !door.replaying() || door.ask(Call::Test).is_err() {
            break;
        }
    }
});

/// Makes the frame agree with the length and all checksums hold.
fn sign(data: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = data.to_vec();
    if bytes.len() < HEADER {
        return None;
    }
    let word = |bytes: &[u8], at: usize| {
        bytes[at..at + 8].iter().rev().fold(0u64, |w, &b| w << 8 | u64::from(b))
    };
    let room = (bytes.len() - HEADER) / ENTRY;
    let entries = (word(&bytes, 32) as usize).min(room);
    let table = bytes.len() - entries * ENTRY;
    bytes[..12].copy_from_slice(b"EYRIELOG\x01\0\0\0");
    bytes[24..32].copy_from_slice(&(table as u64).to_le_bytes());
    bytes[32..40].copy_from_slice(&(entries as u64).to_le_bytes());
    bytes[56..64].fill(0);
    let mut at = HEADER;
    for i in 0..entries {
        let entry = table + i * ENTRY;
        let last = i + 1 == entries;
        let length = (word(&bytes, entry + 16) as usize).min(table - at);
        let length = if last { table - at } else { length };
        bytes[entry + 16..entry + 24].copy_from_slice(&(length as u64).to_le_bytes());
        let hash = xxh3_128(&bytes[at..at + length]).to_le_bytes();
        bytes[entry + 24..entry + 40].copy_from_slice(&hash);
        at += length;
    }
    let mut signed = bytes[..40].to_vec();
    signed.extend_from_slice(&bytes[table..]);
    let hash = xxh3_128(&signed).to_le_bytes();
    bytes[40..56].copy_from_slice(&hash);
    Some(bytes)
}

unsafe extern "C" {
    fn memfd_create(name: *const std::ffi::c_char, flags: u32) -> i32;
}
