//! `eyrie notice`: this machine is about to end, which the nodes on it are told.
//!
//! Kept true: only keepers of this user's jobs are told, each by its number and the time of its
//! start, so never another process that has the number by now.

use crate::node_storage;
use eyrie_process::reap;
use eyrie_process::spawn;
use eyrie_state::home::HomeError;
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Where a keeper says who it is, in the folder of its node.
const KEEPER: &str = "keeper";

/// Says who keeps the node in this folder.
pub fn sign(folder: &Path) -> std::io::Result<()> {
    let pid = std::process::id();
    let born = reap::born(pid as libc::pid_t).unwrap_or(0);
    eyrie_image::write_private(&folder.join(KEEPER), format!("{pid} {born}\n").as_bytes())
}

/// Tells all keepers of this machine; returns the names of their nodes.
pub fn tell(home: &Path) -> Result<Vec<OsString>, HomeError> {
    let nodes = node_storage::folder(home);
    let list = match std::fs::read_dir(&nodes) {
        Ok(list) => list,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(HomeError::Io(nodes, error)),
    };
    let entries = list.flatten();
    let told = entries.filter(|entry| tell_one(&entry.path()).is_some());
    Ok(told.map(|entry| entry.file_name()).collect())
}

fn tell_one(folder: &Path) -> Option<()> {
    let text = std::fs::read_to_string(folder.join(KEEPER)).ok()?;
    let (pid, born) = text.trim().split_once(' ')?;
    let (pid, born): (libc::pid_t, u64) = (pid.parse().ok()?, born.parse().ok()?);
    let pidfd = spawn::pidfd(pid).ok()?;
    if reap::born(pid) != Some(born) {
        return None;
    }
    signal(&pidfd).then_some(())
}

/// Tells a keeper or a daemon; false: it has ended.
pub fn signal(pidfd: &OwnedFd) -> bool {
    let none = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: plain system call on a descriptor that is ours.
    let sent = unsafe {
        libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), libc::SIGUSR1, none, 0)
    };
    sent == 0
}
