//! A folder of the vault in which nobody else has written since.
//!
//! Kept true: a process whose memory is older than what is on disk (it was restored from an image
//! of itself) and a second job in the same folders change nothing there. Every controller writes
//! `dropped` anew before it does anything else; so it is looked at before every change.

use eyrie_vault::disk::{Disk, Folder};
use eyrie_vault::files::DROPPED;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Which file it is: its number, and when it was written and named.
type Mark = Option<(u64, i64, i64, i64, i64)>;

/// A folder, and what it looked like when this process wrote there last.
pub struct Fenced {
    folder: Folder,
    known: Mark,
}

impl Fenced {
    pub fn create(path: &Path) -> io::Result<Fenced> {
        let folder = Folder::create(path)?;
        let mut fenced = Fenced { folder, known: None };
        fenced.known = fenced.mark()?;
        Ok(fenced)
    }

    fn mark(&self) -> io::Result<Mark> {
        match std::fs::metadata(self.folder.path().join(DROPPED)) {
            Ok(m) => Ok(Some((m.ino(), m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn mine(&mut self) -> io::Result<&mut Folder> {
        if self.mark()? != self.known {
            let path = self.folder.path().display();
            return Err(io::Error::other(format!("another process has written to {path} since")));
        }
        Ok(&mut self.folder)
    }
}

impl Disk for Fenced {
    fn write_at(&mut self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.mine()?.write_at(name, offset, bytes)
    }

    fn sync(&mut self, name: &str) -> io::Result<()> {
        self.mine()?.sync(name)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.mine()?.rename(from, to)?;
        if to == DROPPED {
            self.known = self.mark()?;
        }
        Ok(())
    }

    fn remove(&mut self, name: &str) -> io::Result<()> {
        self.mine()?.remove(name)
    }

    fn sync_names(&mut self) -> io::Result<()> {
        self.folder.sync_names()
    }

    fn read_at(&self, name: &str, offset: u64, to: &mut [u8]) -> io::Result<()> {
        self.folder.read_at(name, offset, to)
    }

    fn bytes(&self, name: &str) -> io::Result<Option<u64>> {
        self.folder.bytes(name)
    }

    fn names(&self) -> io::Result<Vec<String>> {
        self.folder.names()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_later_fences_who_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let mut first = Fenced::create(dir.path()).unwrap();
        first.replace(DROPPED, b"one").unwrap();
        first.replace("gen-1.commit", b"x").unwrap();
        let mut second = Fenced::create(dir.path()).unwrap();
        second.replace("gen-2.commit", b"x").unwrap();
        first.remove("gen-2.commit").unwrap();
        second.replace(DROPPED, b"two").unwrap();
        let why = first.replace("gen-3.commit", b"x").unwrap_err().to_string();
        assert!(why.contains("another process has written"), "{why}");
        assert!(first.remove("gen-1.commit").is_err());
        second.remove("gen-1.commit").unwrap();
        assert_eq!(first.names().unwrap(), [DROPPED]);
    }
}
