//! `$EYRIE_LOCAL`: where a node keeps its images, logs and copies if that is not to be in
//! `$EYRIE_HOME`, which all nodes see.
//!
//! Each node looks for itself: what was asked for (`--local`, `EYRIE_LOCAL`, a configuration file),
//! else in an allocation of a batch system the folder that this gives to jobs. In the place where
//! the storage would be there is a link that leads to it, `eyrie-UID/NAME.PID/store`.
//!
//! Kept true: all below `eyrie-UID` is the user's alone; a node holds a lock (flock) of its storage
//! as long as its daemon lives. Who removes the link removes what it leads to; what dead nodes have
//! left is removed by the next one that stores here.

pub mod images;

use crate::at_rest;
use crate::folder_lock::{lock_now, lock_of};
use crate::home::LOCK;
use eyrie_image::create_private_dir;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, symlink};
use std::path::{Path, PathBuf};

/// Names the folder.
pub const LOCAL: &str = "EYRIE_LOCAL";
/// The same between commands and daemons of a job. Ranks do not get it.
pub const LOCAL_OF_JOB: &str = "EYRIE__LOCAL";

/// What a link leads to, in a folder of its own.
const STORE: &str = "store";
/// Folders that batch systems give to a job on a node; the second one only in an allocation.
const OF_SLURM: &str = "SLURM_TMPDIR";
const OF_JOBS: &str = "TMPDIR";
/// Variables of allocations.
const ALLOCATIONS: [&str; 5] =
    ["SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "PE_HOSTFILE"];
/// File systems whose files lie in memory: tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// Why nothing can be stored there.
#[derive(Debug, thiserror::Error)]
pub enum LocalError {
    #[error(
        "cannot store anything in {folder} ({why}): {error}; name a folder of this node that is \
         there and that you can write to (--local, EYRIE_LOCAL)",
        folder = .wish.folder.display(),
        why = .wish.source
    )]
    Io { wish: Wish, error: io::Error },
    #[error(
        "{folder} is not yours alone (user {owner}, mode {mode:04o}): nothing is stored there. \
         Look whose it is, then: chmod 700 '{folder}', or name another folder (--local, \
         EYRIE_LOCAL)"
    )]
    Shared { folder: String, owner: u32, mode: u32 },
    #[error(
        "{folder} lies where everybody can replace it: nothing is stored there. Name another \
         folder (--local, EYRIE_LOCAL), or: chmod o-w '{around}'"
    )]
    Around { folder: String, around: String },
}

/// A folder for what a node stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    pub folder: PathBuf,
    /// Who says so.
    pub source: &'static str,
    /// Somebody has asked for it: it is used, or nothing is.
    pub explicit: bool,
}

/// What this process is to store in, if not in the home.
pub fn wanted() -> Option<Wish> {
    wanted_by(&|name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from))
}

fn wanted_by(variable: &dyn Fn(&str) -> Option<PathBuf>) -> Option<Wish> {
    if let Some(folder) = variable(LOCAL_OF_JOB).or_else(|| variable(LOCAL)) {
        let folder = std::path::absolute(&folder).unwrap_or(folder);
        let source = if variable(LOCAL).as_ref() == Some(&folder) { LOCAL } else { "--local" };
        return Some(Wish { folder, source, explicit: true });
    }
    let allocated = ALLOCATIONS.iter().any(|name| variable(name).is_some());
    let given = [(OF_SLURM, true), (OF_JOBS, allocated)];
    given.into_iter().filter(|(_, counts)| *counts).find_map(|(source, _)| {
        let folder = variable(source).filter(|folder| is_of_use(folder))?;
        Some(Wish { folder, source, explicit: false })
    })
}

/// Whether files can be put there, and do not take memory.
fn is_of_use(folder: &Path) -> bool {
    let usable = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok();
    folder.is_absolute() && folder.is_dir() && usable && !is_in_memory(folder)
}

/// Whether what is written to this folder takes memory.
pub fn is_in_memory(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u64)))
}

fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The folder for this user in that folder, made and looked at.
pub fn root(wish: &Wish) -> Result<PathBuf, LocalError> {
    let failed = |error| LocalError::Io { wish: wish.clone(), error };
    let there = |made: io::Result<()>| match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    };
    there(create_private_dir(&wish.folder)).map_err(failed)?;
    let root = wish.folder.join(format!("eyrie-{}", user()));
    there(create_private_dir(&root)).map_err(failed)?;
    let meta = fs::symlink_metadata(&root).map_err(failed)?;
    let (owner, mode) = (meta.uid(), meta.mode() & 0o7777);
    let folder = root.display().to_string();
    if !meta.is_dir() || owner != user() || mode & 0o077 != 0 {
        return Err(LocalError::Shared { folder, owner, mode });
    }
    match eyrie_image::open_to_all(&root) {
        Some((around, _)) => {
            Err(LocalError::Around { folder, around: around.display().to_string() })
        }
        None => Ok(root),
    }
}

/// Refuses what was asked for and cannot be had, before anything begins.
pub fn check() -> Result<Option<PathBuf>, LocalError> {
    wanted().filter(|wish| wish.explicit).map(|wish| root(&wish)).transpose()
}

/// Storage that is elsewhere than in its place. It is in use as long as this lives.
#[derive(Debug)]
pub struct Elsewhere {
    /// Where it really is.
    pub path: PathBuf,
    _lock: File,
}

/// Makes the storage of a node, if it is not to be in its place, and has a link there lead to it.
pub fn make(place: &Path, name: &str, wish: Option<Wish>) -> Result<Option<Elsewhere>, LocalError> {
    let Some(wish) = wish else { return Ok(None) };
    let failed = |error| LocalError::Io { wish: wish.clone(), error };
    let made = root(&wish).and_then(|root| make_in(&root, place, name).map_err(failed));
    match made {
        Ok(made) => Ok(Some(made)),
        Err(error) if wish.explicit => Err(error),
        Err(error) => {
            tracing::warn!("{error}");
            Ok(None)
        }
    }
}

fn make_in(root: &Path, place: &Path, name: &str) -> io::Result<Elsewhere> {
    sweep(root);
    let name = format!("{name}.{}", std::process::id());
    let (folder, unborn) = (root.join(&name), root.join(format!(".{name}")));
    create_private_dir(&unborn)?;
    let born = || {
        let mut options = OpenOptions::new();
        let lock = options.read(true).write(true).create_new(true).mode(0o600);
        let lock = lock.open(unborn.join(LOCK))?;
        if !lock_now(&lock, libc::LOCK_SH) {
            return Err(io::Error::last_os_error());
        }
        create_private_dir(&unborn.join(STORE))?;
        // One with our number was a dead process's.
        if folder.exists() {
            at_rest::remove_dir_all(&folder)?;
        }
        fs::rename(&unborn, &folder)?;
        let path = folder.join(STORE);
        symlink(&path, place)?;
        Ok(Elsewhere { path, _lock: lock })
    };
    born().inspect_err(|_| {
        [&unborn, &folder].into_iter().for_each(|left| drop(fs::remove_dir_all(left)));
    })
}

/// The folder around what a link of ours leads to.
fn around(link: &Path) -> Option<PathBuf> {
    let target = fs::read_link(link).ok()?;
    let around = target.parent()?;
    let root = around.parent()?.file_name()?;
    let ours = root.as_bytes() == format!("eyrie-{}", user()).as_bytes();
    (ours && target.file_name() == Some(OsStr::new(STORE))).then(|| around.to_path_buf())
}

/// Removes what a link leads to, if it is one of ours: not the link itself.
pub fn clear(link: &Path) -> io::Result<()> {
    match around(link) {
        Some(around) if fs::symlink_metadata(&around).is_ok_and(|meta| meta.is_dir()) => {
            at_rest::remove_dir_all(&around)
        }
        _ => Ok(()),
    }
}

/// It stays, and is never taken for that of a dead node.
pub fn keep(link: &Path) {
    around(link).into_iter().for_each(|around| drop(fs::remove_file(around.join(LOCK))));
}

/// Removes what dead nodes have left.
fn sweep(root: &Path) {
    let list = fs::read_dir(root).into_iter().flatten().flatten();
    let born = list.filter(|entry| !entry.file_name().as_bytes().starts_with(b"."));
    for path in born.map(|entry| entry.path()) {
        let dead = lock_of(&path);
        if dead.is_some() {
            let _ = at_rest::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
#[path = "local_tests.rs"]
mod tests;
