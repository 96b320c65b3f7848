//! Who writes to files, where the kernel tells that somebody does and not who: to all but those who
//! may administer the system.
//!
//! Kept true: a file is taken for a program's own only if a process of it was seen having it open,
//! or if it is the user's own, lies where one program alone works, nobody has it open now, and no
//! other process of the user works there. A shell counts if it has the terminal, and not while it
//! waits for what it began. Who writes from elsewhere, and in a moment, is not seen.

use crate::kernel::leases;
use crate::kernel::procfs::{self, Stat};
use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// For how long it is taken for true who works in a folder.
const FRESH: Duration = Duration::from_millis(250);

/// A file that somebody opens and that is looked at in vain is let be for this part of that time,
/// twice as long after each further time, and so often twice as long at most.
const FIRST_PART: u32 = 64;
const MAX_DOUBLINGS: u32 = 9;
/// Files of which that is remembered.
const MAX_PAUSES: usize = 4096;

/// Most parents of a process that are looked at.
const MAX_PARENTS: usize = 64;

/// First processes of programs, and where they work.
type Roots = BTreeMap<libc::pid_t, PathBuf>;

/// Whose a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Whose {
    /// Of the program with this first process.
    Program(libc::pid_t),
    /// Of none.
    Others,
    /// Of this child of ours, which may become a program.
    Early(libc::pid_t),
    /// It is this one, which puts files back and writes images.
    Ours,
    /// It is gone.
    Unknown,
}

/// What was found a moment ago.
#[derive(Debug, Default)]
pub(crate) struct Guess {
    alone: BTreeMap<libc::pid_t, (Instant, bool)>,
    /// Files that nobody had open for writing when somebody opened them: when that was seen, and
    /// how often before, for which they are let be. To look is to open: who watches the same
    /// folder looks, too, and without this they would look at each other for ever.
    pauses: HashMap<PathBuf, (Instant, u32)>,
}

impl Guess {
    /// Whose process has a file open for writing just now, if somebody has; of a file that was only
    /// opened, and not just now in vain.
    pub fn who_opened(&mut self, path: &Path, roots: &Roots) -> Whose {
        let known = self.pauses.get(path).copied();
        if known.is_some_and(is_paused) {
            return Whose::Unknown;
        }
        let whose = self.who_has(path, roots);
        if whose == Whose::Unknown {
            if self.pauses.len() >= MAX_PAUSES {
                self.pauses.retain(|_, in_vain| is_paused(*in_vain));
            }
            let times = known.map_or(0, |(_, times)| (times + 1).min(MAX_DOUBLINGS));
            self.pauses.insert(path.to_path_buf(), (Instant::now(), times));
        }
        whose
    }

    /// Whose process has a file open for writing just now, if somebody has.
    pub fn who_has(&mut self, path: &Path, roots: &Roots) -> Whose {
        self.pauses.remove(path);
        let is_file = fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file());
        let pid = if is_file { leases::of(path) } else { None };
        match pid.filter(|pid| *pid > 0) {
            Some(pid) => whose(pid, roots),
            None => Whose::Unknown,
        }
    }

    /// Programs that may have written to a file, and whether it is likely enough.
    pub fn who_may(&mut self, path: &Path, roots: &Roots) -> (Vec<libc::pid_t>, bool) {
        let works = |(_, cwd): &(&libc::pid_t, &PathBuf)| {
            !cwd.as_os_str().is_empty() && path.starts_with(cwd)
        };
        let by: Vec<libc::pid_t> = roots.iter().filter(works).map(|(root, _)| *root).collect();
        let [root] = by[..] else { return (by, false) };
        // SAFETY: no arguments.
        let user = unsafe { libc::geteuid() };
        let of_others = libc::S_IWOTH;
        // One that has another name by now is looked at under that.
        let own = fs::symlink_metadata(path)
            .ok()
            .is_none_or(|meta| meta.uid() == user && meta.mode() & of_others == 0);
        let surely = own && self.works_alone(root, &roots[&root], roots, user);
        (by, surely)
    }

    fn works_alone(&mut self, root: libc::pid_t, cwd: &Path, roots: &Roots, user: u32) -> bool {
        let now = Instant::now();
        if let Some((at, alone)) = self.alone.get(&root)
            && now.duration_since(*at) < FRESH
        {
            return *alone;
        }
        let all = procfs::processes().unwrap_or_default();
        let alone = !all.into_iter().any(|pid| is_in_the_way(pid, cwd, roots, user));
        self.alone.insert(root, (now, alone));
        alone
    }
}

/// Whether it is too soon to look again at a file that was looked at in vain.
fn is_paused((at, times): (Instant, u32)) -> bool {
    at.elapsed() < FRESH / FIRST_PART * (1 << times)
}

/// Whether another process of the user works in a folder, or below.
fn is_in_the_way(pid: libc::pid_t, folder: &Path, roots: &Roots, user: u32) -> bool {
    let of_user = fs::metadata(format!("/proc/{pid}")).is_ok_and(|meta| meta.uid() == user);
    let works =
        || fs::read_link(format!("/proc/{pid}/cwd")).is_ok_and(|cwd| cwd.starts_with(folder));
    if !of_user || !works() || whose(pid, roots) != Whose::Others {
        return false;
    }
    !is_above_us(pid) || has_terminal(pid)
}

/// Whose a process is.
pub(crate) fn whose(pid: libc::pid_t, roots: &BTreeMap<libc::pid_t, PathBuf>) -> Whose {
    let (mut at, this) = (pid, std::process::id() as libc::pid_t);
    for _ in 0..MAX_PARENTS {
        if roots.contains_key(&at) {
            return Whose::Program(at);
        }
        if at <= 1 {
            return Whose::Others;
        }
        let Ok(stat) = Stat::read(at) else { return Whose::Unknown };
        let parent = stat.field(4) as libc::pid_t;
        match (at == this, parent == this) {
            (true, _) => return Whose::Ours,
            // A twin, what is just being restored, or a program that is not followed yet.
            (_, true) if !roots.contains_key(&parent) => return Whose::Early(at),
            _ => at = parent,
        }
    }
    Whose::Others
}

fn is_above_us(pid: libc::pid_t) -> bool {
    let mut at = std::process::id() as libc::pid_t;
    while at > 1 && at != pid {
        let Ok(stat) = Stat::read(at) else { return false };
        at = stat.field(4) as libc::pid_t;
    }
    at == pid
}

/// Whether its group is the one that the terminal is given to.
fn has_terminal(pid: libc::pid_t) -> bool {
    Stat::read(pid).is_ok_and(|stat| stat.field(5) == stat.field(8))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_looked_at_in_vain_is_let_be_until_somebody_writes() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let (mut guess, roots) = (Guess::default(), Roots::new());
        let written = fs::File::create(&path).unwrap();
        assert_eq!(guess.who_opened(&path, &roots), Whose::Ours);
        assert!(guess.pauses.is_empty(), "it was not in vain");
        drop(written);
        assert_eq!(guess.who_opened(&path, &roots), Whose::Unknown);
        assert_eq!(guess.pauses[&path].1, 0);
        // For as long as no test takes.
        guess.pauses.insert(path.clone(), (Instant::now(), 20));
        let written = fs::File::create(&path).unwrap();
        assert_eq!(guess.who_opened(&path, &roots), Whose::Unknown);
        assert_eq!(guess.who_has(&path, &roots), Whose::Ours);
        assert_eq!(guess.who_opened(&path, &roots), Whose::Ours);
        drop(written);
    }
}
