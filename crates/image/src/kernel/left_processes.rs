//! Processes that a program has left behind: nobody waits for them (daemons), so they have no place
//! in its images. Whoever adopts them finds them; here they are named.

use crate::kernel::pid_namespace::outer_pid;
use crate::kernel::procfs::Status;
use std::fmt;
use std::fs;

/// Most of a command that is told.
const MOST_COMMAND_CHARS: usize = 80;
/// Most processes that are named in a line.
const MOST_NAMED: usize = 4;

/// Them, by numbers and commands. Shown as `process 12 (sleep 600)`, and not all of very many.
#[derive(Debug, Clone, Default)]
pub struct LeftBehind(Vec<(libc::pid_t, String)>);

impl LeftBehind {
    /// These, with the numbers that whoever is told takes them by.
    pub fn of(all: impl IntoIterator<Item = libc::pid_t>) -> LeftBehind {
        LeftBehind(all.into_iter().map(|pid| (outer_pid(pid), command(pid))).collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The command of a process, as far as it fits into a line.
fn command(pid: libc::pid_t) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = line.split(|&b| b == 0).filter(|word| !word.is_empty());
    let words: Vec<_> = words.map(String::from_utf8_lossy).collect();
    let plain = |c: char| if c.is_control() { '?' } else { c };
    words.join(" ").chars().map(plain).take(MOST_COMMAND_CHARS).collect()
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "process" } else { "processes" })?;
        for (i, (pid, command)) in self.0.iter().take(MOST_NAMED).enumerate() {
            write!(f, "{} {pid} ({command})", if i == 0 { "" } else { "," })?;
        }
        match self.0.len().saturating_sub(MOST_NAMED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Children of a process (as it is called in `/proc`), started by any of its threads or adopted.
pub fn children_of(process: &str) -> Vec<libc::pid_t> {
    let mut found = Vec::new();
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return found };
    for task in tasks.flatten() {
        if let Ok(list) = fs::read_to_string(task.path().join("children")) {
            found.extend(list.split_whitespace().filter_map(|p| p.parse::<libc::pid_t>().ok()));
        }
    }
    found
}

/// Whether somebody traces a process, as a checkpoint does with its twins.
pub fn is_traced(pid: libc::pid_t) -> bool {
    Status::read(pid).and_then(|s| s.number("TracerPid", 10)).is_ok_and(|tracer| tracer > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_all_of_very_many_are_named() {
        let named = |n: i32| LeftBehind((1..=n).map(|pid| (pid, format!("c{pid}"))).collect());
        assert_eq!(named(1).to_string(), "process 1 (c1)");
        assert_eq!(named(2).to_string(), "processes 1 (c1), 2 (c2)");
        assert_eq!(named(6).to_string(), "processes 1 (c1), 2 (c2), 3 (c3), 4 (c4) and 2 more");
    }
}
