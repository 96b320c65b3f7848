//! Making a file hold what it held at the checkpoint, and keeping what it held since.

use crate::kernel::holes::next_part;
use crate::resources::files::created::Newer;
use crate::resources::files::undo::FileNote;
use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Compared, and written, at a time.
const CHUNK_BYTES: usize = 64 << 10;
/// The unit in which a file system tells how much of a file is there.
const BLOCK_BYTES: u64 = 512;

/// Whether a file holds this.
pub(crate) fn is_same(path: &Path, content: &File, bytes: u64) -> io::Result<bool> {
    let long = fs::symlink_metadata(path)?.len() == bytes;
    Ok(long && is_same_so_far(path, content, bytes)?)
}

/// Whether a file holds this, and more behind it or not.
pub(crate) fn is_same_so_far(path: &Path, content: &File, bytes: u64) -> io::Result<bool> {
    let file = open(path, false)?;
    let mut same = file.metadata()?.len() >= bytes;
    if !same {
        return Ok(false);
    }
    each_chunk(&file, content, bytes, |_, a, b| {
        same &= a == b;
        Ok(())
    })?;
    Ok(same)
}

/// Makes a file hold this. Only what is different is written.
pub(crate) fn put(path: &Path, content: &File, bytes: u64) -> io::Result<()> {
    let file = open(path, true)?;
    file.set_len(bytes)?;
    each_chunk(&file, content, bytes, |at, now, then| {
        if now == then { Ok(()) } else { file.write_all_at(then, at) }
    })
}

fn open(path: &Path, write: bool) -> io::Result<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

fn each_chunk(
    a: &File,
    b: &File,
    bytes: u64,
    mut with: impl FnMut(u64, &[u8], &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let (mut one, mut other) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    let (mut of_a, mut of_b) = (Some((0, 0)), Some((0, 0)));
    let mut at = 0;
    while at < bytes {
        // Where both have holes there is nothing to read, be they ever so large.
        for (file, part) in [(a, &mut of_a), (b, &mut of_b)] {
            if part.is_some_and(|(_, end)| end <= at) {
                *part = next_part(file, at, bytes);
            }
        }
        let starts = of_a.into_iter().chain(of_b).map(|(start, _)| start);
        let Some(start) = starts.min() else { break };
        at = at.max(start / CHUNK_BYTES as u64 * CHUNK_BYTES as u64);
        let n = (bytes - at).min(CHUNK_BYTES as u64) as usize;
        a.read_exact_at(&mut one[..n], at)?;
        b.read_exact_at(&mut other[..n], at)?;
        with(at, &one[..n], &other[..n])?;
        at += n as u64;
    }
    Ok(())
}

/// Copies a file, also its rights; of a sparse one what is there. The kernel shares the blocks
/// where the file system can.
fn copy(path: &Path, to: &Path) -> io::Result<()> {
    let from = open(path, false)?;
    let meta = from.metadata()?;
    if meta.blocks().saturating_mul(BLOCK_BYTES) >= meta.len() {
        return fs::copy(path, to).map(|_| ());
    }
    let mut copied = OpenOptions::new().write(true).create_new(true).mode(0o600).open(to)?;
    let mut at = 0;
    while let Some((start, end)) = next_part(&from, at, meta.len()) {
        (&from).seek(SeekFrom::Start(start))?;
        copied.seek(SeekFrom::Start(start))?;
        io::copy(&mut (&from).take(end - start), &mut copied)?;
        at = end;
    }
    copied.set_len(meta.len())?;
    copied.set_permissions(meta.permissions())
}

/// Keeps what is there now in a folder, under its own name; moves it there or copies it.
pub(crate) fn keep(path: &Path, aside: &Path, moves: bool) -> Option<PathBuf> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(aside).ok()?;
    let name = path.file_name().unwrap_or(OsStr::new("file")).to_string_lossy().into_owned();
    let free = (0..1000).map(|n| match n {
        0 => aside.join(&name),
        n => aside.join(format!("{name}.{n}")),
    });
    let to = free.into_iter().find(|to| fs::symlink_metadata(to).is_err())?;
    if moves && fs::rename(path, &to).is_ok() {
        return Some(to);
    }
    if copy(path, &to).is_err() {
        let _ = fs::remove_file(&to);
        return None;
    }
    if moves { fs::remove_file(path).ok().map(|()| to) } else { Some(to) }
}

/// Takes away what came after the checkpoint.
pub(crate) fn away(all: &[Newer], aside: Option<&Path>) -> Vec<FileNote> {
    let mut notes = Vec::new();
    for Newer { path, meta, .. } in all {
        let same = |m: &Metadata| (m.dev(), m.ino()) == (meta.dev(), meta.ino());
        if !fs::symlink_metadata(path).is_ok_and(|m| same(&m)) {
            continue;
        }
        if meta.is_dir() {
            // One in which there is something stays.
            drop(fs::remove_dir(path));
            continue;
        }
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && m.nlink() > 1) {
            // What it holds stays under its other name.
            let left = fs::remove_file(path).is_err();
            let what = if left { "cannot be removed" } else { "is removed" };
            let what = format!("was linked after the checkpoint; it {what}");
            notes.push(FileNote { path: path.clone(), what, left });
            continue;
        }
        let to = clear(path, aside);
        let left = to.is_none();
        let what = match to {
            Some(to) => format!("came after the checkpoint; it is now {}", to.display()),
            None => "came after the checkpoint; it cannot be moved away".into(),
        };
        notes.push(FileNote { path: path.clone(), what, left });
    }
    notes
}

/// Takes away what is to have its name no more; tells where it is kept.
pub(crate) fn clear(path: &Path, aside: Option<&Path>) -> Option<PathBuf> {
    if let Some(to) = aside.and_then(|aside| keep(path, aside, true)) {
        return Some(to);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".eyrie-ahead");
    fs::rename(path, &beside).is_ok().then(|| beside.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Too large to be read as a whole.
    const BYTES: u64 = (1 << 42) + 5;

    fn sparse(path: &Path, parts: &[(u64, u8)]) -> File {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path).unwrap();
        file.set_len(BYTES).unwrap();
        for (at, byte) in parts {
            file.write_all_at(&[*byte; 9], *at).unwrap();
        }
        file
    }

    #[test]
    fn sparse_files_are_compared_put_back_and_kept_by_what_is_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let then = sparse(&folder.path().join("then"), &[(0, 1), (70_000, 2), (1 << 41, 3)]);
        let now = sparse(&path, &[(0, 1), (1 << 30, 4), (1 << 41, 5), (BYTES - 9, 6)]);
        assert!(!is_same(&path, &then, BYTES).unwrap());
        let kept = keep(&path, &folder.path().join("aside"), false).unwrap();
        assert!(is_same(&kept, &now, BYTES).unwrap());
        assert!(fs::metadata(&kept).unwrap().blocks() * BLOCK_BYTES < 1 << 20);
        put(&path, &then, BYTES).unwrap();
        assert!(is_same(&path, &then, BYTES).unwrap());
        let mut byte = [0];
        for (at, want) in [(0, 1), (70_000, 2), (1 << 30, 0), (1 << 41, 3), (BYTES - 1, 0)] {
            now.read_exact_at(&mut byte, at).unwrap();
            assert_eq!(byte, [want], "at {at}");
        }
    }
}
