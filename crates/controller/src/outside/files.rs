//! What lies in the job's folder, and where the journal is written.

use eyrie_control::ha::Announced;
use eyrie_state::saved_job::{SavedJob, SavedJobError};
use eyrie_state::stdin_file::Kept;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::rc::Rc;
use std::time::SystemTime;

/// Images, each with all of its files: ranks and generations.
pub type Needed = BTreeSet<(u32, u32)>;

/// The job's folder. Names are relative to it, and no other folder is reached.
pub trait Files {
    /// What a file has, unless that is more than `most` bytes.
    fn read(&self, name: &str, most: u64) -> io::Result<Vec<u8>>;
    /// Writes a file anew, where it is.
    fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    /// Puts a file in the place of the one that is there.
    fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    fn append(&self, name: &str, bytes: &[u8]) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// How long it is, if it is there.
    fn length(&self, name: &str) -> Option<u64>;
    /// When it was written last.
    fn modified(&self, name: &str) -> Option<SystemTime>;

    /// Makes the file that standard input is kept in.
    fn create_input(&self) -> io::Result<Box<dyn Kept>>;
    /// Opens the one that is there.
    fn open_input(&self) -> io::Result<Box<dyn Kept>>;

    /// What is saved of the job.
    fn read_saved(&self) -> Result<SavedJob, SavedJobError>;
    fn write_saved(&self, state: &SavedJob) -> io::Result<()>;
    /// Keeps what is saved beside what takes its place next.
    fn set_saved_aside(&self) -> io::Result<()>;
    /// That counts again, if it is of this number; else nothing is saved.
    fn take_saved_back(&self, number: Option<u32>) -> io::Result<()>;

    /// Removes all files of images but those that stay.
    fn clear_images(&self, stays: &dyn Fn(&OsStr) -> bool);
    /// Has images outlive the machine: tells how many bytes they are (`Msg::Archived`).
    fn sync_images(&self, attempt: u32, needed: Needed) -> io::Result<()>;
    /// What a saved job had on local storage is used up.
    fn forget_local_images(&self);

    /// The journal in this folder.
    fn journal(&self) -> Rc<dyn JournalStore>;
}

/// Where the journal is written.
pub trait JournalStore {
    /// Puts one that begins with this in the place of the one that is there. Returns the number
    /// that is told when it is durable; 0: it is.
    fn replace(&self, bytes: Vec<u8>) -> io::Result<u64>;
    /// Appends a record. Returns as `replace` does.
    fn append(&self, bytes: Vec<u8>) -> io::Result<u64>;
    /// Whether it is to be replaced.
    fn is_long(&self) -> bool;
    /// It cannot be written any more, and says less than the truth.
    fn give_up(&self);
}

/// The lead of a job whose state is in etcd. What comes of it is told (`Msg::Ha`).
pub trait Lead {
    fn place(&self) -> String;
    /// The number of the controller that has it.
    fn reign(&self) -> u64;
    /// The journal there.
    fn journal(&self) -> Rc<dyn JournalStore>;
    /// Standard input is needed wherever the next controller is.
    fn keep_input(&self, at: u64, bytes: &[u8]);
    /// Says there where the controller is.
    fn announce(&self, announced: Announced);
    /// Whether nobody else can have the job by now.
    fn holds(&self) -> bool;
    /// The job ends without it.
    fn forsake(&self);
}
