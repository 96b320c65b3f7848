//! Putting back what named shared memory ([`crate::resources::shared_memory::named`]) held at the
//! checkpoint.
//!
//! Until everything else has succeeded, a file that is there is not touched: its content waits in a
//! memfd. One that is gone is made at once, and is removed again unless it is kept.

use crate::error::{RestoreError, file_error};
use crate::kernel::inode::device;
use crate::kernel::remote_descriptors;
use crate::resources::shared_memory::named::{self, TMPFS_MAGIC};
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::{AnonymousObject, ObjectKind};
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes copied at a time.
const CHUNK_BYTES: usize = 1 << 20;
const PAGE: u64 = crate::PAGE_BYTES;

/// What is still to be done to a file.
pub struct Rewind {
    path: Vec<u8>,
    bytes: u64,
    mode: u32,
    /// The content of a file that was there.
    content: Option<File>,
    /// False for one that was made and may have to go again.
    kept: AtomicBool,
}

/// Refuses files that processes have of whom none is restored here.
pub fn refuse_in_use<'a>(
    anonymous: impl Iterator<Item = &'a AnonymousObject>,
) -> Result<(), RestoreError> {
    let mut wanted = BTreeMap::new();
    for object in anonymous {
        let ObjectKind::Named { path } = &object.kind else { continue };
        if let Ok(meta) = fs::metadata(path_of(path)) {
            wanted.insert((device(meta.dev()), meta.ino()), path);
        }
    }
    let files = wanted.keys().copied().collect();
    match named::holder(&[], &files) {
        Some((pid, file)) => Err(file_error(
            wanted.get(&file).map_or(b"", |path| path.as_slice()),
            format!("is shared with process {pid}, which is not restored with this one: end it"),
        )),
        None => Ok(()),
    }
}

/// Opens the file of one, or makes it. `content` makes a place for content that waits.
pub fn open(
    path: &[u8],
    object: &AnonymousObject,
    content: impl FnOnce() -> Result<File, RestoreError>,
) -> Result<(File, Rewind), RestoreError> {
    let failed = |what: &str| {
        let what = format!("cannot be {what}");
        move |e: io::Error| file_error(path, format!("{what}: {e}"))
    };
    let kept = AtomicBool::new(true);
    let mut rewind =
        Rewind { path: path.to_vec(), bytes: object.bytes, mode: object.mode, content: None, kept };
    let mut options = OpenOptions::new();
    options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.open(path_of(path)) {
        Ok(file) => {
            let meta = file.metadata().map_err(failed("examined"))?;
            if !meta.is_file() || remote_descriptors::file_system(&file) != TMPFS_MAGIC {
                return Err(file_error(path, "is no longer a file on tmpfs"));
            }
            let waiting = content()?;
            waiting.set_len(object.bytes).map_err(failed("put back"))?;
            rewind.content = Some(waiting);
            Ok((file, rewind))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let made = options.create_new(true).mode(0o600).open(path_of(path));
            let file = made.map_err(failed("made again"))?;
            rewind.kept = AtomicBool::new(false);
            file.set_len(object.bytes).map_err(failed("made again"))?;
            Ok((file, rewind))
        }
        Err(e) => Err(failed("opened again")(e)),
    }
}

impl Rewind {
    /// The file that takes the content for now, if it is not the file itself.
    pub fn waiting(&self) -> Option<&File> {
        self.content.as_ref()
    }

    fn failed(&self) -> impl Fn(io::Error) -> RestoreError + '_ {
        |e| file_error(&self.path, format!("cannot be put back: {e}"))
    }

    /// Makes sure that there is room for the content.
    pub fn reserve(&self, file: &File) -> Result<(), RestoreError> {
        let Some(content) = &self.content else { return Ok(()) };
        let room = |(start, end): (u64, u64)| change(file, libc::FALLOC_FL_KEEP_SIZE, start, end);
        let all = data(content, self.bytes).and_then(|all| all.into_iter().try_for_each(room));
        all.map_err(self.failed())
    }

    /// Changes the file to what it was.
    pub fn put(&self, file: &File) -> Result<(), RestoreError> {
        match &self.content {
            Some(content) => self.copy(content, file).map_err(self.failed()),
            None => {
                let mode = Permissions::from_mode(self.mode);
                file.set_permissions(mode).map_err(self.failed())
            }
        }
    }

    fn copy(&self, content: &File, file: &File) -> io::Result<()> {
        file.set_len(self.bytes)?;
        let punch = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut done = 0;
        for (start, end) in data(content, self.bytes)? {
            change(file, punch, done, start)?;
            done = start;
            while done < end {
                let part = &mut buffer[..(end - done).min(CHUNK_BYTES as u64) as usize];
                content.read_exact_at(part, done)?;
                file.write_all_at(part, done)?;
                done += part.len() as u64;
            }
        }
        change(file, punch, done, self.bytes.next_multiple_of(PAGE))
    }

    /// When all are put back: one that was made stays.
    pub fn keep(&self) {
        self.kept.store(true, Ordering::Relaxed);
    }
}

impl Drop for Rewind {
    fn drop(&mut self) {
        if !self.kept.load(Ordering::Relaxed) {
            // Ours, made where there was none. If it cannot be removed, nobody could be told more
            // than by the error that led here.
            let _ = fs::remove_file(path_of(&self.path));
        }
    }
}

/// `fallocate` from `start` to `end`.
fn change(file: &File, mode: i32, start: u64, end: u64) -> io::Result<()> {
    if start >= end {
        return Ok(());
    }
    let (at, bytes) = (start as libc::off_t, (end - start) as libc::off_t);
    // SAFETY: numbers only.
    let r = unsafe { libc::fallocate(file.as_raw_fd(), mode, at, bytes) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The ranges of a file that are no holes.
fn data(file: &File, bytes: u64) -> io::Result<Vec<(u64, u64)>> {
    let seek = |at: u64, to: i32| {
        // SAFETY: moves the offset of a description of our own.
        let found = unsafe { libc::lseek(file.as_raw_fd(), at as libc::off_t, to) };
        match io::Error::last_os_error() {
            _ if found >= 0 => Ok(Some(found as u64)),
            e if e.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            e => Err(e),
        }
    };
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes {
        let Some(start) = seek(at, libc::SEEK_DATA)? else { break };
        at = seek(start, libc::SEEK_HOLE)?.unwrap_or(bytes).min(bytes);
        all.push((start, at));
    }
    Ok(all)
}
