//! Files that no path leads to: memfds and deleted files. Their content goes into the image, and at
//! restore they are made anew.
//!
//! The process may change such a file as soon as it runs on, so the content is copied while it
//! stands still, to a file without a path of our own: beside a deleted file where its folder lets us
//! (which costs nothing where the file system can share blocks), else in memory.

use crate::PAGE_BYTES;
use crate::descriptors::{Open, refused};
use crate::error::{CaptureError, RestoreError};
use crate::image::Image;
use crate::lend;
use crate::load;
use crate::pull::Puller;
use crate::reopen::{Reopener, cannot, file_error, path_of, reopen_fd, seek};
use crate::state::orphan_at;
use crate::state::{Description, MAX_ORPHAN_BYTES, MAX_ORPHANS, Orphan, OrphanKind, State};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

const DELETED: &[u8] = b" (deleted)";
const MEMFD: &[u8] = b"/memfd:";
const HUGETLBFS_MAGIC: i64 = 0x958458f6;
/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// An orphan of a frozen process.
pub struct Found {
    /// What goes into the state.
    pub orphan: Orphan,
    /// Device and inode number.
    pub file: (u64, u64),
    /// Its content when the process stood still.
    copy: File,
}

/// Index of the orphan behind `this`, copied if it is new.
pub fn find(this: &Open, found: &mut Vec<Found>) -> Result<u32, CaptureError> {
    let file = (this.meta.dev(), this.meta.ino());
    if let Some(known) = found.iter().position(|f| f.file == file) {
        return Ok(known as u32);
    }
    let refuse = |what: String| Err(refused(this, what));
    if this.meta.size() > MAX_ORPHAN_BYTES || found.len() >= MAX_ORPHANS {
        return refuse(format!("a deleted file of {} bytes", this.meta.size()));
    }
    let source = File::open(format!("/proc/{}/fd/{}", this.pid, this.fd)).map_err(|e| {
        refused(this, format!("a file that was deleted and cannot be read, {} ({e})", this.shown()))
    })?;
    if file_system(&source) == HUGETLBFS_MAGIC {
        return refuse(format!("memory of huge pages, {}", this.shown()));
    }
    let link = this.link.strip_suffix(DELETED).unwrap_or(&this.link);
    let kind = match link.strip_prefix(MEMFD) {
        Some(name) => OrphanKind::Memory { name: name.to_vec(), seals: seals(&source) },
        None => OrphanKind::Deleted { path: link.to_vec() },
    };
    let copy = copy(&source, &kind, this.meta.size())
        .map_err(|source| CaptureError::Os { what: "copy a deleted file", source })?;
    // Device and inode tell it from others for as long as it exists.
    let id = this.meta.ino() ^ this.meta.dev().rotate_left(40);
    let mode = this.meta.mode() & 0o7777;
    let orphan = Orphan { id, kind, mode, bytes: this.meta.size() };
    found.push(Found { orphan, file, copy });
    Ok(found.len() as u32 - 1)
}

fn file_system(file: &File) -> i64 {
    let mut about = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: fills a live structure; its zeros stay on failure.
    unsafe {
        libc::fstatfs(file.as_raw_fd(), about.as_mut_ptr());
        about.assume_init().f_type
    }
}

fn seals(file: &File) -> u32 {
    // SAFETY: a query; files without seals answer with an error.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    u32::try_from(seals).unwrap_or(0)
}

fn memfd(name: &[u8]) -> io::Result<File> {
    let name: Vec<u8> = name.iter().copied().filter(|&b| b != 0).collect();
    let name = std::ffi::CString::new(name)?;
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: the name is a C string.
    lend::made(unsafe { libc::memfd_create(name.as_ptr(), flags) }.into()).map(File::from)
}

/// A new file without a name in a folder.
fn nameless(folder: Option<&Path>, mode: u32) -> io::Result<File> {
    let folder = folder.ok_or(io::ErrorKind::NotFound)?;
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_TMPFILE).mode(mode).open(folder)
}

fn copy(source: &File, kind: &OrphanKind, bytes: u64) -> io::Result<File> {
    let beside = match kind {
        OrphanKind::Deleted { path } => nameless(Path::new(&path_of(path)).parent(), 0o600).ok(),
        OrphanKind::Memory { .. } => None,
    };
    if let Some(copy) = beside {
        // SAFETY: numbers only; refused where blocks cannot be shared.
        let r = unsafe { libc::ioctl(copy.as_raw_fd(), libc::FICLONE, source.as_raw_fd()) };
        if r == 0 {
            return Ok(copy);
        }
    }
    let copy = memfd(b"eyrie-copy")?;
    copy.set_len(bytes)?;
    let mut buffer = vec![0; CHUNK_BYTES];
    extents(source, bytes, |start, end| {
        let mut at = start;
        while at < end {
            let part = &mut buffer[..(end - at).min(CHUNK_BYTES as u64) as usize];
            source.read_exact_at(part, at)?;
            copy.write_all_at(part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    })?;
    Ok(copy)
}

/// Calls `each` with the parts of a file that have content.
fn extents(
    file: &File,
    bytes: u64,
    mut each: impl FnMut(u64, u64) -> io::Result<()>,
) -> io::Result<()> {
    let find = |from: u64, what: i32| {
        // SAFETY: moves the offset of a description of ours.
        let at = unsafe { libc::lseek(file.as_raw_fd(), from as libc::off_t, what) };
        u64::try_from(at).ok()
    };
    let mut at = 0;
    while at < bytes {
        // No content from here on, or a file system that does not know.
        let Some(start) = find(at, libc::SEEK_DATA) else { break };
        let end = find(start, libc::SEEK_HOLE).unwrap_or(bytes).min(bytes);
        if start >= end {
            break;
        }
        each(start, end)?;
        at = end;
    }
    Ok(())
}

/// Puts the content of the orphans into an image.
pub fn pull(puller: &mut Puller<'_>, found: &[Found]) -> Result<(), CaptureError> {
    let failed = |source| CaptureError::Os { what: "read a copied file", source };
    let mut buffer = vec![0; CHUNK_BYTES];
    for (i, orphan) in found.iter().enumerate() {
        let bytes = orphan.orphan.bytes;
        let mut parts = Vec::new();
        let note = |start: u64, end: u64| {
            parts.push((start / PAGE_BYTES * PAGE_BYTES, end.next_multiple_of(PAGE_BYTES)));
            Ok(())
        };
        extents(&orphan.copy, bytes, note).map_err(failed)?;
        let mut done = 0;
        for (start, end) in parts {
            let mut at = start.max(done);
            while at < end {
                let part = (end - at).min(CHUNK_BYTES as u64) as usize;
                let inside = (bytes - at).min(part as u64) as usize;
                buffer[inside..part].fill(0);
                orphan.copy.read_exact_at(&mut buffer[..inside], at).map_err(failed)?;
                puller.take_nonzero(orphan_at(i) + at, &buffer[..part])?;
                at += part as u64;
            }
            done = at;
        }
    }
    Ok(())
}

/// An orphan that was made again.
pub struct Restored {
    /// It.
    pub file: File,
    seals: u32,
}

/// Makes orphan `i` of an image again.
pub fn restore(image: &Image, orphan: &Orphan, i: usize) -> Result<Restored, RestoreError> {
    let (path, seals): (&[u8], u32) = match &orphan.kind {
        OrphanKind::Memory { name, seals } => (name, *seals),
        OrphanKind::Deleted { path } => (path, 0),
    };
    let failed = |e: io::Error| file_error(path, format!("cannot be made again: {e}"));
    let file = match &orphan.kind {
        OrphanKind::Memory { name, .. } => memfd(name),
        OrphanKind::Deleted { path } => deleted(path, orphan.mode),
    }
    .map_err(failed)?;
    file.set_len(orphan.bytes).map_err(failed)?;
    fill(image, orphan, i, &file)?;
    // SAFETY: changes a file of ours.
    if unsafe { libc::fchmod(file.as_raw_fd(), orphan.mode) } != 0 {
        return Err(failed(io::Error::last_os_error()));
    }
    Ok(Restored { file, seals })
}

/// A file under its old name, if that is free, and at once without it.
fn deleted(path: &[u8], mode: u32) -> io::Result<File> {
    let path = path_of(path);
    let new = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    match new {
        Ok(file) => {
            std::fs::remove_file(&path)?;
            Ok(file)
        }
        Err(_) => nameless(Path::new(&path).parent(), mode)
            .or_else(|_| nameless(Some(&std::env::temp_dir()), mode)),
    }
}

fn fill(image: &Image, orphan: &Orphan, i: usize, to: &File) -> Result<(), RestoreError> {
    let start = orphan_at(i);
    load::each(image, start..start + MAX_ORPHAN_BYTES, |address, content| {
        let at = address - start;
        let inside = orphan.bytes.saturating_sub(at).min(content.len() as u64);
        to.write_all_at(&content[..inside as usize], at)
    })
}

/// Opens an orphan as a description had it.
pub fn open(
    reopener: &Reopener<'_>,
    state: &State,
    description: &Description,
    orphan: u32,
) -> Result<OwnedFd, RestoreError> {
    let gone = || cannot(description, io::ErrorKind::NotFound.into());
    let id = state.orphans.get(orphan as usize).ok_or_else(gone)?.id;
    let restored = reopener.orphans.get(&id).ok_or_else(gone)?;
    let fd = reopen_fd(&restored.file, description)?;
    seek(&fd, description.offset).map_err(|e| cannot(description, e))?;
    Ok(fd)
}

/// Seals a memfd, when everything is mapped that was.
pub fn seal(restored: &Restored) -> Result<(), RestoreError> {
    let fd = restored.file.as_raw_fd();
    // SAFETY: numbers only.
    if restored.seals != 0 && unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, restored.seals) } != 0 {
        let source = io::Error::last_os_error();
        return Err(RestoreError::Os { what: "seal its memfd again", source });
    }
    Ok(())
}
