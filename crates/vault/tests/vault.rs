//! Vaults that lose members, rot, fill up, and are opened twice.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Fuse, Memory, Random};
use eyrie_vault::disk::Disk;
use eyrie_vault::layout::Place;
use eyrie_vault::member::Member;
use eyrie_vault::vault::{Opened, State};
use eyrie_vault::{Encoder, Vault, VaultError};
use std::collections::BTreeSet;

type Disks = Vec<Memory>;

fn create(scheme: &str, nodes: u32) -> (Vault<Memory>, Disks) {
    let disks: Disks = (0..nodes).map(|_| Memory::with(&Fuse::default())).collect();
    let places = (0..nodes).map(Place::of).collect();
    let vault = Vault::create([9; 16], scheme.parse().unwrap(), places, disks.clone()).unwrap();
    (vault, disks)
}

fn open(disks: &[Memory]) -> (Vault<Memory>, Opened) {
    let member = |disk: &Memory| Member::open(disk.clone()).unwrap();
    Vault::open(disks.iter().filter_map(member).collect()).unwrap()
}

fn content(generation: u64, node: u32, bytes: usize) -> Vec<u8> {
    Random::new(generation << 20 | u64::from(node)).bytes(bytes)
}

fn length(node: u32) -> usize {
    [150_000, 70, 0, 65_536, 200_001, 1][node as usize % 6]
}

fn store(vault: &mut Vault<Memory>) -> Result<u64, VaultError> {
    let generation = vault.begin()?;
    for node in vault.nodes().collect::<Vec<_>>() {
        let bytes = content(generation, node, length(node));
        vault.add(node, "image", &mut &bytes[..])?;
        vault.add(node, "log", &mut &b"log"[..])?;
    }
    vault.commit()
}

fn read(vault: &mut Vault<Memory>, generation: u64, node: u32) -> Result<Vec<u8>, VaultError> {
    let mut bytes = Vec::new();
    vault.read(generation, node, "image", &mut bytes)?;
    Ok(bytes)
}

fn assert_sound(vault: &mut Vault<Memory>, generation: u64, nodes: u32) {
    for node in 0..nodes {
        let bytes = read(vault, generation, node).unwrap();
        assert!(bytes == content(generation, node, length(node)), "node {node}");
    }
}

#[test]
fn every_choice_of_m_lost_nodes_is_survived_up_to_6_and_3() {
    for (k, m) in (1..=6u32).flat_map(|k| (1..=3u32).map(move |m| (k, m))) {
        let nodes = k + m;
        let (mut vault, disks) = create(&format!("rs:{k}+{m}"), nodes);
        let generation = vault.begin().unwrap();
        for node in 0..nodes {
            let bytes = content(generation, node, 40 * node as usize);
            vault.add(node, "image", &mut &bytes[..]).unwrap();
        }
        vault.commit().unwrap();
        for lost in (0u32..1 << nodes).filter(|set| set.count_ones() == m) {
            let left = (0..nodes).filter(|node| lost >> node & 1 == 0);
            let left: Disks = left.map(|node| disks[node as usize].clone()).collect();
            let member = |disk: &Memory| Member::open(disk.clone()).unwrap();
            let (mut vault, opened) =
                Vault::look(left.iter().filter_map(member).collect()).unwrap();
            assert_eq!(opened.missing.len() as u32, m);
            for node in 0..nodes {
                let bytes = read(&mut vault, generation, node).unwrap();
                assert_eq!(bytes, content(generation, node, 40 * node as usize));
            }
            let State::Degraded(bad) = vault.state(generation).unwrap() else { panic!("{lost:b}") };
            assert_eq!(bad.len() as u32, m);
        }
    }
}

#[test]
fn beyond_that_it_is_said_what_is_gone_and_what_can_be_had() {
    let (mut vault, disks) = create("rs:4+2", 6);
    assert_eq!((store(&mut vault).unwrap(), store(&mut vault).unwrap()), (1, 2));
    // Three members lost the second generation, and none the first.
    for disk in &disks[..3] {
        for name in ["gen-2.data", "gen-2.parity"] {
            disk.clone().remove(name).unwrap();
        }
    }
    let (mut vault, _) = open(&disks);
    assert_eq!(vault.state(2).unwrap(), State::Lost(vec![0, 1, 2]));
    assert_eq!(vault.newest().unwrap(), Some(1));
    let error = read(&mut vault, 2, 0).unwrap_err().to_string();
    let said = "generation 2 of node 0 is lost: of a stripe 3 members are sound and 4 are needed";
    assert_eq!(error, said);
    assert_sound(&mut vault, 1, 6);
    // What the others have of it can be read.
    assert_eq!(read(&mut vault, 2, 4).unwrap(), content(2, 4, length(4)));
    let mended = vault.mend_all(true, &mut |_| {}).unwrap();
    assert!(mended.lost > 0 && mended.sound > 0);
    let (mut vault, opened) = open(&disks[3..]);
    assert_eq!(opened.missing, [0, 1, 2]);
    assert_eq!(vault.newest().unwrap(), None);
    assert!(read(&mut vault, 1, 0).unwrap_err().to_string().contains("lost"));
}

#[test]
fn what_cannot_be_written_is_counted_as_lost_and_the_others_are_mended() {
    let (mut vault, disks) = create("rs:4+2", 6);
    store(&mut vault).unwrap();
    for disk in &disks[..2] {
        disk.clone().remove("gen-1.data").unwrap();
    }
    let (mut vault, _) = open(&disks);
    disks[0].set_room(Some(0));
    let mended = vault.mend_all(true, &mut |_| {}).unwrap();
    assert!(mended.lost > 0 && mended.repaired > 0, "{mended:?}");
    assert!(mended.why.as_ref().unwrap().starts_with("node 0: "), "{mended:?}");
    assert_eq!(vault.state(1).unwrap(), State::Degraded(vec![0]));
    disks[0].set_room(None);
    let mended = vault.mend_all(true, &mut |_| {}).unwrap();
    assert!(mended.lost == 0 && mended.why.is_none(), "{mended:?}");
    assert_eq!(vault.state(1).unwrap(), State::Whole);
    assert_sound(&mut vault, 1, 6);
}

#[test]
fn flipped_bits_are_found_wherever_they_are_and_repaired() {
    let (mut vault, disks) = create("rs:4+2", 6);
    store(&mut vault).unwrap();
    let mut random = Random::new(1);
    for name in ["gen-1.data", "gen-1.parity"] {
        let before: Vec<Vec<u8>> =
            disks.iter().map(|disk| disk.read(name, 1 << 30).unwrap().unwrap()).collect();
        for round in 0..20 {
            // Two members at once, whose every chunk may be hit.
            let hit = [round % 6, (round + 1 + round / 6) % 6];
            for member in hit {
                for _ in 0..3 {
                    assert!(disks[member].flip(name, random.bits()));
                }
            }
            let (mut vault, _) = open(&disks);
            assert_sound(&mut vault, 1, 6);
            let found = vault.mend_all(false, &mut |_| {}).unwrap();
            assert!(found.damaged > 0 && found.lost == 0 && found.repaired == 0, "{found:?}");
            let mut written = 0;
            let mended = vault.mend_all(true, &mut |bytes| written += bytes).unwrap();
            assert_eq!((mended.damaged, mended.lost), (found.damaged, 0));
            assert!(written > 0);
            assert_eq!(vault.mend_all(false, &mut |_| {}).unwrap().damaged, 0);
            for (disk, before) in disks.iter().zip(&before) {
                assert!(disk.read(name, 1 << 30).unwrap().unwrap() == *before);
            }
        }
    }
}

#[test]
fn damaged_records_of_one_member_do_no_harm() {
    let (mut vault, disks) = create("rs:2+1", 3);
    store(&mut vault).unwrap();
    assert!(disks[1].flip("gen-1.commit", 400));
    let (mut vault, opened) = open(&disks);
    assert_eq!(opened.damaged.len(), 1);
    assert!(opened.damaged[0].to_string().contains("gen-1.commit"), "{:?}", opened.damaged);
    assert_sound(&mut vault, 1, 3);
    let (_, opened) = open(&disks);
    assert!(opened.damaged.is_empty(), "it was written anew");
}

#[test]
fn a_full_disk_ends_the_generation_everywhere_and_no_more() {
    let (mut vault, disks) = create("rs:4+2", 6);
    store(&mut vault).unwrap();
    for room in [0, 100, 70_000, 200_400, 210_000] {
        disks[4].set_room(Some(room));
        let error = store(&mut vault).unwrap_err().to_string();
        assert!(error.contains("node 4"), "{room}: {error}");
        disks[4].set_room(None);
        vault.give_up();
        if room == 70_000 {
            let (again, opened) = open(&disks);
            vault = again;
            assert!(opened.unusable.is_empty());
        }
        assert_eq!(vault.generations().count(), 1);
        for disk in &disks {
            let names = disk.names().unwrap();
            assert!(names.iter().all(|n| !n.starts_with("gen-") || n.starts_with("gen-1.")));
        }
    }
    let generation = store(&mut vault).unwrap();
    assert_sound(&mut vault, generation, 6);
    assert_sound(&mut vault, 1, 6);
}

#[test]
fn a_member_that_was_away_catches_up() {
    let (mut vault, disks) = create("rs:2+1", 4);
    store(&mut vault).unwrap();
    store(&mut vault).unwrap();
    // Meanwhile the first goes and a third comes, among those that are left.
    let (mut vault, opened) = open(&disks[..3]);
    assert_eq!(opened.missing, [3]);
    assert_eq!(vault.collect(&BTreeSet::from([2])).unwrap(), [1]);
    let third = store(&mut vault).unwrap();
    assert_eq!(third, 3);
    let (mut vault, opened) = open(&disks);
    assert_eq!(opened.dropped, [1]);
    assert_eq!(vault.generations().map(|c| c.generation).collect::<Vec<_>>(), [2, 3]);
    assert!(disks[3].names().unwrap().iter().all(|name| !name.starts_with("gen-1.")));
    assert_sound(&mut vault, 2, 4);
    assert_sound(&mut vault, 3, 3);
    let error = read(&mut vault, 3, 3).unwrap_err().to_string();
    assert_eq!(error, "node 3 has no part in generation 3");
}

#[test]
fn an_earlier_controller_is_obeyed_no_more() {
    let (mut first, disks) = create("rs:2+1", 3);
    store(&mut first).unwrap();
    first.begin().unwrap();
    first.add(0, "image", &mut &content(2, 0, 100_000)[..]).unwrap();
    // It hangs; another one takes over.
    let (mut second, opened) = open(&disks);
    assert_eq!(opened.dropped, [2]);
    let (looking, _) =
        Vault::look(disks.iter().filter_map(|disk| Member::open(disk.clone()).unwrap()).collect())
            .unwrap();
    assert_eq!(looking.generations().count(), 1);
    let generation = store(&mut second).unwrap();
    assert_sound(&mut second, generation, 3);
    // A member that knows of the second.
    let mut member = Member::open(disks[0].clone()).unwrap().unwrap();
    let error = member.begin(9, 1).unwrap_err().to_string();
    assert!(error.contains("obeys a later controller"), "{error}");
    let commit = second.generations().last().unwrap().clone();
    assert!(member.commit(&commit).is_err(), "it did not prepare it");
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let (_, disks) = create("rs:2+1", 3);
    let (_, others) = create("rs:2+1", 3);
    let member = |disk: &Memory| Member::open(disk.clone()).unwrap().unwrap();
    let twice = Vault::open(vec![member(&disks[0]), member(&disks[0])]);
    assert!(matches!(twice, Err(VaultError::Twice(0))));
    let places = (0..2).map(Place::of).collect();
    let scheme = "partner".parse().unwrap();
    let fresh = vec![Memory::default(), Memory::default()];
    Vault::create([1; 16], scheme, places, fresh.clone()).unwrap();
    let mixed = Vault::open(vec![member(&disks[0]), member(&fresh[1])]);
    assert!(matches!(mixed, Err(VaultError::Other(1))));
    assert!(matches!(Vault::<Memory>::open(Vec::new()), Err(VaultError::Empty)));
    let again = Vault::create([1; 16], scheme, (0..2).map(Place::of).collect(), others);
    assert!(matches!(again, Err(VaultError::Member { node: 0, .. })));
}

#[test]
fn objects_have_one_name_each_and_changes_fit() {
    let (mut vault, _) = create("rs:2+1", 3);
    store(&mut vault).unwrap();
    vault.begin().unwrap();
    for name in ["", ".x", "a/b", "a b"] {
        assert!(vault.add(0, name, &mut &b"x"[..]).is_err(), "{name}");
    }
    vault.add(0, "x", &mut &b"x"[..]).unwrap();
    assert!(vault.add(0, "x", &mut &b"x"[..]).is_err());
    let changes: [&[(u64, &[u8])]; 2] = [&[(10, b"abc"), (12, b"d")], &[(149_999, b"xy")]];
    for changed in changes {
        assert!(vault.add_changes(0, ("image", 1), 150_000, changed, None).is_err());
    }
    assert!(vault.add_changes(0, ("image", 1), 150_001, &[], None).is_err(), "a gap at the end");
    vault.add_changes(0, ("image", 1), 150_004, &[(149_998, b"wxyzab")], None).unwrap();
    let generation = vault.commit().unwrap();
    let mut expected = content(1, 0, 149_998);
    expected.extend(b"wxyzab");
    assert_eq!(read(&mut vault, generation, 0).unwrap(), expected);
    assert_eq!(vault.collect(&BTreeSet::from([generation])).unwrap(), [], "the first is needed");
}

#[test]
fn all_encoders_give_the_same_bytes() {
    let mut all = Vec::new();
    for encoder in Encoder::ALL {
        let (mut vault, disks) = create("rs:4+2", 6);
        let mut random = Random::new(encoder as u64);
        vault.set_order(Box::new(move |n| random.below(n as u64) as usize));
        vault.set_encoder(Some(encoder));
        store(&mut vault).unwrap();
        let parity = |disk: &Memory| disk.read("gen-1.parity", 1 << 30).unwrap().unwrap();
        all.push(disks.iter().map(parity).collect::<Vec<_>>());
    }
    assert!(all[0] == all[1] && all[1] == all[2]);
    assert!(all[0].iter().map(Vec::len).sum::<usize>() > 200_000);
}
