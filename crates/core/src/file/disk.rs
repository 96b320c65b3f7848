//! The file system: the one place of the machine with system calls.
//!
//! Kept true: a file is open only within a call of the machine. So no image has a file of MPI's
//! among what the process had open, and a rank can be restored from one when the file has been
//! renamed or deleted since. All access is by position, and goes on after interruptions and where
//! less was moved than was asked for.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::PathBuf;

use crate::error::{Class, Res, class};

/// Most zeros that are written at a time to get room for a file.
const ZEROS_BYTES: usize = 1 << 20;
/// Where the kernel says which start of which machine this is.
const MACHINE: &str = "/proc/sys/kernel/random/boot_id";

/// What an error of the system is to MPI.
fn class_of(error: &io::Error) -> Class {
    match error.kind() {
        ErrorKind::NotFound => class::NO_SUCH_FILE,
        ErrorKind::PermissionDenied => class::ACCESS,
        ErrorKind::AlreadyExists => class::FILE_EXISTS,
        ErrorKind::ReadOnlyFilesystem => class::READ_ONLY,
        ErrorKind::StorageFull => class::NO_SPACE,
        ErrorKind::QuotaExceeded => class::QUOTA,
        ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => class::FILE_IN_USE,
        ErrorKind::IsADirectory
        | ErrorKind::NotADirectory
        | ErrorKind::InvalidFilename
        | ErrorKind::InvalidInput => class::BAD_FILE,
        ErrorKind::OutOfMemory => class::NO_MEM,
        _ => class::IO,
    }
}

fn classified<T>(result: io::Result<T>) -> Res<T> {
    result.map_err(|error| class_of(&error))
}

#[cfg(test)]
thread_local! {
    /// Makes of this machine another one.
    pub(super) static ELSEWHERE: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The machine and its last start, as a number; 0 if it is not to be had.
pub(super) fn machine() -> u64 {
    #[cfg(test)]
    if ELSEWHERE.get() {
        return 1;
    }
    fs::read(MACHINE).map_or(0, |id| super::past::mark(0, &id))
}

/// Whether this is that machine, and its memory holds what was written then.
pub(super) fn is_still(was: u64) -> bool {
    was != 0 && machine() == was
}

/// How a file is opened for an access.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Read,
    Write,
}

/// A file by its path.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    read: bool,
    write: bool,
}

impl Place {
    /// A relative path is one from where the process is now, wherever it goes.
    pub(super) fn new(name: &[u8], read: bool, write: bool) -> Res<Place> {
        let path = classified(std::path::absolute(OsStr::from_bytes(name)))?;
        Ok(Place { path, read, write })
    }

    pub(super) fn shown(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// Whether something has this name.
    pub(super) fn is_there(&self) -> Res<bool> {
        match fs::symlink_metadata(&self.path) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(class_of(&error)),
        }
    }

    /// Opens it as the program has asked for, to see whether that is possible.
    pub(super) fn try_open(&self, create: bool, exclusive: bool) -> Res<()> {
        if let Ok(meta) = fs::metadata(&self.path) {
            let kind = meta.file_type();
            // Opening a pipe would wait for somebody else, and it has no positions.
            if kind.is_dir() || kind.is_fifo() || kind.is_socket() {
                return Err(class::BAD_FILE);
            }
        }
        let mut how = OpenOptions::new();
        how.read(self.read).write(self.write);
        if create && !self.write {
            // Refused by the access mode; the standard library would refuse it as well.
            return Err(class::AMODE);
        }
        if exclusive {
            how.create_new(true);
        } else {
            how.create(create);
        }
        classified(how.open(&self.path)).map(drop)
    }

    /// The file for one call; if `alone`, as long as nobody else writes to it, or reads.
    pub(super) fn open(&self, way: Way, alone: bool) -> Res<File> {
        let mut how = OpenOptions::new();
        let file =
            classified(how.read(way == Way::Read).write(way == Way::Write).open(&self.path))?;
        if alone {
            let lock = || if way == Way::Read { file.lock_shared() } else { file.lock() };
            let mut locked = lock();
            while locked.as_ref().is_err_and(|e| e.kind() == ErrorKind::Interrupted) {
                locked = lock();
            }
            locked.map_err(|_| class::UNSUPPORTED_OPERATION)?;
        }
        Ok(file)
    }

    pub(super) fn size(&self) -> Res<u64> {
        classified(fs::metadata(&self.path)).map(|meta| meta.len())
    }

    pub(super) fn set_size(&self, size: u64) -> Res<()> {
        classified(self.open(Way::Write, false)?.set_len(size))
    }

    /// Has room for `size` bytes given to it. What of it is there stays.
    pub(super) fn preallocate(&self, size: u64) -> Res<()> {
        let file = self.open(Way::Write, false)?;
        let mut at = classified(file.metadata())?.len();
        let zeros = vec![0; size.saturating_sub(at).min(ZEROS_BYTES as u64) as usize];
        while at < size {
            let n = (size - at).min(zeros.len() as u64) as usize;
            write(&file, at, &zeros[..n])?;
            at += n as u64;
        }
        Ok(())
    }

    /// Has what was written brought to the storage.
    pub(super) fn sync(&self) -> Res<()> {
        let way = if self.write { Way::Write } else { Way::Read };
        classified(self.open(way, false)?.sync_all())
    }

    pub(super) fn remove(&self) -> Res<()> {
        classified(fs::remove_file(&self.path))
    }
}

/// Fills `to` from position `at` on, or to the end of the file. Returns how much there is.
pub(super) fn read(file: &File, at: u64, to: &mut [u8]) -> Res<usize> {
    let mut done = 0;
    while done < to.len() {
        match file.read_at(&mut to[done..], at + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(class_of(&error)),
        }
    }
    Ok(done)
}

/// Writes all of `from` to position `at` and behind.
pub(super) fn write(file: &File, at: u64, from: &[u8]) -> Res<()> {
    classified(file.write_all_at(from, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_or_a_folder_is_no_file() {
        let place = Place::new(b"/tmp", true, false).unwrap();
        assert_eq!(place.try_open(false, false), Err(class::BAD_FILE));
        assert_eq!(place.is_there(), Ok(true));
        let beyond = Place::new(b"/dev/null/x", true, true).unwrap();
        assert_eq!(beyond.try_open(true, false), Err(class::BAD_FILE));
        assert_eq!(Place::new(b"", true, false).map(drop), Err(class::BAD_FILE));
    }

    #[test]
    fn a_machine_knows_itself() {
        assert_eq!(machine(), machine());
    }
}
