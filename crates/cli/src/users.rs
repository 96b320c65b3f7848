//! The jobs of other users of this machine, for root: `eyrie ps --all-users`, `drain --all-users`,
//! `notice --all-users`.
//!
//! Kept true: nothing of another user is opened, followed or executed by root: `eyrie` asks that
//! user's jobs with that user's rights and none of root's, and refuses homes that are not that
//! user's own; what it says is read up to a size and shown without what would steer a terminal.
//! Who does not answer keeps nobody else from being asked.

use crate::messages::say;
use crate::show::text::plain;
use anyhow::{Context, anyhow};
use eyrie_state::registry::{self, Home};
use eyrie_terminal::{FAILED, Failure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{CStr, OsString};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread;

/// Most homes of a user that are asked.
const HOMES_OF_USER: usize = 16;
/// Most bytes of an answer, and of a line of it.
pub const ANSWER_BYTES: u64 = 64 << 20;
const LINE_BYTES: u64 = 1 << 20;

/// A user's home, and what that user is called.
#[derive(Debug, Clone)]
pub struct UserHome {
    pub home: Home,
    pub user: String,
}

/// All homes with jobs here, if we are root.
pub fn user_homes(what: &str) -> Result<Vec<UserHome>, Failure> {
    // SAFETY: plain system call.
    if unsafe { libc::geteuid() } != 0 {
        let text = anyhow!("--all-users is for root: jobs of others are theirs");
        return Err(Failure::new(FAILED, text).remedy(format!("sudo eyrie {what} --all-users")));
    }
    let mut by: BTreeMap<u32, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for home in registry::homes() {
        let user = name_of(home.uid).unwrap_or_else(|| home.uid.to_string());
        let count = by.entry(home.uid).or_default();
        *count += 1;
        if *count == HOMES_OF_USER + 1 {
            say(&format!(
                "user {user} has jobs in more than {HOMES_OF_USER} homes: not all are asked"
            ));
        }
        if *count > HOMES_OF_USER {
            continue;
        }
        // One that root cannot look at (NFS) the user's own `eyrie` looks at.
        match std::fs::symlink_metadata(&home.home) {
            Ok(meta) if !meta.is_dir() || meta.uid() != home.uid => {
                let shown = plain(&home.home.to_string_lossy());
                say(&format!("{shown} is not the folder of user {user}, who says so: left out"));
            }
            _ => found.push(UserHome { home, user }),
        }
    }
    Ok(found)
}

/// What the user is called.
fn name_of(uid: u32) -> Option<String> {
    let mut buffer = vec![0 as libc::c_char; 16 << 10];
    // SAFETY: plain data, for which zero is valid; the pointers are of live memory of that length.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        let (to, most) = (buffer.as_mut_ptr(), buffer.len());
        let failed = libc::getpwuid_r(uid, &raw mut entry, to, most, &raw mut found);
        if failed != 0 || found.is_null() {
            return None;
        }
        Some(plain(&CStr::from_ptr(entry.pw_name).to_string_lossy()))
    }
}

/// `eyrie` as a user, who gets nothing of ours: no variables, no descriptors, no groups. The
/// program is the one that runs here, wherever it lies.
pub fn own_program_as(uid: u32, gid: u32) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg0(crate::messages::NAME).env_clear().current_dir("/").stdin(Stdio::null());
    // As root it drops its other groups before it becomes the user.
    command.uid(uid).gid(gid);
    // SAFETY: only async-signal-safe system calls.
    unsafe {
        command.pre_exec(|| {
            eyrie_process::spawn::shut_inherited();
            Ok(())
        });
    }
    command
}

impl UserHome {
    /// Has that user's `eyrie` ask the jobs of this home.
    pub fn ask(&self, words: &[OsString]) -> anyhow::Result<Child> {
        let mut command = own_program_as(self.home.uid, self.home.gid);
        command.args(words).env("EYRIE_HOME", &self.home.home).env("PATH", "/usr/bin:/bin");
        command.envs(std::env::var_os("EYRIE_LOG").map(|level| ("EYRIE_LOG", level)));
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().with_context(|| format!("cannot become user {}", self.user))
    }

    /// What it says on standard error, line by line.
    pub fn pass_on(&self, child: &mut Child) -> Option<thread::JoinHandle<()>> {
        let (err, user) = (child.stderr.take()?, self.user.clone());
        Some(thread::spawn(move || {
            lines(err, |line| {
                let value: Value = serde_json::from_str(line).unwrap_or_default();
                let text = ["error", "note"].iter().find_map(|of| value[of].as_str());
                say(&format!("user {user}: {}", plain(text.unwrap_or(line))));
            });
        }))
    }
}

/// Tells each line, up to a length and a number of bytes in all.
pub fn lines(from: impl Read, mut tell: impl FnMut(&str)) {
    let mut from = BufReader::new(from.take(ANSWER_BYTES));
    let mut line = Vec::new();
    while from.by_ref().take(LINE_BYTES).read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let text = String::from_utf8_lossy(&line);
        tell(text.trim_end());
        line.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_without_end_are_cut_off() {
        let mut seen = Vec::new();
        lines(&b"one\n\ntwo"[..], |line| seen.push(line.to_string()));
        assert_eq!(seen, ["one", "", "two"]);
        let long = vec![b'x'; LINE_BYTES as usize + 7];
        let mut sizes = Vec::new();
        lines(&long[..], |line| sizes.push(line.len()));
        assert_eq!(sizes, [LINE_BYTES as usize, 7]);
    }

    #[test]
    fn the_root_user_has_a_name() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(u32::MAX - 7), None);
    }
}
