//! The storage of one member: a folder, or what stands for one in tests.
//!
//! Kept true: nothing here decides anything; which write must be durable before which other is
//! `member`'s affair, and what that relies on is said at each method.

use crate::files::{DROPPED, IDENTITY};
use crate::lock::{FolderLock, LOCK, LockError};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Bytes that are copied at once.
const COPY_BYTES: u64 = 1 << 20;

/// Files of one member, in one folder.
pub trait Disk {
    /// Writes bytes into a file, which is made if it is not there. Durable after `sync`.
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()>;
    /// What was written to this file is durable afterwards; its name is after `sync_names`.
    fn sync(&mut self, name: &str) -> io::Result<()>;
    /// A file gets another name in one step, whatever bore that; durable after `sync_names`.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file, if it is there; durable after `sync_names`.
    fn remove(&mut self, name: &str) -> io::Result<()>;
    /// What files there are, and their names, is durable afterwards.
    fn sync_names(&mut self) -> io::Result<()>;
    /// Fills `to` from the file; an error if it is not that long.
    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()>;
    /// `None`: it is not there.
    fn bytes(&self, name: &str) -> io::Result<Option<u64>>;
    fn names(&self) -> io::Result<Vec<String>>;

    /// Copies bytes from one file into another, without them going through here if that can be.
    fn copy(&mut self, from: (&str, u64), to: (&str, u64), bytes: u64) -> io::Result<()> {
        let mut done = 0;
        while done < bytes {
            let mut piece = vec![0; (bytes - done).min(COPY_BYTES) as usize];
            self.read_at(from.0, from.1 + done, &mut piece)?;
            self.write_at(to.0, to.1 + done, &piece)?;
            done += piece.len() as u64;
        }
        Ok(())
    }

    /// All of a small file; `None`: it is not there.
    fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let Some(bytes) = self.bytes(name)? else { return Ok(None) };
        if bytes > most {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{name} is too long")));
        }
        let mut all = vec![0; bytes as usize];
        self.read_at(name, 0, &mut all)?;
        Ok(Some(all))
    }

    /// Writes a file that is there whole, or as it was before; durable when this returns.
    fn replace(&mut self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let temporary = temporary_name(name);
        self.remove(&temporary)?;
        self.write_at(&temporary, 0, bytes)?;
        self.sync(&temporary)?;
        self.rename(&temporary, name)?;
        self.sync_names()
    }
}

/// Files of somebody else, which are looked at only: what would change one is an error, and nobody
/// asks for all their names.
pub trait Looked {
    /// As of a [`Disk`].
    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()>;
    /// As of a [`Disk`].
    fn bytes(&self, name: &str) -> io::Result<Option<u64>>;
}

fn looked_at<T>() -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, "another node's storage is only read"))
}

impl<D: Looked> Disk for D {
    fn write_at(&mut self, _: &str, _: u64, _: &[u8]) -> io::Result<()> {
        looked_at()
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        looked_at()
    }

    fn rename(&mut self, _: &str, _: &str) -> io::Result<()> {
        looked_at()
    }

    fn remove(&mut self, _: &str) -> io::Result<()> {
        looked_at()
    }

    fn sync_names(&mut self) -> io::Result<()> {
        looked_at()
    }

    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        Looked::read_at(self, name, offset, to)
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        Looked::bytes(self, name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        looked_at()
    }
}

/// A folder.
pub struct Folder {
    path: PathBuf,
    open: RefCell<HashMap<String, Rc<File>>>,
    hold: Option<FolderLock>,
}

/// Files that are kept open.
const OPEN_FILES: usize = 16;

impl Folder {
    /// The folder is made, for its owner only, if it is not there.
    pub fn create(path: &Path) -> io::Result<Folder> {
        use std::os::unix::fs::DirBuilderExt;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        Folder::open(path)
    }

    pub fn open(path: &Path) -> io::Result<Folder> {
        fs::read_dir(path)?;
        Ok(Folder { path: path.into(), open: RefCell::default(), hold: None })
    }

    /// Nobody else changes what is in the folder as long as this one is there, or its process.
    /// `who` is told to those who try.
    pub fn hold(&mut self, who: &str) -> Result<(), LockError> {
        if self.hold.is_none() {
            self.hold = Some(FolderLock::take(&self.path, who)?);
        }
        Ok(())
    }

    /// Whether nothing is there but what `Member::create` leaves when it is interrupted.
    pub fn is_empty(&self) -> io::Result<bool> {
        let begun = [DROPPED.to_string(), temporary_name(DROPPED), temporary_name(IDENTITY)];
        Ok(self.names()?.iter().all(|name| begun.contains(name)))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn file(&self, name: &str, write: bool) -> io::Result<Rc<File>> {
        let mut open = self.open.borrow_mut();
        if let Some(file) = open.get(name) {
            return Ok(Rc::clone(file));
        }
        let path = self.path.join(name);
        let mut options = OpenOptions::new();
        options.read(true);
        let file = if write {
            options.write(true).create(true).truncate(false).mode(0o600);
            open_plain(&mut options, &path)?
        } else {
            return Ok(Rc::new(open_plain(&mut options, &path)?));
        };
        if open.len() >= OPEN_FILES {
            open.clear();
        }
        let file = Rc::new(file);
        open.insert(name.into(), Rc::clone(&file));
        Ok(file)
    }

    fn forget(&self, name: &str) {
        self.open.borrow_mut().remove(name);
    }
}

impl Disk for Folder {
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(name, true)?.write_all_at(bytes, offset)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.file(name, true)?.sync_data()
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.forget(from);
        self.forget(to);
        fs::rename(self.path.join(from), self.path.join(to))
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.forget(name);
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            result => result,
        }
    }

    fn sync_names(&mut self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    /// On a file system that can, both files share the blocks.
    fn copy(&mut self, from: (&str, u64), to: (&str, u64), bytes: u64) -> io::Result<()> {
        // Files of their own: all others are read and written at given places.
        let mut source = open_plain(OpenOptions::new().read(true), &self.path.join(from.0))?;
        source.seek(SeekFrom::Start(from.1))?;
        self.file(to.0, true)?;
        let mut target = OpenOptions::new().write(true).open(self.path.join(to.0))?;
        target.seek(SeekFrom::Start(to.1))?;
        let copied = io::copy(&mut source.take(bytes), &mut target)?;
        if copied == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.file(name, false)?.read_exact_at(to, offset)
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.path.join(name)) {
            Ok(meta) => Ok(Some(meta.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn names(&self) -> io::Result<Vec<String>> {
        let entries = fs::read_dir(&self.path)?.collect::<io::Result<Vec<_>>>()?;
        let mut names: Vec<String> =
            entries.into_iter().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        // It is nothing of the member's: a folder with that alone is empty.
        names.retain(|name| name != LOCK);
        names.sort();
        Ok(names)
    }
}

/// Opens a plain file: what is something else, as a pipe, is refused, and not waited for.
pub(crate) fn open_plain(how: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Of no effect on a plain file.
    let file = how.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "is no plain file")),
    }
}

/// The name of a file that is not there whole yet.
fn temporary_name(name: &str) -> String {
    format!("{name}.part")
}

/// Random bytes, of the kernel's.
pub fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_keeps_files() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Folder::create(&dir.path().join("a/b")).unwrap();
        disk.write_at("x", 3, b"def").unwrap();
        disk.write_at("x", 0, b"abc").unwrap();
        disk.sync("x").unwrap();
        disk.copy(("x", 2), ("z", 1), 3).unwrap();
        assert_eq!(disk.read("z", 9).unwrap().unwrap(), b"\0cde");
        assert!(disk.copy(("x", 4), ("z", 0), 3).is_err());
        disk.remove("z").unwrap();
        disk.replace("y", b"one").unwrap();
        disk.replace("y", b"two").unwrap();
        disk.sync_names().unwrap();
        assert_eq!(disk.names().unwrap(), ["x", "y"]);
        assert_eq!(disk.read("x", 6).unwrap().unwrap(), b"abcdef");
        assert_eq!(disk.read("y", 6).unwrap().unwrap(), b"two");
        assert!(disk.read("x", 5).is_err());
        assert!(disk.read_at("x", 4, &mut [0; 3]).is_err());
        disk.remove("x").unwrap();
        disk.remove("x").unwrap();
        assert_eq!(disk.read("x", 6).unwrap(), None);
        assert!(Folder::open(&dir.path().join("c")).is_err());
    }

    #[test]
    fn a_folder_that_was_just_being_made_a_member_is_empty() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Folder::create(&dir.path().join("a")).unwrap();
        assert!(disk.is_empty().unwrap());
        for name in ["dropped", "dropped.part", "vault.part"] {
            disk.write_at(name, 0, b"half").unwrap();
        }
        assert!(disk.is_empty().unwrap());
        disk.rename("vault.part", "vault").unwrap();
        assert!(!disk.is_empty().unwrap());
    }
}
