//! Which processors a rank gets.
//!
//! Kept true: a rank that starts again here keeps what it had; one that comes from another node
//! gets what is least used, and nothing of its own where there are more ranks than cores. Without
//! being asked for ranks are bound only where the cores are the job's own (`allocation`), and
//! let go where others turn out to use them. No two jobs bind to the same core (`core_claims`).

use super::Agent;
use eyrie_control::Bind;
use eyrie_ledger::crowd::{self, Reading};
use eyrie_process::cores::{self, Machine, Set};
use std::io;
use std::time::Duration;

impl Agent {
    /// The processors of a rank that is about to start; none: it is not bound.
    pub(super) fn place(&mut self, rank: u32) -> io::Result<Option<Set>> {
        let slots = self.spec.placement.slots.get(rank as usize).filter(|s| !s.is_empty()).cloned();
        let unbound = self.spec.placement.bind == Bind::None && slots.is_none();
        if unbound || self.rank(rank).binding.processors.is_some() {
            return Ok(self.rank(rank).binding.processors.clone());
        }
        let machine = Machine::here()?;
        let place = match slots {
            // One that lost its node need not find the same cores where it comes to.
            Some(slots) => match machine.named(&slots) {
                Ok(place) => self.claimed(&machine, place)?,
                Err(_) if self.rank(rank).deaths > 0 || self.came(rank) => None,
                Err(why) => return Err(io::Error::other(why)),
            },
            None if self.spec.placement.bind == Bind::Auto
                && !eyrie_process::allocation::is_own(&machine.all()) =>
            {
                None
            }
            None => self.free(&machine, rank)?,
        };
        self.rank(rank).binding.processors.clone_from(&place);
        Ok(place)
    }

    /// What is least used of what no other job's ranks are bound to.
    fn free(&mut self, machine: &Machine, rank: u32) -> io::Result<Option<Set>> {
        let mut others = self.processes.claims.others()?;
        loop {
            let Some(place) = self.least_used(&machine.without(&others), rank) else {
                return Ok(None);
            };
            let claimed = self.claimed(machine, place.clone())?;
            if claimed.is_some() {
                return Ok(claimed);
            }
            // Another job was faster.
            others.extend(place);
        }
    }

    /// The place, if it is or becomes this job's. All that there is leaves a rank as free as
    /// without, and needs no claim.
    fn claimed(&mut self, machine: &Machine, place: Set) -> io::Result<Option<Set>> {
        let free = place == machine.all() || self.processes.claims.take(&place)?;
        Ok(free.then_some(place))
    }

    fn least_used(&self, machine: &Machine, rank: u32) -> Option<Set> {
        let (bind, all) = (self.spec.placement.bind, self.spec.program.size as usize);
        // Nodes on one machine share it, and all know where the others' ranks are.
        if self.spec.placement.hosts.is_none() {
            return machine.places(bind, all).into_iter().nth(rank as usize).flatten();
        }
        let own = self.network.as_ref().map_or(0, |n| n.own.node);
        let homes = self.network.as_ref().map_or(&[][..], |n| &n.homes);
        let here = (0u32..).zip(homes).filter(|(r, home)| **home == own && *r != rank);
        let others: Vec<u32> = here.map(|(other, _)| other).collect();
        let taken =
            others.iter().filter_map(|r| self.ranks[*r as usize].binding.processors.clone());
        machine.choose(bind, others.len() + 1, &taken.collect::<Vec<_>>())
    }

    /// Whether the rank had its home elsewhere at the start.
    fn came(&self, rank: u32) -> bool {
        let own = self.network.as_ref().map(|n| n.own.node);
        let first = self.spec.placement.homes.get(rank as usize).copied();
        own.is_some() && first.is_some() && first != own
    }

    /// Whether ranks here are bound that did not ask for it.
    pub(super) fn has_lent_cores(&self) -> bool {
        matches!(self.spec.placement.bind, Bind::Auto | Bind::Own)
            && (0u32..).zip(&self.ranks).any(|(rank, r)| self.is_lent(rank) && r.proc.is_some())
    }

    fn is_lent(&self, rank: u32) -> bool {
        let named =
            self.spec.placement.slots.get(rank as usize).is_some_and(|slots| !slots.is_empty());
        self.ranks[rank as usize].binding.processors.is_some() && !named
    }

    /// Lets ranks go where they like, which were bound without asking, if others use their cores.
    pub(super) fn let_crowded_go(&mut self) {
        if !self.has_lent_cores() {
            return;
        }
        let at = Duration::from_nanos(eyrie_ledger::clock::now());
        for rank in 0..self.size() {
            let Some(pid) = self.ranks[rank as usize].proc.as_ref().map(|p| p.pid) else {
                continue;
            };
            let Some(waited) = self.is_lent(rank).then(|| waited(pid)).flatten() else { continue };
            let now = Reading { at, forced: 0, waited: Some(waited) };
            if self.rank(rank).binding.pressed.judge(pid, now) {
                self.unbind(rank, pid);
            }
        }
    }

    fn unbind(&mut self, rank: u32, pid: libc::pid_t) {
        let Ok(all) = Machine::here().map(|machine| machine.all()) else { return };
        let Some(was) = self.rank(rank).binding.processors.clone().filter(|was| *was != all) else {
            return;
        };
        tracing::info!("rank {rank}: others use cores {}; it is let go", cores::list(&was));
        let mask = cores::mask(&all);
        for task in std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten() {
            let number = task.file_name().to_str().and_then(|n| n.parse().ok());
            // Threads that have bound themselves stay where they are.
            if let Some(task) = number.filter(|t| cores::allowed(*t).is_ok_and(|set| set == was)) {
                // One that has ended meanwhile needs none.
                let _ = cores::bind(task, &mask);
            }
        }
        self.rank(rank).binding.processors = Some(all);
        let used: Set =
            self.ranks.iter().filter_map(|r| r.binding.processors.clone()).flatten().collect();
        self.processes.claims.keep(&used);
    }
}

/// How long a process's first thread has waited for a core.
fn waited(pid: libc::pid_t) -> Option<Duration> {
    crowd::waited(&std::fs::read(format!("/proc/{pid}/schedstat")).ok()?)
}
