//! Vaults that are encrypted: what is on the disks tells nothing, and all else is as without.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Fuse, Memory, Random};
use eyrie_vault::Vault;
use eyrie_vault::disk::Disk;
use eyrie_vault::layout::Place;
use eyrie_vault::member::Member;
use eyrie_vault::seal::Key;
use std::collections::BTreeSet;

const NODES: u32 = 6;
const BYTES: usize = 150_000;

fn key(byte: u8) -> Option<Key> {
    Key::new(&[byte; 32])
}

/// Something that would be seen if it were there.
fn content(generation: u64, node: u32) -> Vec<u8> {
    let mut bytes = Random::new(generation << 20 | u64::from(node)).bytes(BYTES);
    bytes[70_000..70_032].copy_from_slice(b"the quick brown fox jumps over a");
    bytes
}

fn create() -> (Vault<Memory>, Vec<Memory>) {
    let disks: Vec<Memory> = (0..NODES).map(|_| Memory::with(&Fuse::default())).collect();
    let places = (0..NODES).map(Place::of).collect();
    let scheme = "rs:4+2".parse().unwrap();
    let mut vault = Vault::create([9; 16], scheme, places, disks.clone()).unwrap();
    vault.set_key(key(1));
    (vault, disks)
}

fn open(disks: &[Memory]) -> Vault<Memory> {
    let members = disks.iter().filter_map(|disk| Member::open(disk.clone()).unwrap()).collect();
    Vault::open(members).unwrap().0
}

fn store(vault: &mut Vault<Memory>) -> u64 {
    let generation = vault.begin().unwrap();
    for node in 0..NODES {
        vault.add(node, "image", &mut &content(generation, node)[..]).unwrap();
    }
    vault.commit().unwrap()
}

fn read(vault: &mut Vault<Memory>, generation: u64, node: u32) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    match vault.read(generation, node, "image", &mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

fn all_files(disk: &Memory) -> Vec<Vec<u8>> {
    let names = disk.names().unwrap();
    names.iter().map(|name| disk.read(name, u64::MAX).unwrap().unwrap()).collect()
}

#[test]
fn only_the_key_opens_it_and_the_disks_tell_nothing() {
    let (mut vault, disks) = create();
    let generation = store(&mut vault);
    for bytes in disks.iter().flat_map(all_files) {
        assert!(!bytes.windows(9).any(|window| window == b"brown fox"));
    }
    let mut vault = open(&disks);
    assert!(read(&mut vault, generation, 0).unwrap_err().contains("is encrypted: give its key"));
    vault.set_key(key(2));
    assert!(read(&mut vault, generation, 0).unwrap_err().contains("another key"));
    vault.set_key(key(1));
    for node in 0..NODES {
        assert!(read(&mut vault, generation, node).unwrap() == content(generation, node));
    }
}

#[test]
fn lost_members_are_made_anew_without_the_key() {
    let (mut vault, disks) = create();
    let generation = store(&mut vault);
    let mut left = open(&disks[2..]);
    left.set_key(key(1));
    for node in 0..NODES {
        assert!(read(&mut left, generation, node).unwrap() == content(generation, node));
    }
    left.set_key(None);
    let new: Vec<Memory> = (0..2).map(|_| Memory::with(&Fuse::default())).collect();
    for (node, disk) in (0..).zip(&new) {
        left.replace(node, disk.clone()).unwrap();
    }
    let mended = left.mend_all(true, &mut |_| {}).unwrap();
    assert_eq!((mended.lost, mended.repaired == mended.damaged), (0, true));
    for (node, disk) in new.iter().enumerate() {
        let name = format!("gen-{generation}.data");
        assert_eq!(disk.read(&name, u64::MAX).unwrap(), disks[node].read(&name, u64::MAX).unwrap());
    }
    // Two others.
    let mut again = open(&[&new[..], &disks[2..4]].concat());
    again.set_key(key(1));
    assert!(read(&mut again, generation, 5).unwrap() == content(generation, 5));
}

#[test]
fn changes_and_consolidation_are_as_without_a_key() {
    let (mut vault, disks) = create();
    let first = store(&mut vault);
    vault.begin().unwrap();
    let changed = [7u8; 5000];
    for node in 0..NODES {
        let changes = [(65_000u64, &changed[..])];
        vault.add_changes(node, ("image", first), BYTES as u64, &changes, None).unwrap();
    }
    let second = vault.commit().unwrap();
    let expected = |node: u32| {
        let mut bytes = content(first, node);
        bytes[65_000..70_000].copy_from_slice(&changed);
        bytes
    };
    assert!(read(&mut vault, second, 3).unwrap() == expected(3));
    let third = vault.consolidate(second).unwrap();
    assert_eq!(vault.collect(&BTreeSet::from([third])).unwrap(), [first, second]);
    let mut vault = open(&disks[1..5]);
    vault.set_key(key(1));
    for node in 0..NODES {
        assert!(read(&mut vault, third, node).unwrap() == expected(node));
    }
}

#[test]
fn what_is_not_encrypted_is_no_answer_to_a_key() {
    let (mut vault, _) = create();
    vault.set_key(None);
    let generation = store(&mut vault);
    assert!(read(&mut vault, generation, 0).is_ok());
    vault.set_key(key(1));
    assert!(read(&mut vault, generation, 0).unwrap_err().contains("is not encrypted"));
}

#[test]
fn the_same_bytes_are_other_bytes_each_time() {
    let (mut vault, disks) = create();
    for _ in 0..2 {
        vault.begin().unwrap();
        for node in 0..NODES {
            vault.add(node, "image", &mut &content(9, 9)[..]).unwrap();
        }
        vault.commit().unwrap();
    }
    let mut starts = BTreeSet::new();
    for (disk, generation) in disks.iter().flat_map(|disk| [(disk, 1), (disk, 2)]) {
        let mut start = [0; 32];
        disk.read_at(&format!("gen-{generation}.data"), 0, &mut start).unwrap();
        starts.insert(start);
    }
    assert_eq!(starts.len(), 2 * disks.len());
}
