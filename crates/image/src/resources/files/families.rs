//! Whose child a process is, also if it is gone: all descendants of this process that began since,
//! by what the kernel tells of each ([`crate::kernel::forks`]).
//!
//! Kept true: of a process that is not known here, and is gone, nothing is guessed. One that is no
//! descendant of ours is told apart only while nothing of what was told is lost.

use crate::kernel::forks::{Forks, Told};
use crate::kernel::left_processes::children_of;
use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long it is remembered whose a process was that is gone: what it did is told long before.
pub(crate) const REMEMBERED: Duration = Duration::from_secs(10);
/// Processes that are remembered.
const MAX_MEMBERS: usize = 1 << 16;
/// Most parents of a process that are looked at.
const MAX_PARENTS: usize = 256;

/// A descendant of this process.
#[derive(Debug, Clone, Copy)]
struct Member {
    parent: libc::pid_t,
    ended: Option<Instant>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Families {
    forks: Option<Forks>,
    all: HashMap<libc::pid_t, Member>,
    /// When something of what was told was lost, the last time.
    lost: Option<Instant>,
    /// When those that are gone were forgotten, the last time.
    forgot: Option<Instant>,
}

impl Families {
    /// Begins, where the kernel tells.
    pub fn begin() -> Families {
        Families { forks: Forks::begin(), ..Families::default() }
    }

    /// The first process of a program, which may have begun before anything was told.
    pub fn add(&mut self, root: libc::pid_t) {
        if self.forks.is_some() && !self.all.contains_key(&root) {
            let parent = std::process::id() as libc::pid_t;
            self.all.insert(root, Member { parent, ended: None });
            self.add_children(root);
        }
    }

    /// Takes what is told. First processes of programs are not forgotten.
    pub fn take(&mut self, roots: &BTreeMap<libc::pid_t, PathBuf>, now: Instant) {
        let Some(forks) = self.forks.take() else { return };
        let this = std::process::id() as libc::pid_t;
        let mut lost = false;
        forks.take(|told| match told {
            Told::Began { pid, parent } => {
                let is_ours = parent == this || self.all.contains_key(&parent);
                if is_ours && self.all.len() < MAX_MEMBERS {
                    self.all.insert(pid, Member { parent, ended: None });
                } else {
                    lost |= is_ours;
                    // Another one had this number.
                    self.all.remove(&pid);
                }
            }
            Told::Ended { pid } => {
                self.all.get_mut(&pid).into_iter().for_each(|gone| gone.ended = Some(now));
            }
            Told::Lost => lost = true,
        });
        self.forks = Some(forks);
        if lost {
            self.lost = Some(now);
            self.add_children(this);
        }
        if self.forgot.is_none_or(|at| now.duration_since(at) >= REMEMBERED) {
            self.forgot = Some(now);
            self.forget(roots, now);
        }
    }

    /// Descendants of a process that are there, of which nothing was told.
    fn add_children(&mut self, of: libc::pid_t) {
        let mut parents = vec![of];
        while let Some(parent) = parents.pop() {
            for pid in children_of(&parent.to_string()) {
                if self.all.len() < MAX_MEMBERS {
                    self.all.entry(pid).or_insert(Member { parent, ended: None });
                    parents.push(pid);
                }
            }
        }
    }

    /// Those that are gone for long are forgotten; their children are their parents'.
    fn forget(&mut self, roots: &BTreeMap<libc::pid_t, PathBuf>, now: Instant) {
        let is_old = |(pid, member): (&libc::pid_t, &Member)| {
            let old = member.ended.is_some_and(|at| now.duration_since(at) >= REMEMBERED);
            (old && !roots.contains_key(pid)).then_some((*pid, member.parent))
        };
        let old: HashMap<libc::pid_t, libc::pid_t> = self.all.iter().filter_map(is_old).collect();
        self.all.retain(|pid, _| !old.contains_key(pid));
        for member in self.all.values_mut() {
            for _ in 0..MAX_PARENTS {
                let Some(parent) = old.get(&member.parent) else { break };
                member.parent = *parent;
            }
        }
    }

    /// The first process of the program to which a process belongs, if it is known.
    pub fn program_of(
        &self,
        pid: libc::pid_t,
        roots: &BTreeMap<libc::pid_t, PathBuf>,
    ) -> Option<libc::pid_t> {
        self.ancestry(pid).find(|pid| roots.contains_key(pid))
    }

    /// The child of this process that a process comes from, if that one is there still.
    pub fn child_of_ours(&self, pid: libc::pid_t) -> Option<libc::pid_t> {
        let top = self.ancestry(pid).last()?;
        self.all.get(&top).filter(|top| top.ended.is_none()).map(|_| top)
    }

    /// Whether all descendants are known that did something which is told now.
    pub fn are_complete(&self, now: Instant) -> bool {
        let lately = |at: Instant| now.duration_since(at) < REMEMBERED;
        self.forks.is_some() && !self.lost.is_some_and(lately)
    }

    /// A process and those above it, if it is a descendant of ours.
    fn ancestry(&self, pid: libc::pid_t) -> impl Iterator<Item = libc::pid_t> {
        let known = move |pid: &libc::pid_t| self.all.contains_key(pid);
        let above = move |pid: &libc::pid_t| self.all.get(pid).map(|member| member.parent);
        std::iter::successors(Some(pid).filter(known), move |pid| above(pid).filter(known))
            .take(MAX_PARENTS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_of_children_that_are_gone_belong_to_their_program() {
        let mut families = Families::begin();
        if families.forks.is_none() {
            return;
        }
        // Each tells its number.
        let line = "echo $$; sh -c 'echo $$; sh -c \"echo \\$\\$\"; true'; true";
        let shell = Command::new("sh").args(["-c", line]).output().unwrap();
        let said = String::from_utf8(shell.stdout).unwrap();
        let all: Vec<libc::pid_t> = said.lines().map(|line| line.parse().unwrap()).collect();
        let now = Instant::now();
        let roots = BTreeMap::from([(all[0], PathBuf::new())]);
        families.take(&roots, now);
        for pid in &all {
            assert_eq!(families.program_of(*pid, &roots), Some(all[0]), "{families:?}");
            assert_eq!(families.program_of(*pid, &BTreeMap::new()), None);
            assert_eq!(families.child_of_ours(*pid), None, "it is gone");
        }
        assert!(all.len() == 3 && families.are_complete(now));
        // One that is gone for long is passed over.
        families.all.get_mut(&all[2]).unwrap().ended = None;
        families.forget(&roots, now + 2 * REMEMBERED);
        assert_eq!(families.program_of(all[1], &roots), None);
        assert_eq!(families.program_of(all[2], &roots), Some(all[0]));
    }

    #[test]
    fn what_was_lost_is_not_known_for_a_while() {
        let now = Instant::now();
        let families = Families { lost: Some(now), ..Families::begin() };
        assert!(!families.are_complete(now));
        let told = families.forks.is_some();
        assert_eq!(families.are_complete(now + REMEMBERED), told);
    }
}
