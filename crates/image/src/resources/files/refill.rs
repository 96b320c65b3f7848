//! Making a file hold what it held at the checkpoint, and keeping what it held since.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Compared, and written, at a time.
const CHUNK_BYTES: usize = 64 << 10;

/// Whether a file holds this.
pub(crate) fn is_same(path: &Path, content: &File, bytes: u64) -> io::Result<bool> {
    let file = open(path, false)?;
    if file.metadata()?.len() != bytes {
        return Ok(false);
    }
    let mut same = true;
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
    let mut at = 0;
    while at < bytes {
        let n = (bytes - at).min(CHUNK_BYTES as u64) as usize;
        a.read_exact_at(&mut one[..n], at)?;
        b.read_exact_at(&mut other[..n], at)?;
        with(at, &one[..n], &other[..n])?;
        at += n as u64;
    }
    Ok(())
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
    // The kernel shares the blocks where the file system can.
    if fs::copy(path, &to).is_err() {
        let _ = fs::remove_file(&to);
        return None;
    }
    if moves { fs::remove_file(path).ok().map(|()| to) } else { Some(to) }
}
