//! The job's folder on disk, with the journal in it.
//!
//! Kept true: the journal is replaced by one that begins with the whole state, which is there whole
//! or not at all. It outlives processes, not the machine: it is not forced to the disk.

use eyrie_control::ha::Pointer;
use eyrie_controller::Msg;
use eyrie_controller::journal;
use eyrie_controller::outside::{Files, JournalStore, Needed};
use eyrie_exchange::image_files;
use eyrie_state::saved_job::{SavedJob, SavedJobError};
use eyrie_state::stdin_file::{self, Kept};
use eyrie_state::{history, home, local};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::SystemTime;
use tokio::sync::mpsc::UnboundedSender;

/// From this length on the journal is replaced, if most of it is not needed any more.
const LONG_BYTES: u64 = 16 << 20;

/// The folder of a job.
pub(crate) struct Folder {
    path: PathBuf,
    tell: UnboundedSender<Msg>,
    /// Files that are appended to.
    appended: RefCell<BTreeMap<String, File>>,
    journal: Rc<JournalFile>,
}

impl Folder {
    pub fn new(path: &Path, tell: UnboundedSender<Msg>) -> Folder {
        let journal = JournalFile { folder: path.to_path_buf(), open: RefCell::default() };
        let (path, appended) = (path.to_path_buf(), RefCell::default());
        Folder { path, tell, appended, journal: Rc::new(journal) }
    }

    /// Whoever appends next opens the file that is there then.
    fn let_go(&self, name: &str) {
        self.appended.borrow_mut().remove(name);
    }

    fn images(&self) -> PathBuf {
        self.path.join(home::IMAGES)
    }
}

impl Files for Folder {
    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>> {
        eyrie_image::read_plain(&self.path.join(name), most)
    }

    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.let_go(name);
        eyrie_image::write_private(&self.path.join(name), bytes)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.let_go(name);
        history::write(&self.path, name, bytes).map_err(io::Error::other)
    }

    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let mut appended = self.appended.borrow_mut();
        if let Some(file) = appended.get_mut(name) {
            return file.write_all(bytes);
        }
        let mut options = File::options();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut file = options.open(self.path.join(name))?;
        file.write_all(bytes)?;
        appended.insert(name.to_string(), file);
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.let_go(name);
        std::fs::remove_file(self.path.join(name))
    }

    fn length(&self, name: &str) -> Option<u64> {
        std::fs::metadata(self.path.join(name)).ok().map(|file| file.len())
    }

    fn modified(&self, name: &str) -> Option<SystemTime> {
        std::fs::metadata(self.path.join(name)).and_then(|file| file.modified()).ok()
    }

    fn create_input(&self) -> io::Result<Box<dyn Kept>> {
        Ok(Box::new(stdin_file::create(&self.path.join(home::STDIN))?))
    }

    fn open_input(&self) -> io::Result<Box<dyn Kept>> {
        Ok(Box::new(stdin_file::open(&self.path.join(home::STDIN))?))
    }

    fn read_saved(&self) -> Result<SavedJob, SavedJobError> {
        SavedJob::read(&self.path)
    }

    fn write_saved(&self, state: &SavedJob) -> io::Result<()> {
        state.write(&self.path)
    }

    fn set_saved_aside(&self) -> io::Result<()> {
        SavedJob::set_aside(&self.path)
    }

    fn take_saved_back(&self, number: Option<u32>) -> io::Result<()> {
        SavedJob::take_back(&self.path, number)
    }

    fn clear_images(&self, stays: &dyn Fn(&OsStr) -> bool) {
        let Ok(list) = std::fs::read_dir(self.images()) else { return };
        for entry in list.flatten().filter(|e| !stays(&e.file_name())) {
            let _ = std::fs::remove_file(entry.path());
        }
    }

    fn sync_images(&self, attempt: u32, needed: Needed) -> io::Result<()> {
        let (images, tell) = (self.images(), self.tell.clone());
        let work = move || {
            let result = sync(&images, &needed).map_err(|e| format!("{}: {e}", images.display()));
            let _ = tell.send(Msg::Archived { attempt, result });
        };
        std::thread::Builder::new().name(String::from("eyrie-sync")).spawn(work).map(drop)
    }

    fn forget_local_images(&self) {
        local::images::forget(&self.path);
    }

    fn journal(&self) -> Rc<dyn JournalStore> {
        Rc::clone(&self.journal) as _
    }
}

/// Names of the files of all that is needed; an error unless all of them are there.
pub(super) fn names(images: &Path, needed: &Needed) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for (rank, file) in needed {
        names.extend(image_files::all(images, *rank, *file).map_err(io::Error::other)?);
    }
    Ok(names)
}

/// Forces all that is needed to the disk. Returns how many bytes it is.
fn sync(images: &Path, needed: &Needed) -> io::Result<u64> {
    let mut bytes = 0;
    for name in names(images, needed)? {
        let file = File::open(images.join(name))?;
        file.sync_all()?;
        bytes += file.metadata()?.len();
    }
    File::open(images)?.sync_all()?;
    Ok(bytes)
}

/// The journal in a job's folder.
struct JournalFile {
    folder: PathBuf,
    open: RefCell<Option<Open>>,
}

/// The open file.
struct Open {
    path: PathBuf,
    file: File,
    bytes: u64,
    /// Its length when it was new.
    base: u64,
}

impl JournalStore for JournalFile {
    fn replace(&self, bytes: Vec<u8>) -> io::Result<u64> {
        let mut open = self.open.borrow_mut();
        *open = None;
        *open = Some(Open::replace(&self.folder, &bytes)?);
        Ok(0)
    }

    fn append(&self, bytes: Vec<u8>) -> io::Result<u64> {
        let mut open = self.open.borrow_mut();
        let open = open.as_mut().ok_or_else(|| io::Error::other("it is not begun"))?;
        open.append(&bytes).map(|()| 0)
    }

    fn is_long(&self) -> bool {
        let open = self.open.borrow();
        open.as_ref().is_some_and(|open| open.bytes > LONG_BYTES.max(4 * open.base))
    }

    fn give_up(&self) {
        if let Some(open) = self.open.take() {
            let _ = std::fs::remove_file(&open.path);
        }
    }
}

impl Open {
    fn replace(folder: &Path, bytes: &[u8]) -> io::Result<Open> {
        let path = folder.join(home::JOURNAL);
        let unborn = folder.join(format!(".{}.part", home::JOURNAL));
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unborn)?;
        let written = file.write_all(bytes).and_then(|()| std::fs::rename(&unborn, &path));
        // What there is of it takes room where there is none.
        written.inspect_err(|_| drop(std::fs::remove_file(&unborn)))?;
        let base = bytes.len() as u64;
        Ok(Open { path, file, bytes: base, base })
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.bytes += bytes.len() as u64;
        Ok(())
    }
}

/// Notes in a job's folder that its journal is in etcd.
pub fn point(folder: &Path, pointer: &Pointer) -> io::Result<()> {
    Open::replace(folder, &journal::pointing(pointer)?).map(drop)
}
