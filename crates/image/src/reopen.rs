//! Opening again what the process had open and mapped, after holding it against what was recorded.
//!
//! Nothing is changed here: files that have to be cut back are returned as such, and cut only when
//! everything else has succeeded.

use crate::error::RestoreError;
use crate::reorphan::{self, Remade};
use crate::state::{Backing, Description, FileId, State, Target, region};
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

/// Status flags that are given again on opening.
pub const OPEN_FLAGS: i32 = libc::O_APPEND
    | libc::O_NONBLOCK
    | libc::O_DIRECT
    | libc::O_SYNC
    | libc::O_NOATIME
    | libc::O_DIRECTORY
    | libc::O_PATH;

/// What a restored process gets.
pub struct Reopened {
    /// For each description, a descriptor; `None` for what only the process itself can open.
    pub descriptions: Vec<Option<RawFd>>,
    /// For each mapped file, a descriptor.
    pub files: Vec<RawFd>,
    /// Files to be cut back to a size.
    pub cuts: Vec<(File, u64)>,
    /// Shared objects without a path.
    pub orphans: Vec<Remade>,
    /// Keeps the descriptors open.
    _open: Vec<File>,
}

fn file_error(path: &[u8], what: impl Into<String>) -> RestoreError {
    RestoreError::File { path: String::from_utf8_lossy(path).into_owned(), what: what.into() }
}

fn path_of(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// The segment handed over for the memfd `name`: by its name, or by a beginning of it.
pub fn segment<'a>(
    segments: &'a [(String, OwnedFd)],
    name: &[u8],
) -> Result<&'a OwnedFd, RestoreError> {
    let exact = segments.iter().find(|(n, _)| n.as_bytes() == name);
    exact
        .or_else(|| segments.iter().find(|(n, _)| name.starts_with(n.as_bytes())))
        .map(|(_, fd)| fd)
        .ok_or_else(|| RestoreError::Segment(String::from_utf8_lossy(name).into_owned()))
}

/// The rest of a path under the process's own folder of `/proc`.
pub fn own_proc_file<'a>(state: &State, path: &'a [u8]) -> Option<&'a [u8]> {
    let own = format!("/proc/{}", state.pid);
    path.strip_prefix(own.as_bytes()).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// Opens everything.
pub fn reopen(
    state: &State,
    stdio: &[OwnedFd; 3],
    segments: &[(String, OwnedFd)],
) -> Result<Reopened, RestoreError> {
    let mut all = Reopened {
        descriptions: vec![],
        files: vec![],
        cuts: vec![],
        orphans: reorphan::remake(state)?,
        _open: vec![],
    };
    for description in &state.descriptions {
        let fd = match &description.target {
            Target::Stdio { which } => stdio[*which as usize % 3].as_raw_fd(),
            Target::Segment { name } => segment(segments, name)?.as_raw_fd(),
            Target::Orphan { orphan } => {
                let object = &all.orphans[*orphan as usize];
                let file = object.open(description.flags as i32, description.offset)?;
                all.keep(file)
            }
            Target::Device { path, rdev } => {
                let file = open(path, description.flags as i32)?;
                let meta = file.metadata().map_err(|e| file_error(path, e.to_string()))?;
                if !meta.file_type().is_char_device() || meta.rdev() != *rdev {
                    return Err(file_error(path, "is another device than at the checkpoint"));
                }
                all.keep(file)
            }
            Target::File { id, .. } if own_proc_file(state, &id.path).is_some() => {
                all.descriptions.push(None);
                continue;
            }
            Target::File { id, dir } => {
                let file = reopen_file(description, id, *dir, &mut all.cuts)?;
                all.keep(file)
            }
        };
        all.descriptions.push(Some(fd));
    }
    for (i, id) in state.files.iter().enumerate() {
        let file = reopen_mapped(state, i as u32, id)?;
        let fd = all.keep(file);
        all.files.push(fd);
    }
    Ok(all)
}

impl Reopened {
    fn keep(&mut self, file: File) -> RawFd {
        let fd = file.as_raw_fd();
        self._open.push(file);
        fd
    }
}

fn open(path: &[u8], flags: i32) -> Result<File, RestoreError> {
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & OPEN_FLAGS | libc::O_NOCTTY)
        .open(path_of(path))
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => file_error(path, "is gone"),
            _ => file_error(path, format!("cannot be opened again: {e}")),
        })
}

fn reopen_file(
    description: &Description,
    id: &FileId,
    dir: bool,
    cuts: &mut Vec<(File, u64)>,
) -> Result<File, RestoreError> {
    let flags = description.flags as i32;
    let file = open(&id.path, flags)?;
    let meta = file.metadata().map_err(|e| file_error(&id.path, e.to_string()))?;
    if meta.is_dir() != dir || (!dir && !meta.is_file()) {
        return Err(file_error(&id.path, "is no longer a file of the same kind"));
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY && flags & libc::O_PATH == 0;
    if writes && meta.ino() != id.ino {
        return Err(file_error(&id.path, "was replaced by another since the checkpoint"));
    }
    let needed = if writes { id.size } else { description.offset.min(id.size) };
    if !dir && meta.size() < needed {
        let what = format!("has shrunk to {} bytes; {needed} are needed", meta.size());
        return Err(file_error(&id.path, what));
    }
    if writes && flags & libc::O_APPEND != 0 && meta.size() > id.size {
        let again = file.try_clone().map_err(|e| file_error(&id.path, e.to_string()))?;
        cuts.push((again, id.size));
    }
    if flags & libc::O_PATH == 0 {
        // SAFETY: moves the offset of a descriptor that we own.
        let r = unsafe {
            libc::lseek(file.as_raw_fd(), description.offset as libc::off_t, libc::SEEK_SET)
        };
        if r < 0 {
            let e = io::Error::last_os_error();
            return Err(file_error(&id.path, format!("does not take its offset: {e}")));
        }
    }
    Ok(file)
}

fn reopen_mapped(state: &State, index: u32, id: &FileId) -> Result<File, RestoreError> {
    let here = |b: &Backing| matches!(b, Backing::File { file, .. } if *file == index);
    let mut flags = libc::O_RDONLY;
    let mut private = false;
    for r in state.regions.iter().filter(|r| here(&r.backing)) {
        private |= r.flags & region::SHARED == 0;
        if r.flags & region::MAY_WRITE != 0 {
            flags = libc::O_RDWR;
        }
    }
    let file = open(&id.path, flags)?;
    let meta: Metadata = file.metadata().map_err(|e| file_error(&id.path, e.to_string()))?;
    let now = crate::descriptors::file_id(id.path.clone(), &meta);
    if now.ino != id.ino || meta.size() < id.size {
        return Err(file_error(&id.path, "is not the file that was mapped at the checkpoint"));
    }
    if private && (now.size != id.size || now.mtime_ns != id.mtime_ns) {
        return Err(file_error(&id.path, "was changed since the checkpoint that maps it"));
    }
    Ok(file)
}
