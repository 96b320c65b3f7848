//! Which nodes make up a job, in which incarnation, who stands next to whom, and who may speak.
//!
//! Pure. Kept true: an epoch is never given twice in a job, so a member that was declared dead is
//! never taken for its successor under the same number; who was a member and is none any more never
//! is one again.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A node in one of its incarnations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Member {
    pub node: u32,
    /// Given by the controller at each start of a node, growing over the whole job.
    pub epoch: u64,
}

impl std::fmt::Display for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "node {} (epoch {})", self.node, self.epoch)
    }
}

/// The members after `own` in the ring of node numbers, nearest first, without `own`.
pub fn ring_after(own: u32, members: &[Member]) -> Vec<Member> {
    let mut others: Vec<Member> = members.iter().copied().filter(|m| m.node != own).collect();
    others.sort_by_key(|m| (m.node < own, m.node));
    others
}

/// Which nodes stand next to each other where copies are made, if nodes are in several clusters:
/// those of one cluster, or, with `outside`, those of different ones; otherwise as in the ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Neighbours {
    /// How many clusters; 0: there are none to tell apart.
    count: u32,
    /// The cluster of each node; later ones are in each in turn.
    of: Vec<u32>,
    outside: bool,
}

impl Neighbours {
    pub fn new(count: u32, of: Vec<u32>, outside: bool) -> Self {
        Neighbours { count, of, outside }
    }

    /// Whether there are clusters.
    pub fn are_known(&self) -> bool {
        self.count > 0
    }

    /// Whether copies go to another cluster.
    pub fn are_outside(&self) -> bool {
        self.outside
    }

    pub fn cluster(&self, node: u32) -> u32 {
        let late = || node.checked_rem(self.count).unwrap_or(0);
        self.of.get(node as usize).copied().unwrap_or_else(late)
    }

    /// The members after `own`, nearest first, without `own`.
    pub fn after(&self, own: u32, members: &[Member]) -> Vec<Member> {
        let mut ring = ring_after(own, members);
        if self.are_known() {
            let far = |m: &Member| self.cluster(m.node) != self.cluster(own);
            ring.sort_by_key(|m| far(m) != self.outside);
        }
        ring
    }
}

/// Why a caller is not listened to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// It wants an earlier incarnation of this node.
    Misled,
    /// It was declared dead.
    Fenced,
    /// It knows more than this node does yet, and is to come again.
    Early,
}

/// The members as one of them was told.
#[derive(Debug, Clone, Default)]
pub struct Roster {
    members: Vec<Member>,
    /// For each node that was ever a member, the epoch up to which it is none any more.
    fences: BTreeMap<u32, u64>,
}

impl Roster {
    /// The member that is node `node` now.
    pub fn member(&self, node: u32) -> Option<Member> {
        self.members.iter().copied().find(|m| m.node == node)
    }

    /// Exchanges the members. Returns those that were members and are none any more.
    pub fn exchange(&mut self, all: impl IntoIterator<Item = Member>) -> Vec<Member> {
        let all: Vec<Member> = all.into_iter().collect();
        let before = std::mem::replace(&mut self.members, all);
        let gone: Vec<Member> = before.into_iter().filter(|m| !self.members.contains(m)).collect();
        for member in &gone {
            let fence = self.fences.entry(member.node).or_default();
            *fence = (*fence).max(member.epoch);
        }
        gone
    }

    /// Whether `caller`, which wants to speak to `to`, is listened to by `own`.
    ///
    /// # Errors
    /// When it is not.
    pub fn admit(&self, own: Member, to: Member, caller: Member) -> Result<(), Refusal> {
        if to != own {
            return Err(Refusal::Misled);
        }
        match self.member(caller.node) {
            Some(known) if known == caller => Ok(()),
            Some(known) if known.epoch > caller.epoch => Err(Refusal::Fenced),
            None if self.fences.get(&caller.node).is_some_and(|f| caller.epoch <= *f) => {
                Err(Refusal::Fenced)
            }
            _ => Err(Refusal::Early),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_declared_dead_is_not_listened_to_again() {
        let member = |node, epoch| Member { node, epoch };
        let (own, mut roster) = (member(0, 1), Roster::default());
        let asks = |roster: &Roster, caller| roster.admit(own, own, caller);
        assert_eq!(asks(&roster, member(1, 2)), Err(Refusal::Early));
        assert_eq!(roster.exchange([own, member(1, 2)]), []);
        assert_eq!(asks(&roster, member(1, 2)), Ok(()));
        assert_eq!(roster.admit(own, member(0, 0), member(1, 2)), Err(Refusal::Misled));
        assert_eq!(roster.exchange([own]), [member(1, 2)]);
        assert_eq!(asks(&roster, member(1, 2)), Err(Refusal::Fenced));
        assert_eq!(asks(&roster, member(1, 5)), Err(Refusal::Early), "its successor");
        assert_eq!(roster.exchange([own, member(1, 5)]), []);
        assert_eq!(asks(&roster, member(1, 2)), Err(Refusal::Fenced));
        assert_eq!(roster.member(1), Some(member(1, 5)));
    }

    #[test]
    fn the_ring_goes_on_at_its_beginning() {
        let members: Vec<Member> = [3, 0, 2, 1].map(|node| Member { node, epoch: 7 }).into();
        let after = |own| ring_after(own, &members).iter().map(|m| m.node).collect::<Vec<_>>();
        assert_eq!(after(0), [1, 2, 3]);
        assert_eq!(after(2), [3, 0, 1]);
        assert_eq!(after(9), [0, 1, 2, 3], "one that is no member itself");
    }

    #[test]
    fn copies_stay_in_a_cluster_or_leave_it() {
        let members: Vec<Member> = (0..6).map(|node| Member { node, epoch: 1 }).collect();
        let after = |outside, own| {
            let neighbours = Neighbours::new(2, vec![0, 0, 1, 1], outside);
            neighbours.after(own, &members).iter().map(|m| m.node).collect::<Vec<_>>()
        };
        assert_eq!(after(false, 1), [4, 0, 2, 3, 5], "4 and 5 are in clusters in turn");
        assert_eq!(after(true, 1), [2, 3, 5, 4, 0]);
        assert_eq!(Neighbours::default().after(1, &members), ring_after(1, &members));
    }
}
