//! Generations whose parity is that of an earlier one, updated by differences: held against parity
//! that is worked out plainly, with objects that change, grow, shrink, come and go.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Fuse, Memory, Random};
use eyrie_vault::cost::Measured;
use eyrie_vault::disk::Disk;
use eyrie_vault::geometry::{CHUNK_BYTES, Cell, Geometry};
use eyrie_vault::layout::Place;
use eyrie_vault::member::Member;
use eyrie_vault::record::{Commit, Made, hash};
use eyrie_vault::seal::Key;
use eyrie_vault::strategy::Strategy;
use eyrie_vault::vault::{Draft, State};
use eyrie_vault::{Encoder, Vault};
use std::collections::{BTreeMap, BTreeSet};

/// Of each node its objects.
type Contents = BTreeMap<u32, BTreeMap<String, Vec<u8>>>;

fn create(scheme: &str, nodes: u32) -> (Vault<Memory>, Vec<Memory>) {
    let disks: Vec<Memory> = (0..nodes).map(|_| Memory::with(&Fuse::default())).collect();
    let places = (0..nodes).map(Place::of).collect();
    let scheme = scheme.parse().unwrap();
    let mut vault = Vault::create([9; 16], scheme, places, disks.clone()).unwrap();
    // What is sent is what counts.
    vault.set_measured(Measured { link: 1e3, ..Measured::default() });
    (vault, disks)
}

/// Of each node what is to be stored of its objects.
type Drafts = BTreeMap<u32, Vec<Draft>>;

fn drafts(vault: &mut Vault<Memory>, contents: &Contents, base: Option<u64>) -> Drafts {
    let mut all = Drafts::new();
    for (node, objects) in contents {
        let draft = |(name, bytes): (&String, &Vec<u8>)| {
            vault.draft(base, (*node, name), &mut &bytes[..]).unwrap()
        };
        all.insert(*node, objects.iter().map(draft).collect());
    }
    all
}

fn add(vault: &mut Vault<Memory>, contents: &Contents, drafts: &Drafts, way: Strategy) {
    for (node, drafts) in drafts {
        for draft in drafts {
            let bytes = &contents[node][&draft.name];
            let mut content = |at: u64, to: &mut [u8]| {
                to.copy_from_slice(&bytes[at as usize..at as usize + to.len()]);
                Ok(())
            };
            vault.add_draft(*node, way, draft, &mut content).unwrap();
        }
    }
}

/// Stores contents in a way, beside what `base` has.
fn store(vault: &mut Vault<Memory>, contents: &Contents, way: Strategy, base: Option<u64>) -> u64 {
    let drafts = drafts(vault, contents, base);
    let generation = vault.begin_as(way, base).unwrap();
    add(vault, contents, &drafts, way);
    assert_eq!(vault.commit().unwrap(), generation);
    generation
}

fn assert_has(vault: &mut Vault<Memory>, generation: u64, contents: &Contents) {
    for (node, objects) in contents {
        let names: Vec<String> = vault
            .manifest(generation, *node)
            .unwrap()
            .objects
            .into_iter()
            .map(|o| o.name)
            .collect();
        assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), objects.keys().cloned().collect());
        for (name, bytes) in objects {
            let mut read = Vec::new();
            vault.read(generation, *node, name, &mut read).unwrap();
            assert!(read == *bytes, "{name} of node {node} in generation {generation}");
        }
    }
}

fn times(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b > 0 {
        if b & 1 > 0 {
            product ^= a;
        }
        a = a << 1 ^ if a & 0x80 > 0 { 0x1D } else { 0 };
        b >>= 1;
    }
    product
}

fn file(disk: &Memory, name: &str) -> Vec<u8> {
    disk.read(name, 1 << 30).unwrap().unwrap_or_default()
}

fn cut(file: &[u8], geometry: &Geometry, cell: Cell) -> Vec<u8> {
    let spot = geometry.spot(cell);
    let from = if spot.bytes == 0 { 0 } else { spot.offset as usize };
    file[from..from + spot.bytes as usize].to_vec()
}

/// Parity, and its table, are what the payloads make them.
fn assert_plain(disks: &[Memory], commit: &Commit) {
    let generation = commit.generation;
    for (number, group) in commit.groups.iter().enumerate() {
        let geometry = commit.geometry(number).unwrap();
        let code = geometry.code().unwrap();
        let of = |kind: &str| -> Vec<Vec<u8>> {
            let read = |node: u32| file(&disks[node as usize], &format!("gen-{generation}.{kind}"));
            group.iter().map(|s| read(s.node)).collect()
        };
        let (data, parity) = (of("data"), of("parity"));
        for member in 0..group.len() {
            let mut table = Vec::new();
            for cell in geometry.parity_cells(member) {
                let mut sum = vec![0; geometry.spot(cell).bytes as usize];
                for position in 0..code.k() {
                    let factor = code.factor(cell.position - code.k(), position);
                    let from = Cell { position, ..cell };
                    let term = cut(&data[geometry.holder(cell.stripe, position)], &geometry, from);
                    sum.iter_mut().zip(term).for_each(|(s, t)| *s ^= times(factor, t));
                }
                assert!(cut(&parity[member], &geometry, cell) == sum, "{cell:?} of {generation}");
                table.extend(hash(&sum));
            }
            assert_eq!(parity[member][geometry.parity_bytes(member) as usize..], table);
        }
    }
}

fn change(random: &mut Random, bytes: &mut Vec<u8>) {
    match random.below(8) {
        0 => bytes.truncate(random.below(bytes.len() as u64 + 1) as usize),
        1 => {
            let more = random.below(150_000) as usize;
            bytes.extend(random.bytes(more));
        }
        2 | 3 => {}
        _ if bytes.is_empty() => {}
        _ => {
            for _ in 0..random.below(4) {
                let at = random.below(bytes.len() as u64) as usize;
                let end = (at + 1 + random.below(9000) as usize).min(bytes.len());
                let new = random.bytes(end - at);
                bytes[at..end].copy_from_slice(&new);
            }
        }
    }
}

fn evolve(random: &mut Random, contents: &mut Contents) {
    for objects in contents.values_mut() {
        objects.values_mut().for_each(|bytes| change(random, bytes));
        if random.below(12) == 0 {
            objects.pop_last();
        }
        if random.below(12) == 0 {
            let bytes = random.below(100_000) as usize;
            objects.insert(format!("more-{}", random.below(9)), random.bytes(bytes));
        }
    }
}

/// Every `count` of the nodes.
fn choices(nodes: u32, count: u32) -> impl Iterator<Item = Vec<u32>> {
    let of = move |set: u32| (0..nodes).filter(|n| set >> n & 1 == 1).collect::<Vec<u32>>();
    (0u32..1 << nodes).filter(move |set| set.count_ones() == count).map(of)
}

#[test]
fn updated_parity_is_that_of_the_payloads_and_bears_every_loss() {
    let shapes = [("rs:4+2", 6), ("rs:2+1", 3), ("xor:3", 4), ("partner", 3), ("rs:2+2", 8)];
    let mut updates = 0;
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let (scheme, nodes) = shapes[seed as usize % shapes.len()];
        let (mut vault, disks) = create(scheme, nodes);
        let mut order = Random::new(!seed);
        vault.set_order(Box::new(move |n| order.below(n as u64) as usize));
        let mut contents: Contents = (0..nodes).map(|n| (n, BTreeMap::new())).collect();
        for objects in contents.values_mut() {
            for name in ["a", "b", "c"].into_iter().take(random.below(4) as usize) {
                let bytes = random.below(5) * random.below(90_000);
                objects.insert(name.into(), random.bytes(bytes as usize));
            }
        }
        let mut stored =
            vec![(store(&mut vault, &contents, Strategy::Whole, None), contents.clone())];
        for _ in 0..3 {
            evolve(&mut random, &mut contents);
            let choice = random.below(4) as usize;
            vault.set_encoder(Encoder::ALL.get(choice).copied());
            let base = stored.last().unwrap().0;
            let generation = store(&mut vault, &contents, Strategy::Update, Some(base));
            stored.push((generation, contents.clone()));
        }
        for commit in vault.generations().cloned().collect::<Vec<_>>() {
            updates += u32::from(commit.made != Made::Anew);
            assert!(commit.needs().is_empty(), "a restore reads one generation");
            assert_plain(&disks, &commit);
        }
        for (generation, contents) in &stored {
            assert_has(&mut vault, *generation, contents);
        }
        assert_eq!(vault.mend_all(false, &mut |_| {}).unwrap().damaged, 0);
        let (newest, contents) = stored.last().unwrap();
        for lost in choices(nodes, vault.scheme.tolerates() as u32) {
            let left = (0..nodes).filter(|node| !lost.contains(node));
            let open = |node: u32| Member::open(disks[node as usize].clone()).unwrap();
            let (mut vault, _) = Vault::look(left.filter_map(open).collect()).unwrap();
            assert_has(&mut vault, *newest, contents);
            assert!(matches!(vault.state(*newest).unwrap(), State::Degraded(_)));
        }
    }
    assert!(updates > 40, "{updates} of 60 were updates");
}

/// One change in one of six nodes.
fn one_change() -> (Contents, Contents) {
    let mut random = Random::new(3);
    let mut objects = || BTreeMap::from([(String::from("image"), random.bytes(3 << 20))]);
    let before: Contents = (0..6).map(|node| (node, objects())).collect();
    let mut after = before.clone();
    after.get_mut(&2).unwrap().get_mut("image").unwrap()[1_000_000] ^= 1;
    (before, after)
}

#[test]
fn only_what_changed_is_sent_and_the_base_can_go() {
    let (mut vault, disks) = create("rs:4+2", 6);
    let (before, after) = one_change();
    let first = store(&mut vault, &before, Strategy::Whole, None);
    let whole = vault.sent_bytes();
    assert!(whole >= 2 * 6 * (3 << 20), "{whole}");
    let second = store(&mut vault, &after, Strategy::Update, Some(first));
    // One chunk, and of each node the end of its payload, which tells of all.
    assert!(vault.sent_bytes() <= 2 * (1 + 6) * CHUNK_BYTES, "{}", vault.sent_bytes());
    let commit = vault.generations().last().unwrap().clone();
    assert_eq!(commit.made, Made::Updated { base: first, laid: first, bytes: 7 * CHUNK_BYTES });
    assert_eq!(commit.why, "7 of 294 chunks changed");
    assert_eq!(vault.collect(&BTreeSet::from([second])).unwrap(), [first]);
    assert_plain(&disks, &commit);
    assert_has(&mut vault, second, &after);
    // And on from there, with stripes as the first had them.
    let third = store(&mut vault, &before, Strategy::Update, Some(second));
    let made = vault.generations().last().unwrap().made;
    assert_eq!(made, Made::Updated { base: second, laid: first, bytes: 7 * CHUNK_BYTES });
    assert_has(&mut vault, third, &before);
}

#[test]
fn where_all_changed_parity_is_made_anew() {
    let (mut vault, disks) = create("rs:4+2", 6);
    let (before, _) = one_change();
    let first = store(&mut vault, &before, Strategy::Whole, None);
    let mut random = Random::new(4);
    let mut after = before;
    after.values_mut().flat_map(BTreeMap::values_mut).for_each(|b| *b = random.bytes(b.len()));
    let second = store(&mut vault, &after, Strategy::Update, Some(first));
    let commit = vault.generations().last().unwrap().clone();
    assert_eq!((commit.generation, commit.made), (second, Made::Anew));
    assert_plain(&disks, &commit);
    assert_has(&mut vault, second, &after);
}

#[test]
fn changes_are_found_and_weighed() {
    let (mut vault, _) = create("rs:4+2", 6);
    let (before, after) = one_change();
    let first = store(&mut vault, &before, Strategy::Whole, None);
    let mut drafts = BTreeMap::new();
    for (node, objects) in &after {
        let draft = vault.draft(Some(first), (*node, "image"), &mut &objects["image"][..]).unwrap();
        let ranges = &draft.changes.as_ref().unwrap().1;
        let block = (1_000_000 / 4096 * 4096, 4096);
        assert_eq!(ranges[..], [block][..usize::from(*node == 2)], "node {node}");
        drafts.insert(*node, vec![draft]);
    }
    let choice = vault.weigh(Some(first), &drafts, 8).unwrap();
    assert_eq!(choice.way, Strategy::Update, "{choice}");
    vault.set_measured(Measured { link: 1e11, coding: 1e11, ..Measured::default() });
    let choice = vault.weigh(Some(first), &drafts, 8).unwrap();
    assert_eq!(choice.way, Strategy::Increments, "{choice}");
    assert_eq!(vault.weigh(None, &drafts, 8).unwrap().way, Strategy::Whole);
    // Increments lie beside what they are changes of; these cannot be updated.
    let second = store(&mut vault, &after, Strategy::Increments, Some(first));
    assert_eq!(vault.generations().last().unwrap().needs(), BTreeSet::from([first]));
    assert_has(&mut vault, second, &after);
    let why = vault.begin_on(second).unwrap_err().to_string();
    assert!(why.contains("it has changes only"), "{why}");
}

#[test]
fn what_is_damaged_encrypted_or_of_other_nodes_is_not_built_on() {
    let (before, after) = one_change();
    for (name, why) in [("gen-1.parity", "damaged"), ("gen-1.data", "damaged")] {
        let (mut vault, disks) = create("rs:4+2", 6);
        let first = store(&mut vault, &before, Strategy::Whole, None);
        // The last bytes are those of a table.
        let end = file(&disks[1], name).len() as u64 * 8;
        assert!(disks[1].flip(name, end - 1));
        let members = disks.iter().map(|d| Member::open(d.clone()).unwrap().unwrap()).collect();
        let mut vault = Vault::open(members).unwrap().0;
        let error = vault.begin_on(first).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
        // It can be made whole, and then it is as any.
        assert!(vault.mend_all(true, &mut |_| {}).unwrap().repaired > 0 || name == "gen-1.parity");
        let second = store(&mut vault, &after, Strategy::Update, Some(first));
        assert_has(&mut vault, second, &after);
    }
    let (mut vault, disks) = create("rs:4+2", 6);
    vault.set_key(Key::new(&[1; 32]));
    let first = store(&mut vault, &before, Strategy::Whole, None);
    let error = vault.begin_on(first).unwrap_err().to_string();
    assert!(error.contains("it is encrypted"), "{error}");
    let members = disks[1..].iter().map(|d| Member::open(d.clone()).unwrap().unwrap()).collect();
    let mut vault = Vault::open(members).unwrap().0;
    let drafts = BTreeMap::new();
    let choice = vault.weigh(Some(first), &drafts, 8).unwrap();
    assert!(choice.estimates.iter().all(|e| e.way != Strategy::Update), "{choice}");
}

#[test]
fn a_damaged_chunk_ends_the_update_and_nothing_else() {
    // What the difference is taken from, and what would only be copied.
    for place in [1_000_000, 2_500_000] {
        let (mut vault, disks) = create("rs:4+2", 6);
        let (before, after) = one_change();
        let first = store(&mut vault, &before, Strategy::Whole, None);
        assert!(disks[2].flip("gen-1.data", place * 8));
        let draft = vault.draft(Some(first), (2, "image"), &mut &after[&2]["image"][..]).unwrap();
        vault.begin_on(first).unwrap();
        let bytes = &after[&2]["image"];
        let mut content = |at: u64, to: &mut [u8]| {
            to.copy_from_slice(&bytes[at as usize..at as usize + to.len()]);
            Ok(())
        };
        let error =
            vault.add_draft(2, Strategy::Update, &draft, &mut content).unwrap_err().to_string();
        assert!(error.contains("generation 1 is damaged"), "{place}: {error}");
        vault.give_up();
        recovers(&mut vault, first, (&before, &after));
    }
}

#[test]
fn so_does_damaged_parity_that_would_only_be_copied() {
    let (mut vault, disks) = create("rs:4+2", 6);
    let (before, after) = one_change();
    let first = store(&mut vault, &before, Strategy::Whole, None);
    let middle = disks[4].peek("gen-1.parity").len() as u64 / 2;
    assert!(disks[4].flip("gen-1.parity", middle * 8));
    let all = drafts(&mut vault, &after, Some(first));
    vault.begin_on(first).unwrap();
    add(&mut vault, &after, &all, Strategy::Update);
    let error = vault.commit().unwrap_err().to_string();
    assert!(error.contains("generation 1 is damaged"), "{error}");
    vault.give_up();
    recovers(&mut vault, first, (&before, &after));
}

/// The base is whole, once that was mended, and can be built on.
fn recovers(vault: &mut Vault<Memory>, first: u64, (before, after): (&Contents, &Contents)) {
    assert_has(vault, first, before);
    assert_eq!(vault.mend_all(true, &mut |_| {}).unwrap().repaired, 1);
    let second = store(vault, after, Strategy::Update, Some(first));
    assert_has(vault, second, after);
}
