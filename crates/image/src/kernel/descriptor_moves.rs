//! Which descriptor goes where in a process that is being restored, and in which order.
//!
//! It is born with the descriptors of the one who restores it, under their numbers. Each goes
//! straight to the numbers that it has in the image; what stands there meanwhile goes first. So a
//! process takes hardly more descriptors on the way than it has in the end, and a limit that was
//! enough for it before is enough again.

use crate::kernel::script::Plan;
use std::collections::{BTreeMap, BTreeSet, HashMap};

const CLOSE_ON_EXEC: u64 = libc::O_CLOEXEC as u64;

/// What a descriptor is to be: a copy of one that is there, and whether a program that the process
/// executes has it, too.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub source: u64,
    pub cloexec: bool,
}

/// The numbers of a process that are in use while its plan is carried out.
pub struct Table {
    open: BTreeSet<u64>,
    /// Numbers that the image uses.
    taken: BTreeSet<u64>,
    /// All below are in use, for good or for a while.
    used_below: u64,
}

impl Table {
    /// Of a process that has `open` and is to have `taken`; all others are closed.
    pub fn new(plan: &mut Plan, open: BTreeSet<u64>, taken: BTreeSet<u64>) -> Table {
        close_others(plan, &open);
        Table { open, taken, used_below: 0 }
    }

    /// A number for something that is needed for a while.
    fn spare(&mut self) -> u64 {
        let used = |n: &u64| self.open.contains(n) || self.taken.contains(n);
        self.used_below = (self.used_below..).find(|n| !used(n)).unwrap_or(0);
        self.used_below
    }

    /// Copies a descriptor. What had the number before is closed.
    pub fn copy(&mut self, plan: &mut Plan, from: u64, to: u64, cloexec: bool) {
        let flags = if cloexec { CLOSE_ON_EXEC } else { 0 };
        plan.exact(place(to), libc::SYS_dup3, &[from, to, flags], to);
        self.open.insert(to);
    }

    /// The same to a number that is free.
    pub fn copy_aside(&mut self, plan: &mut Plan, from: u64) -> u64 {
        let to = self.spare();
        self.copy(plan, from, to, true);
        to
    }

    /// Closes one.
    pub fn close(&mut self, plan: &mut Plan, number: u64) {
        plan.step("close a spare descriptor", libc::SYS_close, &[number]);
        self.open.remove(&number);
        self.used_below = self.used_below.min(number);
    }

    /// Whether a number is in use.
    pub fn has(&self, number: u64) -> bool {
        self.open.contains(&number)
    }

    /// Keeps the descriptors `kept`, which are needed later, from being in the way. Returns where
    /// those are now that had to go elsewhere.
    pub fn make_way(
        &mut self,
        plan: &mut Plan,
        kept: &BTreeSet<u64>,
        wanted: &BTreeMap<u64, Wanted>,
    ) -> HashMap<u64, u64> {
        let stays = |n: &u64| wanted.get(n).is_some_and(|w| w.source == *n);
        let in_the_way = kept.iter().filter(|n| self.taken.contains(n) && !stays(n));
        let in_the_way: Vec<u64> = in_the_way.copied().collect();
        in_the_way.into_iter().map(|n| (n, self.copy_aside(plan, n))).collect()
    }

    /// Puts each descriptor where it is wanted.
    pub fn put(&mut self, plan: &mut Plan, wanted: &BTreeMap<u64, Wanted>) {
        let mut left = wanted.clone();
        // How often what a number stands for is still to be copied elsewhere.
        let mut uses: HashMap<u64, usize> = HashMap::new();
        for w in left.iter().filter(|(to, w)| **to != w.source).map(|(_, w)| w) {
            *uses.entry(w.source).or_default() += 1;
        }
        let is_free = |uses: &HashMap<u64, usize>, n: u64| uses.get(&n).is_none_or(|&n| n == 0);
        let mut asides = BTreeSet::new();
        let mut ready: Vec<u64> = left.keys().copied().filter(|&to| is_free(&uses, to)).collect();
        while !left.is_empty() {
            let Some(to) = ready.pop() else {
                // Each is waited for by another: one of them makes way.
                let Some(&first) = left.keys().next() else { break };
                let aside = self.copy_aside(plan, first);
                left.values_mut().filter(|w| w.source == first).for_each(|w| w.source = aside);
                uses.insert(aside, uses.get(&first).copied().unwrap_or(0));
                uses.insert(first, 0);
                asides.insert(aside);
                ready.push(first);
                continue;
            };
            let Some(w) = left.remove(&to) else { continue };
            if w.source == to {
                let flag = if w.cloexec { libc::FD_CLOEXEC as u64 } else { 0 };
                plan.step(place(to), libc::SYS_fcntl, &[to, libc::F_SETFD as u64, flag]);
                continue;
            }
            self.copy(plan, w.source, to, w.cloexec);
            let left_of = uses.entry(w.source).or_default();
            *left_of = left_of.saturating_sub(1);
            if *left_of > 0 {
                continue;
            }
            if asides.remove(&w.source) {
                self.close(plan, w.source);
            } else if left.contains_key(&w.source) {
                ready.push(w.source);
            }
        }
    }

    /// Closes all that the image does not have.
    pub fn finish(plan: &mut Plan, taken: &BTreeSet<u64>) {
        close_others(plan, taken);
    }
}

fn place(to: u64) -> String {
    format!("put back file descriptor {to}")
}

/// Closes all descriptors but these.
fn close_others(plan: &mut Plan, kept: &BTreeSet<u64>) {
    let mut from = 0;
    for &number in kept {
        if from < number {
            plan.step("close descriptors", libc::SYS_close_range, &[from, number - 1, 0]);
        }
        from = number + 1;
    }
    plan.step("close descriptors", libc::SYS_close_range, &[from, !0 >> 32, 0]);
}

#[cfg(test)]
#[path = "descriptor_moves_tests.rs"]
mod tests;
