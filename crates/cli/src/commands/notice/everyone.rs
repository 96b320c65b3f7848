//! `eyrie notice --all-users`: each user who has daemons of Eyrie on this machine is told, by this
//! command as that user.
//!
//! Kept true: nothing that a user could have written is read, opened or followed as root, but for
//! the names and environments of processes, and of these only `EYRIE_HOME` and `HOME` are passed
//! on, to what runs with that user's rights alone.

use crate::users::own_program_as;
use anyhow::anyhow;
use eyrie_terminal::{FAILED, Failure, USAGE};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What daemons are called: those of nodes and of controllers.
const DAEMONS: [&[u8]; 2] = [b"__member", b"__node"];
/// What of their environment says where a user's jobs are.
const PLACES: [&str; 2] = ["EYRIE_HOME", "HOME"];

/// A user, and where the jobs of some daemons of theirs are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Home {
    user: u32,
    group: u32,
    places: Vec<(&'static str, OsString)>,
}

/// Refuses it to those who could not tell others.
pub fn check() -> Result<(), Failure> {
    // SAFETY: only asks.
    if unsafe { libc::geteuid() } == 0 {
        return Ok(());
    }
    let text = "--all-users is for root: without it the nodes of your own jobs are told";
    Err(Failure::new(USAGE, anyhow!(text)))
}

/// Tells the nodes and controllers of all users. One who cannot be told keeps no other from it.
pub fn tell() -> Result<i32, Failure> {
    let mut any = false;
    for home in homes() {
        let mut command = own_program_as(home.user, home.group);
        command.arg("notice").envs(home.places.iter().map(|(name, value)| (*name, value)));
        match command.status() {
            Ok(status) => any |= status.success(),
            Err(error) => eprintln!("eyrie: user {} cannot be told: {error}", home.user),
        }
    }
    if any { Ok(0) } else { Err(nobody()) }
}

/// Users with daemons here, each with each of their homes once.
fn homes() -> BTreeSet<Home> {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter_map(|process| home_of(&process.path())).collect()
}

/// Of a process, if it is a daemon of Eyrie.
fn home_of(process: &Path) -> Option<Home> {
    let words = std::fs::read(process.join("cmdline")).ok()?;
    if !is_daemon(&words) {
        return None;
    }
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let environment = std::fs::read(process.join("environ")).ok()?;
    let (user, group) = (number(&status, "Uid:")?, number(&status, "Gid:")?);
    Some(Home { user, group, places: places(&environment) })
}

/// The first number of a line of /proc/PID/status: of the user or the group, the real one.
fn number(status: &str, name: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn is_daemon(words: &[u8]) -> bool {
    let mut words = words.split(|b| *b == 0);
    let name = words.next().map(|w| Path::new(OsStr::from_bytes(w)).file_name());
    let eyrie = name.flatten() == Some(OsStr::new("eyrie"));
    eyrie && words.next().is_some_and(|word| DAEMONS.contains(&word))
}

fn places(environment: &[u8]) -> Vec<(&'static str, OsString)> {
    let value = |name: &'static str| {
        let mut all = environment.split(|b| *b == 0);
        let found = all.find_map(|v| v.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        Some((name, OsStr::from_bytes(found).to_os_string()))
    };
    PLACES.into_iter().filter_map(value).collect()
}

pub fn nobody() -> Failure {
    let text = "no node of a job is on this host, nor the controller of one to be saved";
    Failure::new(FAILED, anyhow!(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn daemons_are_known_by_their_words() {
        assert!(is_daemon(b"/opt/eyrie/bin/eyrie\0__member\0"));
        assert!(is_daemon(b"eyrie\0__node\0--id\0x\0"));
        for other in
            [&b"eyrie\0run\0"[..], b"", b"eyrie\0", b"sh\0__node\0", b"/x/eyrie-image\0__node\0"]
        {
            assert!(!is_daemon(other), "{other:?}");
        }
    }

    #[test]
    fn whose_a_process_is_says_the_kernel() {
        let status = "Name:\teyrie\nUid:\t1000\t0\t0\t0\nGid:\t100\t100\t100\t100\n";
        assert_eq!([number(status, "Uid:"), number(status, "Gid:")], [Some(1000), Some(100)]);
        assert_eq!(number("Name:\tx\n", "Uid:"), None);
    }

    #[test]
    fn of_an_environment_only_places_are_passed_on() {
        let all = b"LD_PRELOAD=/x\0HOME=/h\0XEYRIE_HOME=/n\0EYRIE_HOME=/e\0";
        let want = [("EYRIE_HOME", OsString::from("/e")), ("HOME", OsString::from("/h"))];
        assert_eq!(places(all), want);
        assert!(places(b"PATH=/bin\0").is_empty());
    }
}
