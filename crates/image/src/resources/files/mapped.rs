//! Files that a process has mapped: whether what lies at their paths can stand for them.
//!
//! Kept true: where pages come from a file, they are those that the process had, whichever machine
//! the file is on; a file that the process writes to through a mapping has to be that very file.

use crate::error::{RestoreError, file_error};
use crate::resources::files::fingerprint;
use crate::resources::files::stored;
use crate::resources::open::file_id;
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::{
    AnonymousObject, Backing, FileId, Fingerprint, ObjectKind, Region, State, region,
};
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// How a process has a file mapped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapped {
    /// What of it, as offsets, in order and apart; not what is beyond its end.
    pub stretches: Vec<(u64, u64)>,
    /// For itself, at some place at least.
    pub private: bool,
    /// Shared, and such that it may write.
    pub writes: bool,
}

impl Mapped {
    /// How it is in these regions, of a file with this number and size.
    pub fn of<'a>(regions: impl Iterator<Item = &'a Region>, file: usize, size: u64) -> Mapped {
        let mut all = Mapped { stretches: vec![], private: false, writes: false };
        for r in regions {
            let Backing::File { file: number, offset } = r.backing else { continue };
            if number as usize != file {
                continue;
            }
            all.private |= r.flags & region::SHARED == 0;
            all.writes |= r.flags & region::MAY_WRITE != 0;
            let end = offset.saturating_add(r.end - r.start).min(size);
            if offset < end {
                all.stretches.push((offset, end));
            }
        }
        all.stretches.sort_unstable();
        all.stretches.dedup_by(|next, one| {
            let joined = next.0 <= one.1;
            one.1 = if joined { one.1.max(next.1) } else { one.1 };
            joined
        });
        all
    }
}

/// Opens a file again, as it has to be for the mappings of the process: at this path, where it may
/// be what it was.
pub fn reopen(
    state: &State,
    number: usize,
    (path, stands_in): (&Path, bool),
) -> Result<File, RestoreError> {
    let id = &state.files[number];
    let mapped = Mapped::of(state.regions.iter(), number, id.size);
    let (file, meta) = open_at(path, id, mapped.writes)?;
    // A private view of a file that is put back has what it then holds.
    if !stands_in {
        check(state, number, &mapped, (&file, &meta))?;
    }
    Ok(file)
}

/// An error if a file that the process has mapped is not here, or is another.
pub fn are_here(state: &State) -> Result<(), RestoreError> {
    for (number, id) in state.files.iter().enumerate() {
        if stored::stands_in(state, id) {
            continue;
        }
        let mapped = Mapped::of(state.regions.iter(), number, id.size);
        let (file, meta) = open(id, false)?;
        check(state, number, &mapped, (&file, &meta))?;
    }
    Ok(())
}

/// The file that can stand for one that was mapped, to look at what the process saw in it.
pub fn unchanged(state: &State, number: usize) -> Option<File> {
    let id = &state.files[number];
    let mapped = Mapped::of(state.regions.iter(), number, id.size);
    let (file, meta) = open(id, false).ok()?;
    let is_it = is_unchanged(id, &meta);
    let same = !mapped.writes && check(state, number, &mapped, (&file, &meta)).is_ok();
    (is_it || same).then_some(file)
}

fn open(id: &FileId, writes: bool) -> Result<(File, Metadata), RestoreError> {
    open_at(path_of(&id.path).as_ref(), id, writes)
}

fn open_at(path: &Path, id: &FileId, writes: bool) -> Result<(File, Metadata), RestoreError> {
    let failed = |e: io::Error| match e.kind() {
        io::ErrorKind::NotFound => {
            let what = "is gone, or never was here; the process has it mapped, and needs the same \
                        version of it at this path";
            file_error(&id.path, what)
        }
        _ => file_error(&id.path, format!("cannot be opened again: {e}")),
    };
    let Some(file) = open_regular(path, writes).map_err(failed)? else {
        return Err(file_error(&id.path, "is no longer a file of the same kind"));
    };
    let meta = file.metadata().map_err(failed)?;
    Ok((file, meta))
}

/// `None`: what lies there is no regular file, and may block on opening, or do something.
pub fn open_regular(path: &Path, writes: bool) -> io::Result<Option<File>> {
    if !fs::metadata(path)?.is_file() {
        return Ok(None);
    }
    let mut options = File::options();
    options.read(true).write(writes).custom_flags(libc::O_NONBLOCK).open(path).map(Some)
}

/// Whether it is that very file, and nobody has written to it; its device may have another number
/// on another machine.
fn is_unchanged(id: &FileId, meta: &Metadata) -> bool {
    let now = file_id(id.path.clone(), meta);
    (now.ino, now.size, now.mtime_ns) == (id.ino, id.size, id.mtime_ns)
}

fn check(
    state: &State,
    number: usize,
    mapped: &Mapped,
    (file, meta): (&File, &Metadata),
) -> Result<(), RestoreError> {
    let id = &state.files[number];
    let named =
        |o: &AnonymousObject| matches!(&o.kind, ObjectKind::Named { path } if *path == id.path);
    if state.anonymous.iter().any(named) {
        // Its content is put back.
        return Ok(());
    }
    let now = file_id(id.path.clone(), meta);
    let same_file = now.ino == id.ino && now.size >= id.size;
    let unchanged = is_unchanged(id, meta);
    if mapped.writes && !same_file {
        let what = "is not the file that the process writes to through a mapping: it was replaced \
                    since the checkpoint, or lies where this node does not see it";
        return Err(file_error(&id.path, what));
    }
    // What others write to a file is seen in shared mappings as it is then.
    if unchanged && now.dev == id.dev || same_file && !mapped.private {
        return Ok(());
    }
    let recorded = &state.contents[number];
    let holds = match recorded {
        Fingerprint::Unknown {} => unchanged,
        _ => now.size == id.size && fingerprint::of(file, &mapped.stretches) == *recorded,
    };
    if holds {
        return Ok(());
    }
    let what = match recorded {
        Fingerprint::Unknown {} => "was changed since the checkpoint that maps it, or is another",
        _ => {
            "is not the one that the process has mapped: its content is another; the process needs \
             the same version of it at this path"
        }
    };
    Err(file_error(&id.path, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(start: u64, bytes: u64, flags: u32, file: u32, offset: u64) -> Region {
        let backing = Backing::File { file, offset };
        Region { start, end: start + bytes, prot: 1, flags, backing, name: vec![], key: 0 }
    }

    #[test]
    fn what_is_mapped_is_joined_and_ends_with_the_file() {
        let regions = [
            view(0x10000, 0x3000, region::SHARED, 1, 0x2000),
            view(0x20000, 0x1000, 0, 0, 0),
            view(0x30000, 0x1000, region::SHARED, 1, 0),
            view(0x40000, 0x1000, region::SHARED, 1, 0x1000),
            view(0x50000, 0x1000, region::SHARED, 1, 0x3000),
            view(0x60000, 0x2000, region::SHARED, 1, 0x8000),
            view(0x70000, 0x2000, region::SHARED, 1, 0x9000),
        ];
        let of = |file| Mapped::of(regions.iter(), file, 0x8123);
        let stretches = vec![(0, 0x5000), (0x8000, 0x8123)];
        assert_eq!(of(1), Mapped { stretches, private: false, writes: false });
        assert_eq!(of(0), Mapped { stretches: vec![(0, 0x1000)], private: true, writes: false });
        assert!(of(2).stretches.is_empty());
    }
}
