//! What tells the content of a file that is mapped.
//!
//! Of a mapped file an image has only the pages that the process has changed; the others come from
//! the file that lies at its path at the restore. On another machine that has another inode number
//! and another modification time, also where the same package is installed. So what is mapped of it
//! is hashed, for which the process need not stand. A build-id would take less work, but tools that
//! change a file leave it as it is; it counts only where more is mapped than is hashed. Where a
//! process has very much mapped the larger files are not hashed: its image would wait for that.
//!
//! Kept true: a file is hashed once in this program, as long as it is not changed.

use crate::kernel::background::Background;
use crate::resources::files::mapped::{Mapped, open_regular};
use crate::resources::open::file_id;
use crate::resources::regions::Regions;
use eyrie_image_format::bytes::layout;
use eyrie_image_format::state::files::{MAX_BUILD_BYTES, path_of};
use eyrie_image_format::state::{FileId, Fingerprint};
use std::collections::BTreeMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};
use xxhash_rust::xxh3::Xxh3;

/// Most that is hashed of a file.
pub const MAX_HASHED_BYTES: u64 = 256 << 20;
/// Most that is hashed for a process: of its smallest files, as libraries are.
pub const MAX_ALL_BYTES: u64 = 4 << 30;
/// Most files whose fingerprint is kept.
const MAX_KNOWN: usize = 4096;
/// A file that was changed in this time may be changed once more without another time.
const SETTLED_SECONDS: u64 = 2;
/// What is read at once.
const PART_BYTES: usize = 1 << 20;
/// Largest program header table, and largest note, that are looked at.
const MAX_TABLE_BYTES: usize = 1 << 16;

const EHDR_BYTES: usize = 64;
const PHDR_BYTES: usize = 56;
const PT_NOTE: u64 = 4;
const NT_GNU_BUILD_ID: u64 = 3;

/// A file as it is now, and what of it is mapped.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    file: (u64, u64, u64),
    modified: (i64, i64),
    changed: (i64, i64),
    stretches: Vec<(u64, u64)>,
}

impl Key {
    fn of(meta: &Metadata, stretches: &[(u64, u64)]) -> Key {
        Key {
            file: (meta.dev(), meta.ino(), meta.size()),
            modified: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
            stretches: stretches.to_vec(),
        }
    }
}

type Known = BTreeMap<Key, Arc<OnceLock<Fingerprint>>>;

/// Those that were found out. Who needs one that is being found out waits for it.
static KNOWN: Mutex<Known> = Mutex::new(BTreeMap::new());

/// Begins to find out those of the files behind regions.
pub fn begin(regions: &Regions) -> Background<Vec<Fingerprint>> {
    let list = || regions.list.iter().map(|(region, _)| region);
    let mapped = |(i, id): (usize, &FileId)| (id.clone(), Mapped::of(list(), i, id.size));
    let files: Vec<(FileId, Mapped)> = regions.files.iter().enumerate().map(mapped).collect();
    let looked_at = within(&files.iter().map(|(_, mapped)| mapped).collect::<Vec<_>>());
    Background::begin(move || {
        let one = |((id, mapped), looks): (&(FileId, Mapped), &bool)| match looks {
            true => recorded(id, mapped),
            false => Fingerprint::Unknown {},
        };
        files.iter().zip(&looked_at).map(one).collect()
    })
}

/// Which files are looked at, so that no more is hashed than may be.
fn within(files: &[&Mapped]) -> Vec<bool> {
    let bytes: Vec<u64> = files.iter().map(|m| bytes_of(&m.stretches)).collect();
    let (mut looked_at, mut left) = (vec![true; files.len()], MAX_ALL_BYTES);
    let hashed = |&i: &usize| !files[i].writes && bytes[i] <= MAX_HASHED_BYTES;
    let mut order: Vec<usize> = (0..files.len()).filter(hashed).collect();
    order.sort_by_key(|&i| bytes[i]);
    for i in order {
        looked_at[i] = bytes[i] <= left;
        left = if looked_at[i] { left - bytes[i] } else { 0 };
    }
    looked_at
}

fn bytes_of(stretches: &[(u64, u64)]) -> u64 {
    stretches.iter().map(|(start, end)| end - start).sum()
}

/// That of a file which a process has mapped so, if it is still that file.
fn recorded(id: &FileId, mapped: &Mapped) -> Fingerprint {
    let unknown = Fingerprint::Unknown {};
    // What is written through the mapping is no content to be held against anything.
    if mapped.writes {
        return unknown;
    }
    let Ok(Some(file)) = open_regular(path_of(&id.path).as_ref(), false) else { return unknown };
    let is_it = || file.metadata().is_ok_and(|now| file_id(id.path.clone(), &now) == *id);
    if !is_it() {
        return unknown;
    }
    let found = of(&file, &mapped.stretches);
    if is_it() { found } else { unknown }
}

/// What tells the content of these stretches of a file.
pub fn of(file: &File, stretches: &[(u64, u64)]) -> Fingerprint {
    let Ok(meta) = file.metadata() else { return Fingerprint::Unknown {} };
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if now.as_secs().saturating_sub(meta.ctime() as u64) < SETTLED_SECONDS {
        return look(file, stretches).unwrap_or(Fingerprint::Unknown {});
    }
    kept(file, &meta, stretches)
}

/// The same of a file that is known as long as its times are those.
fn kept(file: &File, meta: &Metadata, stretches: &[(u64, u64)]) -> Fingerprint {
    let unknown = Fingerprint::Unknown {};
    let one = {
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KNOWN {
            known.clear();
        }
        Arc::clone(known.entry(Key::of(meta, stretches)).or_default())
    };
    let found = one.get_or_init(|| look(file, stretches).unwrap_or(unknown)).clone();
    if found == (Fingerprint::Unknown {}) {
        // Another time it may be read.
        let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.remove(&Key::of(meta, stretches));
    }
    found
}

fn look(file: &File, stretches: &[(u64, u64)]) -> io::Result<Fingerprint> {
    let bytes = bytes_of(stretches);
    if bytes > MAX_HASHED_BYTES {
        let id = build_id(file)?;
        return Ok(id.map_or(Fingerprint::Unknown {}, |id| Fingerprint::Build { id }));
    }
    let (mut hash, mut part) = (Xxh3::new(), vec![0; PART_BYTES.min(bytes as usize)]);
    for &(start, end) in stretches {
        let mut at = start;
        while at < end {
            let wanted = part.len().min((end - at) as usize);
            file.read_exact_at(&mut part[..wanted], at)?;
            hash.update(&part[..wanted]);
            at += wanted as u64;
        }
    }
    Ok(Fingerprint::Hash { hash: layout::hash_of(&hash) })
}

/// The little-endian number of so many bytes at `at`.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |n, &b| n << 8 | u64::from(b)))
}

fn read(file: &File, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut to = vec![0; bytes.min(MAX_TABLE_BYTES as u64) as usize];
    file.read_exact_at(&mut to, at).map(|()| to)
}

/// The build-id of an ELF file, if it is one with a build-id.
fn build_id(file: &File) -> io::Result<Option<Vec<u8>>> {
    let head = read(file, 0, EHDR_BYTES as u64)?;
    if !head.starts_with(&[0x7f, b'E', b'L', b'F', 2, 1]) {
        return Ok(None);
    }
    let field = |at, length| number(&head, at, length).unwrap_or(0);
    let (at, size, count) = (field(32, 8), field(54, 2), field(56, 2));
    if size != PHDR_BYTES as u64 {
        return Ok(None);
    }
    let table = read(file, at, size * count)?;
    for entry in table.chunks_exact(PHDR_BYTES) {
        let field = |at, length| number(entry, at, length).unwrap_or(0);
        if field(0, 4) == PT_NOTE
            && let Some(id) = id_in(&read(file, field(8, 8), field(32, 8))?)
        {
            return Ok(Some(id));
        }
    }
    Ok(None)
}

/// The build-id among notes.
fn id_in(mut notes: &[u8]) -> Option<Vec<u8>> {
    loop {
        let [name, bytes] = [number(notes, 0, 4)? as usize, number(notes, 4, 4)? as usize];
        let kind = number(notes, 8, 4)?;
        let at = 12 + name.next_multiple_of(4);
        let content = notes.get(at..at.checked_add(bytes)?)?;
        let is_it = kind == NT_GNU_BUILD_ID && notes.get(12..12 + name)? == b"GNU\0";
        if is_it && !content.is_empty() && bytes <= MAX_BUILD_BYTES {
            return Some(content.to_vec());
        }
        notes = notes.get(at + bytes.next_multiple_of(4)..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;

    #[test]
    fn it_hangs_on_what_is_mapped_and_on_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut content: Vec<u8> = (0..3 << 20).map(|i: u32| (i / 5) as u8).collect();
        let stretches = [(0, 4096), (1 << 20, (2 << 20) + 100)];
        let of_now = |content: &[u8]| {
            let _ = fs::remove_file(&path);
            fs::write(&path, content).unwrap();
            of(&File::open(&path).unwrap(), &stretches)
        };
        let first = of_now(&content);
        assert!(matches!(first, Fingerprint::Hash { .. }));
        assert_eq!(of_now(&content), first);
        content[(2 << 20) + 100] ^= 1;
        assert_eq!(of_now(&content), first, "not mapped");
        content[1 << 20] ^= 1;
        assert_ne!(of_now(&content), first);
        assert_eq!(of_now(&content[..1 << 20]), Fingerprint::Unknown {}, "too short");
    }

    #[test]
    fn of_very_much_the_smallest_files_are_hashed() {
        let of = |start: u64, bytes: u64, writes: bool| Mapped {
            stretches: vec![(start, start + bytes)],
            private: true,
            writes,
        };
        let most = MAX_HASHED_BYTES;
        let whole = (MAX_ALL_BYTES / most) as usize;
        let mut files = vec![of(0, most, false); whole];
        let looked_at = |files: &[Mapped]| within(&files.iter().collect::<Vec<_>>());
        assert_eq!(looked_at(&files), vec![true; whole]);
        // What is not read takes nothing: a build-id is enough, or nothing is known.
        files.extend([of(0, most + 1, false), of(0, most, true)]);
        assert_eq!(looked_at(&files), vec![true; whole + 2]);
        files.push(of(8192, 1, false));
        let now = looked_at(&files);
        assert!(now[whole..].iter().all(|looks| *looks));
        assert_eq!(now.iter().filter(|looks| !**looks).count(), 1);
    }

    #[test]
    fn what_is_no_regular_file_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"1").unwrap();
        let open = |path: &Path| open_regular(path, false).unwrap();
        assert!(open(&path).is_some());
        assert!(open(folder.path()).is_none() && open(Path::new("/dev/null")).is_none());
    }

    #[test]
    fn an_unchanged_file_is_not_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, vec![7; 8192]).unwrap();
        let of = |file: &File, bytes| kept(file, &file.metadata().unwrap(), &[(0, bytes)]);
        let first = of(&File::open(&path).unwrap(), 8192);
        assert!(matches!(first, Fingerprint::Hash { .. }));
        // This descriptor cannot be read; what it would give is known.
        let unread = File::options().write(true).open(&path).unwrap();
        assert_eq!(of(&unread, 8192), first);
        assert_eq!(of(&unread, 4096), Fingerprint::Unknown {});
        unread.set_len(8193).unwrap();
        assert_eq!(of(&unread, 8192), Fingerprint::Unknown {});
    }

    #[test]
    fn build_ids_are_found_among_notes() {
        let note = |kind: u32, name: &[u8], content: &[u8]| {
            let mut note = Vec::new();
            for n in [name.len() as u32, content.len() as u32, kind] {
                note.extend_from_slice(&n.to_le_bytes());
            }
            for part in [name, content] {
                note.extend_from_slice(part);
                note.resize(note.len().next_multiple_of(4), 0);
            }
            note
        };
        let other = note(1, b"GNU\0", b"12345");
        let id = note(3, b"GNU\0", &[9; 20]);
        assert_eq!(id_in(&[other.clone(), id.clone()].concat()), Some(vec![9; 20]));
        assert_eq!(id_in(&other), None);
        assert_eq!(id_in(&id[..id.len() - 1]), None);
        assert_eq!(id_in(&note(3, b"GNU\0", &[9; MAX_BUILD_BYTES + 1])), None);
        assert_eq!(id_in(&[0xff; 40]), None);
    }
}
