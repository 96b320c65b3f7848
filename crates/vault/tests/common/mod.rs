//! Disks that forget what was not made durable, fail at a chosen write, are full, or flip bits; and
//! a seeded generator.

#![allow(dead_code)]

use eyrie_vault::disk::Disk;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

/// SplitMix64: same seed, same run.
#[derive(Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        Random(seed ^ 0x5eed_5eed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.bits() % n
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            (0..count.div_ceil(8)).flat_map(|_| self.bits().to_le_bytes()).collect();
        bytes.truncate(count);
        bytes
    }
}

#[derive(Default, Clone)]
struct File {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Since the last sync.
    writes: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone)]
enum Naming {
    Make(String, usize),
    Rename(String, String),
    Remove(String),
}

#[derive(Default)]
struct State {
    files: Vec<File>,
    names: BTreeMap<String, usize>,
    durable: BTreeMap<String, usize>,
    /// Since the last sync.
    namings: Vec<Naming>,
    crashed: bool,
    room: Option<u64>,
    /// Changes so far.
    changes: u64,
}

/// When everything that counts with it crashes: after so many changes.
#[derive(Clone, Default)]
pub struct Fuse(Rc<RefCell<Option<u64>>>);

impl Fuse {
    pub fn set(&self, after: Option<u64>) {
        *self.0.borrow_mut() = after;
    }

    fn burn(&self) -> bool {
        match &mut *self.0.borrow_mut() {
            Some(0) => true,
            Some(left) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }
}

/// A disk; clones are the same disk.
#[derive(Clone, Default)]
pub struct Memory {
    state: Rc<RefCell<State>>,
    fuse: Fuse,
}

fn name(names: &mut BTreeMap<String, usize>, naming: &Naming) {
    match naming {
        Naming::Make(name, file) => {
            names.insert(name.clone(), *file);
        }
        Naming::Rename(from, to) => {
            if let Some(file) = names.remove(from) {
                names.insert(to.clone(), file);
            }
        }
        Naming::Remove(name) => {
            names.remove(name);
        }
    }
}

fn put(file: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let (start, end) = (offset as usize, offset as usize + bytes.len());
    if file.len() < end {
        file.resize(end, 0);
    }
    file[start..end].copy_from_slice(bytes);
}

impl Memory {
    pub fn with(fuse: &Fuse) -> Memory {
        Memory { fuse: fuse.clone(), ..Memory::default() }
    }

    /// The same disk, which crashes by another fuse.
    pub fn on(&self, fuse: &Fuse) -> Memory {
        Memory { state: Rc::clone(&self.state), fuse: fuse.clone() }
    }

    pub fn crashed(&self) -> bool {
        self.state.borrow().crashed
    }

    pub fn changes(&self) -> u64 {
        self.state.borrow().changes
    }

    pub fn set_room(&self, room: Option<u64>) {
        self.state.borrow_mut().room = room;
    }

    /// The machine goes down: of what is not durable some is there afterwards, some in part.
    pub fn lose_power(&self, random: &mut Random) {
        let mut state = self.state.borrow_mut();
        state.crashed = true;
        for file in &mut state.files {
            let mut after = std::mem::take(&mut file.durable);
            for (offset, bytes) in std::mem::take(&mut file.writes) {
                match random.below(4) {
                    0 => {}
                    1 => {
                        let torn = random.below(bytes.len() as u64 + 1) as usize;
                        put(&mut after, offset, &bytes[..torn]);
                    }
                    _ => put(&mut after, offset, &bytes),
                }
            }
            file.durable = after.clone();
            file.now = after;
        }
        let namings = std::mem::take(&mut state.namings);
        let kept = random.below(namings.len() as u64 + 1) as usize;
        let mut names = state.durable.clone();
        namings[..kept].iter().for_each(|naming| name(&mut names, naming));
        state.durable = names.clone();
        state.names = names;
    }

    /// It comes up again.
    pub fn power_on(&self) {
        self.state.borrow_mut().crashed = false;
    }

    /// What a file holds, up or down.
    pub fn peek(&self, name: &str) -> Vec<u8> {
        let state = self.state.borrow();
        state.names.get(name).map(|file| state.files[*file].now.clone()).unwrap_or_default()
    }

    /// Flips a bit of a file. Returns whether there was one.
    pub fn flip(&self, name: &str, bit: u64) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(file) = state.names.get(name).copied() else { return false };
        let file = &mut state.files[file];
        if file.now.is_empty() {
            return false;
        }
        let bit = bit % (file.now.len() as u64 * 8);
        file.now[(bit / 8) as usize] ^= 1 << (bit % 8);
        file.durable = file.now.clone();
        true
    }

    fn change(&self) -> io::Result<std::cell::RefMut<'_, State>> {
        let mut state = self.state.borrow_mut();
        if !state.crashed && self.fuse.burn() {
            state.crashed = true;
        }
        if state.crashed {
            return Err(io::Error::other("crashed"));
        }
        state.changes += 1;
        Ok(state)
    }
}

impl Disk for Memory {
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.state.borrow_mut();
        let dead = state.crashed;
        let crashes = dead || self.fuse.burn();
        state.crashed = crashes;
        if dead {
            return Err(io::Error::other("crashed"));
        }
        state.changes += 1;
        let known = state.names.get(name).copied();
        let now = known.map_or(0, |file| state.files[file].now.len() as u64);
        let more = (offset + bytes.len() as u64).saturating_sub(now);
        if state.room.is_some_and(|room| room < more) {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        state.room = state.room.map(|room| room - more);
        let file = known.unwrap_or_else(|| {
            let file = state.files.len();
            state.files.push(File::default());
            state.names.insert(name.into(), file);
            state.namings.push(Naming::Make(name.into(), file));
            file
        });
        let file = &mut state.files[file];
        put(&mut file.now, offset, bytes);
        file.writes.push((offset, bytes.into()));
        if crashes { Err(io::Error::other("crashed")) } else { Ok(()) }
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        let mut state = self.change()?;
        if let Some(file) = state.names.get(name).copied() {
            let file = &mut state.files[file];
            file.durable = file.now.clone();
            file.writes.clear();
        }
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let naming = Naming::Rename(from.into(), to.into());
        let mut state = self.change()?;
        name(&mut state.names, &naming);
        state.namings.push(naming);
        Ok(())
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        let mut state = self.change()?;
        if let Some(file) = state.names.get(file).copied() {
            let bytes = state.files[file].now.len() as u64;
            state.room = state.room.map(|room| room + bytes);
        }
        let naming = Naming::Remove(file.into());
        name(&mut state.names, &naming);
        state.namings.push(naming);
        Ok(())
    }

    fn sync_names(&mut self) -> io::Result<()> {
        let mut state = self.change()?;
        state.durable = state.names.clone();
        state.namings.clear();
        Ok(())
    }

    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        let state = self.state.borrow();
        if state.crashed {
            return Err(io::Error::other("crashed"));
        }
        let file = state.names.get(name).ok_or(io::ErrorKind::NotFound)?;
        let range = offset as usize..offset as usize + to.len();
        let bytes = state.files[*file].now.get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        to.copy_from_slice(bytes);
        Ok(())
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        let state = self.state.borrow();
        if state.crashed {
            return Err(io::Error::other("crashed"));
        }
        Ok(state.names.get(name).map(|file| state.files[*file].now.len() as u64))
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let state = self.state.borrow();
        if state.crashed {
            return Err(io::Error::other("crashed"));
        }
        Ok(state.names.keys().cloned().collect())
    }
}
