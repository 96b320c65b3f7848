//! A node's part of the vault that keeps the images of a job's ranks.
//!
//! Kept true: all that changes it is done by one thread (`worker`), in the order in which it was
//! told; what is read is read beside that, and held against checksums by whoever reads.

mod intake;
mod parity_links;
mod probe;
mod rate_limit;
mod remote;
mod scrub;
mod work;
mod worker;

pub use rate_limit::Pace;
pub use remote::Remote;
pub use work::{Setup, Work};

use eyrie_vault::files;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::mpsc;

/// The way to a node's part of the vault.
#[derive(Clone)]
pub struct VaultHandle {
    folder: PathBuf,
    work: mpsc::Sender<Work>,
}

impl VaultHandle {
    /// Starts the thread that does what is told.
    pub fn open(setup: Setup) -> io::Result<VaultHandle> {
        let (work, told) = mpsc::channel();
        let folder = setup.folder.clone();
        let tell = work.clone();
        let run = move || worker::run(setup, tell, &told);
        std::thread::Builder::new().name("eyrie-vault".into()).spawn(run)?;
        Ok(VaultHandle { folder, work })
    }

    /// It ends with the process: nobody waits for it.
    pub fn tell(&self, work: Work) {
        let _ = self.work.send(work);
    }

    /// Bytes of payload or parity, as many as there are.
    pub fn range(&self, name: &str, at: u64, bytes: u32) -> io::Result<Vec<u8>> {
        let file = eyrie_image::open_plain(&self.file(name)?)?;
        let there = file.metadata()?.len().saturating_sub(at).min(u64::from(bytes));
        let mut found = vec![0; there as usize];
        file.read_exact_at(&mut found, at)?;
        Ok(found)
    }

    /// `None`: it is not there.
    pub fn length(&self, name: &str) -> io::Result<Option<u64>> {
        match std::fs::metadata(self.file(name)?) {
            Ok(meta) => Ok(Some(meta.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn file(&self, name: &str) -> io::Result<PathBuf> {
        match files::parse(name) {
            Some((_, "data" | "parity")) => Ok(self.folder.join(name)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "no file of the vault")),
        }
    }
}
