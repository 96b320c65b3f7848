//! What shared objects held at one time: a hash of each of their pages.
//!
//! There are 16 bytes for each page, for the last image, for the next one and for what is stored
//! ahead of that: too much to be in memory where a process shares many GiB. So they are in a file
//! without a name in the folder of the images, which the kernel keeps in memory as far as there is
//! room, and of which a few blocks are looked at at a time.
//!
//! Kept true: what cannot be read back, or could not be noted, counts as not known, and the page as
//! changed.

use crate::PAGE_BYTES;
use eyrie_image_format::bytes::seal;
use eyrie_image_format::state::object_of;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// Hashes of so many pages are in memory, of 1 GiB: 4 MiB. To write to a file may take its time
/// while others do that, and the process stands still.
const MAX_PAGES_IN_MEMORY: u64 = 1 << 18;
const HASH_BYTES: usize = 16;
/// That of a page which is not known. A page that has it counts as changed.
const UNKNOWN: u128 = 0;

/// Hashes of pages of some objects.
#[derive(Debug)]
pub struct Held {
    /// Numbers of the objects, by index, and which of all pages are theirs.
    objects: Vec<(u64, Range<u64>)>,
    store: Store,
    /// Something could not be noted.
    broken: AtomicBool,
}

/// Where they are: as many as there are pages, [`UNKNOWN`] to begin with.
#[derive(Debug)]
enum Store {
    Memory(RwLock<Vec<u128>>),
    File(File),
    Nowhere,
}

/// Where the pages of objects with other indices are in a [`Held`].
pub struct Places(Vec<Option<Range<u64>>>);

impl Held {
    /// Nothing is known yet of these objects: their numbers, and how many pages they have. A file
    /// goes to `folder`.
    pub fn new(folder: &Path, objects: &[(u64, u64)]) -> Held {
        let mut end = 0u64;
        let of = |&(id, pages): &(u64, u64)| {
            let first = end;
            end = end.saturating_add(pages);
            (id, first..end)
        };
        let objects = objects.iter().map(of).collect();
        let in_memory = || Store::Memory(RwLock::new(vec![UNKNOWN; end as usize]));
        let store = match end {
            0..=MAX_PAGES_IN_MEMORY => in_memory(),
            // Nothing is to be on a disk by which it could be told what there is.
            _ if seal::own_key().is_some() => in_memory(),
            _ => nameless(folder)
                .or_else(|_| nameless_since(folder))
                .map_or(Store::Nowhere, Store::File),
        };
        Held { objects, store, broken: AtomicBool::new(false) }
    }

    /// Notes pages from `address` on, all of one object.
    pub fn note(&self, address: u64, hashes: &[u128]) {
        let object = object_of(address).and_then(|(i, at)| Some((self.objects.get(i)?, at)));
        let Some(((_, range), offset)) = object else { return };
        let first = range.start + offset / PAGE_BYTES;
        // What lies beyond its end is not known.
        let hashes = &hashes[..hashes.len().min(range.end.saturating_sub(first) as usize)];
        // Nothing has a place behind its end, not even nothing.
        if hashes.is_empty() {
            return;
        }
        match &self.store {
            Store::Memory(all) => {
                let mut all = all.write().unwrap_or_else(PoisonError::into_inner);
                all[first as usize..][..hashes.len()].copy_from_slice(hashes);
            }
            Store::File(file) => {
                let bytes: Vec<u8> = hashes.iter().flat_map(|hash| hash.to_ne_bytes()).collect();
                if file.write_all_at(&bytes, first * HASH_BYTES as u64).is_err() {
                    self.broken.store(true, Ordering::Relaxed);
                }
            }
            Store::Nowhere => {}
        }
    }

    /// Where it has the objects with these numbers.
    pub fn places(&self, ids: &[u64]) -> Places {
        let of = |id: &u64| self.objects.iter().find(|(known, _)| known == id);
        Places(ids.iter().map(|id| of(id).map(|(_, range)| range.clone())).collect())
    }

    /// Where the page at `address` was, of objects with these numbers.
    pub fn place(&self, ids: &[u64], address: u64) -> Option<u64> {
        let (i, offset) = object_of(address)?;
        let id = ids.get(i)?;
        let then = self.objects.iter().position(|(known, _)| known == id)?;
        Some(eyrie_image_format::state::object_at(then) + offset)
    }

    /// Which of the pages from `address` on, all of one object, have these hashes in it.
    pub fn same<'h>(
        &self,
        places: &Places,
        address: u64,
        hashes: &'h [u128],
    ) -> impl Iterator<Item = bool> + use<'h> {
        let mut theirs = vec![UNKNOWN; hashes.len()];
        let object = object_of(address).and_then(|(i, at)| Some((places.0.get(i)?.clone()?, at)));
        if let Some((range, offset)) = object {
            let first = range.start.saturating_add(offset / PAGE_BYTES);
            let there = theirs.len().min(range.end.saturating_sub(first) as usize);
            if there > 0 {
                self.read(first, &mut theirs[..there]);
            }
        }
        hashes.iter().zip(theirs).map(|(ours, theirs)| *ours == theirs && theirs != UNKNOWN)
    }

    /// Reads what is known of pages.
    fn read(&self, first: u64, to: &mut [u128]) {
        if self.broken.load(Ordering::Relaxed) {
            return;
        }
        match &self.store {
            Store::Memory(all) => {
                let all = all.read().unwrap_or_else(PoisonError::into_inner);
                to.copy_from_slice(&all[first as usize..][..to.len()]);
            }
            Store::File(file) => {
                let mut bytes = vec![0; to.len() * HASH_BYTES];
                // Where nothing was noted behind a page, the file ends before it.
                let read = read_up_to(file, first * HASH_BYTES as u64, &mut bytes);
                for (to, bytes) in to.iter_mut().zip(bytes[..read].as_chunks::<HASH_BYTES>().0) {
                    *to = u128::from_ne_bytes(*bytes);
                }
            }
            Store::Nowhere => {}
        }
    }
}

/// Reads what can be read; returns how much that is.
fn read_up_to(file: &File, at: u64, to: &mut [u8]) -> usize {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    done
}

/// A file that goes with its last descriptor, whatever becomes of this program.
fn nameless(folder: &Path) -> std::io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_TMPFILE).mode(0o600).open(folder)
}

/// One that had a name for a moment, where the file system makes no other.
fn nameless_since(folder: &Path) -> std::io::Result<File> {
    // Other threads do the same for their processes.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".eyrie-hashes-{}-{count}", std::process::id()));
    // Of an earlier process that died in between.
    let _ = std::fs::remove_file(&path);
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    std::fs::remove_file(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_image_format::state::object_at;

    fn same(held: &Held, ids: &[u64], address: u64, hashes: &[u128]) -> Vec<bool> {
        held.same(&held.places(ids), address, hashes).collect()
    }

    fn what_is_noted_is_known(pages: u64, folder: &Path) {
        let held = Held::new(folder, &[(7, 3), (8, pages)]);
        let far = object_at(1) + (pages - 2) * PAGE_BYTES;
        assert_eq!(same(&held, &[7, 8], far, &[1, 2]), [false; 2], "nothing is noted yet");
        held.note(object_at(0) + PAGE_BYTES, &[5, 6, 7]);
        held.note(far, &[1, 2, 3]);
        assert_eq!(same(&held, &[7, 8], far, &[1, 2, 3]), [true, true, false], "beyond the end");
        assert_eq!(same(&held, &[7, 8], far - PAGE_BYTES, &[0, 1, 9]), [false, true, false]);
        // By another index.
        assert_eq!(
            same(&held, &[8, 9, 7], object_at(2), &[0, 5, 6, 7]),
            [false, true, true, false]
        );
        assert_eq!(same(&held, &[8, 9, 7], object_at(1), &[5]), [false], "another object");
        assert_eq!(same(&held, &[7], far, &[1]), [false], "no object of this process");
        assert_eq!(held.place(&[8, 9], object_at(0) + 4096), Some(object_at(1) + 4096));
        assert_eq!(held.place(&[8, 9], object_at(1)), None);
        held.note(far, &[4]);
        assert_eq!(same(&held, &[7, 8], far, &[4, 2]), [true; 2]);
        // An object that has grown since, far behind all that is known, and one that had no pages.
        let behind = far + 1000 * PAGE_BYTES;
        held.note(behind, &[1]);
        assert_eq!(same(&held, &[7, 8], behind, &[1]), [false]);
        let empty = Held::new(folder, &[(7, 0)]);
        empty.note(object_at(0) + PAGE_BYTES, &[1]);
        assert_eq!(same(&empty, &[7], object_at(0) + PAGE_BYTES, &[1]), [false]);
    }

    #[test]
    fn what_is_noted_is_known_in_memory_and_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        what_is_noted_is_known(100, folder.path());
        what_is_noted_is_known(MAX_PAGES_IN_MEMORY * 2, folder.path());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        // Without any file, so many are not held in memory, but not known.
        let nowhere = Path::new("/does/not/exist");
        let held = Held::new(nowhere, &[(1, MAX_PAGES_IN_MEMORY + 1)]);
        assert!(matches!(held.store, Store::Nowhere));
        assert!(matches!(Held::new(nowhere, &[(1, 9)]).store, Store::Memory(_)));
    }

    #[test]
    fn many_threads_have_files_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..200).for_each(|_| drop(nameless_since(folder.path()).unwrap())));
            }
        });
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn what_could_not_be_noted_makes_nothing_known() {
        let folder = tempfile::tempdir().unwrap();
        let mut held = Held::new(folder.path(), &[(1, MAX_PAGES_IN_MEMORY * 2)]);
        held.note(object_at(0), &[1, 2]);
        assert_eq!(same(&held, &[1], object_at(0), &[1, 2]), [true; 2]);
        let path = folder.path().join("file");
        std::fs::write(&path, b"").unwrap();
        // No longer one that can be written.
        let Store::File(file) = &mut held.store else { panic!("it is no file") };
        *file = File::open(&path).unwrap();
        held.note(object_at(0), &[3]);
        assert_eq!(same(&held, &[1], object_at(0), &[3, 2]), [false; 2]);
        // Where it had a name for a moment.
        held.store = Store::File(nameless_since(folder.path()).unwrap());
        held.broken = AtomicBool::new(false);
        held.note(object_at(0), &[8]);
        assert_eq!(same(&held, &[1], object_at(0), &[8, 2]), [true, false]);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "but `file`");
        let nowhere = Held::new(Path::new("/does/not/exist"), &[(1, 1 << 40)]);
        nowhere.note(object_at(0), &[1]);
        assert_eq!(same(&nowhere, &[1], object_at(0), &[1]), [false]);
    }
}
