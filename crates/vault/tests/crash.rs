//! Vaults whose members crash, vanish, fill up and rot: what was reported as committed comes back
//! byte for byte as long as no more members are lost than the scheme tolerates, and a generation is
//! whole everywhere or absent.
//!
//! `EYRIE_VAULT_SEEDS=FIRST[+COUNT]` runs other seeds; a seed that fails is named.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod common;

use common::{Fuse, Memory, Random};
use eyrie_vault::cost::Measured;
use eyrie_vault::layout::Place;
use eyrie_vault::member::Member;
use eyrie_vault::record::{Commit, Made};
use eyrie_vault::vault::{Opened, State};
use eyrie_vault::{Scheme, Vault, VaultError};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

/// What each generation that was begun holds: of each node one object.
type Contents = BTreeMap<u64, BTreeMap<u32, Vec<u8>>>;

struct World {
    scheme: Scheme,
    fuse: Fuse,
    disks: BTreeMap<u32, Memory>,
    random: Random,
    contents: Contents,
    /// Reported as committed, and not given up since.
    sure: BTreeSet<u64>,
    /// Shortest object.
    least: u64,
}

const NAME: &str = "rank.img";

impl World {
    fn new(scheme: &str, nodes: u32, seed: u64) -> World {
        let (scheme, fuse) = (scheme.parse().unwrap(), Fuse::default());
        let disks: BTreeMap<u32, Memory> = (0..nodes).map(|n| (n, Memory::with(&fuse))).collect();
        let places = (0..nodes).map(Place::of).collect();
        Vault::create([5; 16], scheme, places, disks.values().cloned().collect()).unwrap();
        let (contents, sure) = (Contents::new(), BTreeSet::new());
        World { scheme, fuse, disks, random: Random::new(seed), contents, sure, least: 0 }
    }

    fn try_open(&mut self) -> Result<(Vault<Memory>, Opened), VaultError> {
        let open = |disk: &Memory| Member::open(disk.clone()).ok().flatten();
        Vault::open(self.disks.values().filter_map(open).collect())
    }

    fn open(&mut self) -> Vault<Memory> {
        let (mut vault, opened) = self.try_open().unwrap();
        assert!(opened.unusable.is_empty(), "{opened:?}");
        assert!(opened.damaged.is_empty(), "{opened:?}");
        let mut random = Random::new(self.random.bits());
        vault.set_order(Box::new(move |n| random.below(n as u64) as usize));
        // What is sent is what counts: so parity is updated where that can be.
        vault.set_measured(Measured { link: 1e3, ..Measured::default() });
        vault
    }

    /// Begins a generation; `base`: of which only changes are stored.
    fn fill(&mut self, vault: &mut Vault<Memory>, base: Option<u64>) -> Result<(), VaultError> {
        let generation = vault.begin()?;
        self.fill_begun(vault, generation, base)
    }

    fn fill_begun(
        &mut self,
        vault: &mut Vault<Memory>,
        generation: u64,
        base: Option<u64>,
    ) -> Result<(), VaultError> {
        let mut contents = BTreeMap::new();
        for node in vault.nodes().collect::<Vec<_>>() {
            let before = base.and_then(|base| self.contents[&base].get(&node).cloned());
            let new = match before {
                Some(mut bytes) if !bytes.is_empty() => {
                    let at = self.random.below(bytes.len() as u64) as usize;
                    let length = 1 + self.random.below(70_000) as usize;
                    let end = (at + length).min(bytes.len());
                    let change = self.random.bytes(end - at);
                    bytes[at..end].copy_from_slice(&change);
                    let place = (NAME, base.unwrap());
                    let changed = [(at as u64, &change[..])];
                    vault.add_changes(node, place, bytes.len() as u64, &changed, None)?;
                    bytes
                }
                _ => {
                    let length = self.least + self.random.below(6) * self.random.below(50_000);
                    let bytes = self.random.bytes(length as usize);
                    vault.add(node, NAME, &mut &bytes[..])?;
                    bytes
                }
            };
            contents.insert(node, new);
        }
        self.contents.insert(generation, contents);
        Ok(())
    }

    fn store(&mut self, vault: &mut Vault<Memory>, base: Option<u64>) -> Result<u64, VaultError> {
        self.fill(vault, base)?;
        let generation = vault.commit()?;
        self.sure.insert(generation);
        Ok(generation)
    }

    /// Stores a generation whose parity is that of the newest one that is whole, with differences.
    fn update(&mut self, vault: &mut Vault<Memory>) -> Result<u64, VaultError> {
        let whole = |c: &&Commit| c.needs().is_empty() && self.contents.contains_key(&c.generation);
        let Some(base) = vault.generations().rev().find(whole).map(|c| c.generation) else {
            return self.store(vault, None);
        };
        let generation = vault.begin_on(base)?;
        self.fill_begun(vault, generation, Some(base))?;
        vault.commit()?;
        self.sure.insert(generation);
        Ok(generation)
    }

    /// What the members' disks hold of generation 1, as far as they are up.
    fn files_of_first(&self) -> Vec<Vec<u8>> {
        let read = |disk: &Memory, kind: &str| disk.peek(&format!("gen-1.{kind}"));
        let both = |disk: &Memory| [read(disk, "data"), read(disk, "parity")].concat();
        self.disks.values().map(both).collect()
    }

    /// Members that crashed come up again; `all`: the power went for all.
    fn restart(&mut self, all: bool) {
        self.fuse.set(None);
        for disk in self.disks.values() {
            if all || disk.crashed() {
                disk.lose_power(&mut self.random);
                disk.power_on();
            }
        }
    }

    /// Everything that exists is what was stored, and everything that was reported exists.
    fn check(&mut self, vault: &mut Vault<Memory>) {
        let there: BTreeSet<u64> = vault.generations().map(|commit| commit.generation).collect();
        assert!(self.sure.is_subset(&there), "{:?} of {there:?}", self.sure);
        for generation in there {
            for (node, content) in &self.contents[&generation] {
                let mut read = Vec::new();
                vault.read(generation, *node, NAME, &mut read).unwrap();
                assert!(read == *content, "generation {generation} of node {node} differs");
            }
        }
    }

    /// `count` members vanish with what they have.
    fn lose(&mut self, count: usize) -> Vec<u32> {
        let mut lost = Vec::new();
        while lost.len() < count {
            let nodes: Vec<u32> = self.disks.keys().copied().collect();
            let node = nodes[self.random.below(nodes.len() as u64) as usize];
            self.disks.remove(&node);
            lost.push(node);
        }
        lost
    }

    /// Fresh members for those that vanished, with all that they had.
    fn rebuild(&mut self, vault: &mut Vault<Memory>, lost: &[u32]) -> Result<(), VaultError> {
        for node in lost {
            let disk = Memory::with(&self.fuse);
            self.disks.insert(*node, disk.clone());
            vault.replace(*node, disk)?;
        }
        let mended = vault.mend_all(true, &mut |_| {})?;
        // Nothing is in the way of writing but crashes.
        if let Some(why) = mended.why {
            assert!(self.disks.values().any(Memory::crashed), "{why}");
            return Err(VaultError::Aborted { generation: 0, why });
        }
        assert_eq!(mended.lost, 0);
        Ok(())
    }
}

const SHAPES: [(&str, u32); 6] =
    [("rs:4+2", 6), ("rs:2+1", 3), ("xor:3", 4), ("partner", 3), ("rs:2+2", 7), ("rs:1+2", 3)];

/// Does `work` to a vault again and again, with the crash one change later each time, until it gets
/// through; `of`: only the changes of that member count, else all do and the power goes for all.
fn at_every_change(
    shape: (&str, u32),
    of: Option<u32>,
    work: impl Fn(&mut World, &mut Vault<Memory>) -> Result<(), VaultError>,
) -> u64 {
    at_every_change_of(0, shape, of, work)
}

/// The same with objects that are not shorter than that.
fn at_every_change_of(
    least: u64,
    shape: (&str, u32),
    of: Option<u32>,
    work: impl Fn(&mut World, &mut Vault<Memory>) -> Result<(), VaultError>,
) -> u64 {
    for after in 0.. {
        let mut world = World { least, ..World::new(shape.0, shape.1, after) };
        let mut vault = world.open();
        let first = world.store(&mut vault, None).unwrap();
        world.store(&mut vault, Some(first)).unwrap();
        let fuse = Fuse::default();
        match of {
            None => world.fuse.set(Some(after)),
            Some(node) => {
                let disk = world.disks[&node].on(&fuse);
                world.disks.insert(node, disk);
                vault = world.open();
                fuse.set(Some(after));
            }
        }
        let result = work(&mut world, &mut vault);
        fuse.set(None);
        let crashed = world.disks.values().any(Memory::crashed);
        assert!(crashed || result.is_ok(), "{result:?}");
        drop(vault);
        world.restart(of.is_none());
        // As if those that came up had never been away, and as if some never came up.
        for losses in [0, world.scheme.tolerates()] {
            let lost = world.lose(losses);
            let mut vault = world.open();
            world.check(&mut vault);
            world.rebuild(&mut vault, &lost).unwrap();
            world.check(&mut vault);
            let newest = *world.sure.last().unwrap();
            assert_eq!(vault.state(newest).unwrap(), State::Whole);
        }
        if !crashed {
            return after;
        }
    }
    unreachable!("work ends");
}

#[test]
fn a_crash_at_any_change_of_a_commit() {
    for shape in [("rs:2+1", 3), ("partner", 2)] {
        let store = |world: &mut World, vault: &mut Vault<Memory>| {
            let base = *world.sure.last().unwrap();
            world.store(vault, Some(base)).map(drop)
        };
        assert!(at_every_change(shape, None, store) > 20);
        assert!(at_every_change(shape, Some(1), store) > 10);
    }
}

#[test]
fn a_crash_at_any_change_of_an_update() {
    for shape in [("rs:2+1", 3), ("partner", 2)] {
        let updated = Cell::new(0);
        let update = |world: &mut World, vault: &mut Vault<Memory>| {
            let old: Vec<Vec<u8>> = world.files_of_first();
            let result = world.update(vault);
            assert!(world.files_of_first() == old, "the base is as it was");
            let made = vault.generations().last().unwrap().made;
            updated.set(updated.get() + u64::from(matches!(made, Made::Updated { base: 1, .. })));
            result.map(drop)
        };
        // So that what changes is less than what there is.
        assert!(at_every_change_of(500_000, shape, None, update) > 20);
        assert!(at_every_change_of(500_000, shape, Some(1), update) > 10);
        assert!(updated.get() >= 2, "those that were not crashed, at least");
    }
}

#[test]
fn a_crash_at_any_change_of_a_rebuild() {
    let rebuild = |world: &mut World, vault: &mut Vault<Memory>| {
        let lost = world.lose(1);
        *vault = world.try_open()?.0;
        world.rebuild(vault, &lost)
    };
    // A member that crashed while it was made is lost again.
    for after in 0.. {
        let mut world = World::new("rs:2+1", 3, after);
        let mut vault = world.open();
        let first = world.store(&mut vault, None).unwrap();
        world.store(&mut vault, Some(first)).unwrap();
        world.fuse.set(Some(after));
        let result = rebuild(&mut world, &mut vault);
        let crashed = world.disks.values().any(Memory::crashed);
        assert!(crashed || result.is_ok(), "{result:?}");
        drop(vault);
        world.restart(true);
        let mut vault = world.open();
        world.check(&mut vault);
        let there: Vec<u32> = vault.nodes().collect();
        let lost: Vec<u32> = (0..3).filter(|node| !there.contains(node)).collect();
        lost.iter().for_each(|node| drop(world.disks.remove(node)));
        world.rebuild(&mut vault, &lost).unwrap();
        world.check(&mut vault);
        if !crashed {
            assert!(after > 10);
            return;
        }
    }
}

#[test]
fn a_crash_at_any_change_of_a_consolidation_and_of_a_collection() {
    let work = |world: &mut World, vault: &mut Vault<Memory>| {
        let newest = *world.sure.last().unwrap();
        // It has the content of the one that it consolidates, whether it gets there or not.
        let content = world.contents[&newest].clone();
        world.contents.insert(newest + 1, content);
        let new = vault.consolidate(newest)?;
        assert!(vault.generations().last().unwrap().needs().is_empty());
        world.sure = BTreeSet::from([new]);
        let gone = vault.collect(&BTreeSet::from([new]))?;
        assert_eq!(gone.len(), 2);
        Ok(())
    };
    assert!(at_every_change(("rs:2+1", 3), None, work) > 20);
    assert!(at_every_change(("rs:2+1", 3), Some(0), work) > 10);
}

#[test]
fn a_crash_at_any_change_of_an_opening() {
    // It has a generation to drop, and one to remember as dropped.
    let open = |world: &mut World, vault: &mut Vault<Memory>| {
        let newest = *world.sure.last().unwrap();
        world.sure = BTreeSet::from([newest]);
        world.fill(vault, Some(newest))?;
        world.try_open().map(drop)
    };
    assert!(at_every_change(("rs:2+1", 3), None, open) > 15);
    assert!(at_every_change(("xor:2", 3), Some(2), open) > 4);
}

/// One life of a vault.
fn live(seed: u64) {
    let mut choice = Random::new(!seed);
    let shape = SHAPES[choice.below(SHAPES.len() as u64) as usize];
    let mut world = World::new(shape.0, shape.1, seed);
    let mut vault = world.open();
    let mut lost: Vec<u32> = Vec::new();
    for _ in 0..8 {
        let crash = choice.below(3) == 0;
        world.fuse.set(crash.then(|| choice.below(150)));
        let base = world.sure.last().copied();
        let result = match choice.below(7) {
            0 if base.is_some() => {
                let newest = base.unwrap();
                // Whatever its number is, and whether that is known or not.
                let content = world.contents[&newest].clone();
                let next = vault.generations().last().unwrap().generation + 1;
                (next..next + 40).for_each(|n| _ = world.contents.insert(n, content.clone()));
                vault.consolidate(newest).map(|generation| _ = world.sure.insert(generation))
            }
            1 if base.is_some() => {
                let keep = BTreeSet::from([base.unwrap()]);
                world.sure = keep.clone();
                vault.collect(&keep).map(drop)
            }
            2 => world.store(&mut vault, None).map(drop),
            3 => world.update(&mut vault).map(drop),
            _ => world.store(&mut vault, base).map(drop),
        };
        let crashed = world.disks.values().any(Memory::crashed);
        assert!(crashed || result.is_ok(), "{result:?}");
        drop(vault);
        world.restart(choice.below(2) == 0);
        let losses = choice.below(world.scheme.tolerates() as u64 + 1) as usize;
        lost.extend(world.lose(losses));
        vault = world.open();
        world.check(&mut vault);
        world.rebuild(&mut vault, &lost).unwrap();
        lost.clear();
        world.check(&mut vault);
        assert_eq!(vault.mend_all(false, &mut |_| {}).unwrap().damaged, 0);
    }
}

#[test]
fn vaults_live_through_crashes_and_losses() {
    let given = std::env::var("EYRIE_VAULT_SEEDS").unwrap_or_else(|_| "0+60".into());
    let (first, count) = given.split_once('+').unwrap_or((&given, "1"));
    let (first, count): (u64, u64) = (first.parse().unwrap(), count.parse().unwrap());
    for seed in first..first + count {
        println!(
            "seed {seed}: EYRIE_VAULT_SEEDS={seed} cargo test -p eyrie-vault --test crash live"
        );
        live(seed);
    }
}
