//! Regular files and folders that have a path: opened again by it, after holding what lies there
//! against what was open.

use crate::error::{CaptureError, RestoreError, file_error};
use crate::resources::files::appends;
use crate::resources::open::{OPEN_FLAGS, Open, cannot, file_id, refused, refused_now};
use crate::resources::pidfds;
use crate::resources::proc_files;
use crate::resources::resource::{Look, Made, Making, Resource};
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::resources::OpenFile;
use eyrie_image_format::state::{Description, FileId, Target};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

impl Resource for OpenFile {
    fn capture(this: &Open, look: &mut Look<'_>) -> Result<Option<Target>, CaptureError> {
        if !matches!(this.kind(), libc::S_IFREG | libc::S_IFDIR) {
            return Ok(None);
        }
        if !this.link.starts_with(b"/") {
            return Err(refused(this, format!("of the kind {}", this.shown())));
        }
        proc_files::refuse_stranger(this, &look.known.processes)?;
        // Others may have been opened in another namespace, and be what their paths say all the
        // same.
        let is_mount = this.info.flags as i32 & libc::O_PATH != 0 && this.meta.is_dir();
        let mount = this.info.number("mnt_id", 10).filter(|_| is_mount);
        if let Some(mount) = mount.filter(|id| !look.known.mounts.has(*id)) {
            let what = format!("{} of a mount ({mount}) that is attached nowhere", this.shown());
            return Err(refused(this, what));
        }
        if this.meta.nlink() == 0 {
            return Err(refused(this, format!("a folder that was deleted, {}", this.shown())));
        }
        let id = file_id(this.link.clone(), &this.meta);
        let found = fs::metadata(path_of(&id.path));
        if !found.is_ok_and(|m| m.ino() == id.ino && m.dev() == id.dev) {
            let what = format!("a file that {} does not name any more", this.shown());
            // It may just be renamed.
            return Err(refused_now(this, what));
        }
        Ok(Some(Target::File(OpenFile { id, dir: this.meta.is_dir() })))
    }

    fn restore(
        &self,
        description: &Description,
        making: &mut Making<'_>,
    ) -> Result<Made, RestoreError> {
        if proc_files::is_own(&self.id) {
            let stand_in = pidfds::stand_in();
            return stand_in.map_err(|e| cannot("open its files again", e)).map(Made::Whole);
        }
        make(self, description, making).map(|file| Made::Whole(file.into()))
    }
}

fn make(
    OpenFile { id, dir }: &OpenFile,
    description: &Description,
    making: &mut Making<'_>,
) -> Result<File, RestoreError> {
    let flags = description.flags as i32;
    let (path, stands_in) = making.undo.place(id)?;
    let file = open_at(&path, &id.path, flags)?;
    let meta = file.metadata().map_err(|e| file_error(&id.path, e.to_string()))?;
    let writes = appends::writes(description);
    is_the_same(id, &meta, *dir, writes && !stands_in)?;
    let needed = if writes { id.size } else { description.offset.min(id.size) };
    if !dir && !stands_in && meta.size() < needed {
        let what = format!("has shrunk to {} bytes; {needed} are needed", meta.size());
        return Err(file_error(&id.path, what));
    }
    if appends::grows(description, id) && meta.size() > id.size {
        making.cuts.note(&file, id, description.shared)?;
    }
    if flags & libc::O_PATH == 0 {
        seek(&file, description.offset)
            .map_err(|e| file_error(&id.path, format!("does not take its offset: {e}")))?;
    }
    Ok(file)
}

/// An error if what lies at a path is not what was open there.
pub fn is_the_same(
    id: &FileId,
    meta: &Metadata,
    dir: bool,
    writes: bool,
) -> Result<(), RestoreError> {
    if meta.is_dir() != dir || (!dir && !meta.is_file()) {
        return Err(file_error(&id.path, "is no longer a file of the same kind"));
    }
    if writes && meta.ino() != id.ino {
        let what = "is not the file that the process writes to: it was replaced since the \
                    checkpoint, or lies where this node does not see it";
        return Err(file_error(&id.path, what));
    }
    Ok(())
}

/// Moves the offset of an open file.
fn seek(file: &impl AsRawFd, offset: u64) -> io::Result<()> {
    // SAFETY: moves the offset of a descriptor that we own.
    let r = unsafe { libc::lseek(file.as_raw_fd(), offset as libc::off_t, libc::SEEK_SET) };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Opens a path with the access and flags of a description.
pub fn open(path: &[u8], flags: i32) -> Result<File, RestoreError> {
    open_at(path_of(path).as_ref(), path, flags)
}

/// Opens what lies at `at` for the file that was at `path`.
fn open_at(at: &Path, path: &[u8], flags: i32) -> Result<File, RestoreError> {
    let access = flags & libc::O_ACCMODE;
    OpenOptions::new()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags & OPEN_FLAGS | libc::O_NOCTTY)
        .open(at)
        .map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => file_error(path, "is gone"),
            _ => file_error(path, format!("cannot be opened again: {e}")),
        })
}
