//! Which processors a rank gets.
//!
//! Kept true: a rank that starts again here keeps what it had; one that comes from another node
//! gets what is least used, and nothing of its own where there are more ranks than cores.

use super::Agent;
use crate::cores::{Machine, Set};
use eyrie_control::Bind;
use std::io;

impl Agent {
    /// The processors of a rank that is about to start; none: it is not bound.
    pub(super) fn place(&mut self, rank: u32) -> io::Result<Option<Set>> {
        let slots = self.spec.slots.get(rank as usize).filter(|s| !s.is_empty()).cloned();
        let unbound = self.spec.bind == Bind::None && slots.is_none();
        if unbound || self.rank(rank).bound.is_some() {
            return Ok(self.rank(rank).bound.clone());
        }
        let machine = Machine::here()?;
        let place = match slots {
            // One that lost its node need not find the same cores where it comes to.
            Some(slots) => match machine.named(&slots) {
                Ok(place) => Some(place),
                Err(_) if self.rank(rank).deaths > 0 || self.came(rank) => None,
                Err(why) => return Err(io::Error::other(why)),
            },
            None => self.least_used(&machine, rank),
        };
        self.rank(rank).bound.clone_from(&place);
        Ok(place)
    }

    fn least_used(&self, machine: &Machine, rank: u32) -> Option<Set> {
        let (bind, all) = (self.spec.bind, self.spec.size as usize);
        // Nodes on one machine share it, and all know where the others' ranks are.
        if self.spec.hosts.is_none() {
            return machine.places(bind, all).into_iter().nth(rank as usize).flatten();
        }
        let own = self.network.as_ref().map_or(0, |n| n.own.node);
        let homes = self.network.as_ref().map_or(&[][..], |n| &n.homes);
        let here = (0u32..).zip(homes).filter(|(r, home)| **home == own && *r != rank);
        let others: Vec<u32> = here.map(|(other, _)| other).collect();
        let taken = others.iter().filter_map(|r| self.ranks[*r as usize].bound.clone());
        machine.choose(bind, others.len() + 1, &taken.collect::<Vec<_>>())
    }

    /// Whether the rank had its home elsewhere at the start.
    fn came(&self, rank: u32) -> bool {
        let own = self.network.as_ref().map(|n| n.own.node);
        let first = self.spec.homes.get(rank as usize).copied();
        own.is_some() && first.is_some() && first != own
    }
}
