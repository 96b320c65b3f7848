//! The files of a job's folder, in memory.

use super::{Asked, Memory};
use crate::outside::{Files, JournalStore, Needed};
use eyrie_state::home::IMAGES;
use eyrie_state::saved_job::{SavedJob, SavedJobError};
use eyrie_state::stdin_file::Kept;
use std::ffi::OsStr;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

/// From this length on a journal is replaced: far sooner than a file.
const LONG_BYTES: usize = 64 << 10;

fn missing() -> io::Error {
    io::ErrorKind::NotFound.into()
}

/// The name that what is saved has beside other files.
const SAVED: &str = eyrie_state::home::SAVED;

impl Files for Memory {
    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        let content = self.0.borrow();
        let bytes = content.files.get(name).ok_or_else(missing)?;
        match bytes.len() as u64 <= most {
            true => Ok(bytes.clone()),
            false => Err(io::ErrorKind::FileTooLarge.into()),
        }
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.room()?;
        self.0.borrow_mut().files.insert(name.to_string(), bytes.to_vec());
        Ok(())
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.write(name, bytes)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.room()?;
        let mut content = self.0.borrow_mut();
        content.files.entry(name.to_string()).or_default().extend_from_slice(bytes);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut content = self.0.borrow_mut();
        let was = match name == SAVED {
            true => content.saved.take().is_some(),
            false => content.files.remove(name).is_some(),
        };
        was.then_some(()).ok_or_else(missing)
    }

    fn length(&self, name: &str) -> Option<u64> {
        let content = self.0.borrow();
        match name == SAVED {
            true => content.saved.as_ref().map(|_| 1),
            false => content.files.get(name).map(|bytes| bytes.len() as u64),
        }
    }

    fn modified(&self, name: &str) -> Option<SystemTime> {
        Files::length(self, name).map(|_| UNIX_EPOCH)
    }

    fn create_input(&self) -> io::Result<Box<dyn Kept>> {
        self.write(eyrie_state::home::STDIN, b"")?;
        self.open_input()
    }

    fn open_input(&self) -> io::Result<Box<dyn Kept>> {
        let there = Files::length(self, eyrie_state::home::STDIN);
        there.map(|_| Box::new(self.clone()) as Box<dyn Kept>).ok_or_else(missing)
    }

    fn read_saved(&self) -> Result<SavedJob, SavedJobError> {
        let saved = self.0.borrow().saved.clone();
        saved.ok_or_else(|| SavedJobError::Io(PathBuf::from(SAVED), missing()))
    }

    fn write_saved(&self, state: &SavedJob) -> io::Result<()> {
        self.room()?;
        self.0.borrow_mut().saved = Some(state.clone());
        Ok(())
    }

    fn set_saved_aside(&self) -> io::Result<()> {
        self.room()?;
        let mut content = self.0.borrow_mut();
        if content.saved.is_some() {
            content.saved_before = content.saved.clone();
        }
        Ok(())
    }

    fn take_saved_back(&self, number: Option<u32>) -> io::Result<()> {
        let mut content = self.0.borrow_mut();
        let before = content.saved_before.take();
        content.saved = before.filter(|saved| Some(saved.number) == number);
        Ok(())
    }

    fn clear_images(&self, stays: &dyn Fn(&OsStr) -> bool) {
        let folder = format!("{IMAGES}/");
        let goes =
            |name: &str| name.strip_prefix(&folder).is_some_and(|name| !stays(OsStr::new(name)));
        self.0.borrow_mut().files.retain(|name, _| !goes(name));
    }

    fn sync_images(&self, attempt: u32, needed: Needed) -> io::Result<()> {
        self.ask(Asked::SyncImages { attempt, needed });
        Ok(())
    }

    fn forget_local_images(&self) {}

    fn journal(&self) -> Rc<dyn JournalStore> {
        Rc::new(self.clone())
    }
}

impl JournalStore for Memory {
    fn replace(&self, bytes: Vec<u8>) -> io::Result<u64> {
        self.room()?;
        let mut content = self.0.borrow_mut();
        content.base = bytes.len();
        content.journal = Some(bytes);
        Ok(0)
    }

    fn append(&self, bytes: Vec<u8>) -> io::Result<u64> {
        self.room()?;
        let mut content = self.0.borrow_mut();
        content.journal.get_or_insert_default().extend_from_slice(&bytes);
        Ok(0)
    }

    fn is_long(&self) -> bool {
        let content = self.0.borrow();
        let length = content.journal.as_ref().map_or(0, Vec::len);
        length > LONG_BYTES.max(4 * content.base)
    }

    fn give_up(&self) {
        self.0.borrow_mut().journal = None;
    }
}

impl Kept for Memory {
    fn write_all_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.room()?;
        let mut content = self.0.borrow_mut();
        let file = content.files.get_mut(eyrie_state::home::STDIN).ok_or_else(missing)?;
        let (from, end) = (at as usize, at as usize + bytes.len());
        file.resize(file.len().max(end), 0);
        file[from..end].copy_from_slice(bytes);
        Ok(())
    }

    fn read_at(&self, into: &mut [u8], at: u64) -> io::Result<usize> {
        let content = self.0.borrow();
        let file = content.files.get(eyrie_state::home::STDIN).ok_or_else(missing)?;
        let rest = file.get(at as usize..).unwrap_or_default();
        let count = rest.len().min(into.len());
        into[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn length(&self) -> io::Result<u64> {
        let content = self.0.borrow();
        content.files.get(eyrie_state::home::STDIN).map(|f| f.len() as u64).ok_or_else(missing)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
