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
/// those of one cluster, or, with `outside`, those of different ones; among these, those that do
/// not fail together; otherwise as in the ring.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Neighbours {
    /// How many clusters; 0: there are none to tell apart.
    count: u32,
    /// The cluster of each node; later ones are in each in turn.
    of: Vec<u32>,
    outside: bool,
    /// What each node fails together with; later ones are in one of their own. Empty: that is not
    /// known.
    domains: Vec<u32>,
}

impl Neighbours {
    pub fn new(count: u32, of: Vec<u32>, outside: bool) -> Self {
        Neighbours { count, of, outside, domains: Vec::new() }
    }

    /// The same where it is known which nodes fail together.
    #[must_use]
    pub fn with_domains(self, domains: Vec<u32>) -> Self {
        Neighbours { domains, ..self }
    }

    /// Where nodes are: some may have joined since.
    pub fn place(&mut self, of: Vec<u32>) {
        self.of = of;
    }

    /// What each node fails together with: some may have joined since.
    pub fn set_domains(&mut self, domains: Vec<u32>) {
        self.domains = domains;
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

    fn is_near(&self, one: u32, other: u32) -> bool {
        self.are_known() && self.cluster(one) == self.cluster(other)
    }

    /// Whether two nodes fail together.
    fn fall_together(&self, one: u32, other: u32) -> bool {
        let domain = |node: u32| self.domains.get(node as usize);
        !self.domains.is_empty() && domain(one) == domain(other)
    }

    /// The members after `own`, nearest first, without `own`.
    pub fn after(&self, own: u32, members: &[Member]) -> Vec<Member> {
        let mut ring = ring_after(own, members);
        // Those right before `own` that would have the same ones first.
        let beside = |m: &&Member| self.fall_together(m.node, own);
        let before = ring.iter().rev().take_while(beside).count();
        let unlike = |m: &Member| {
            let elsewhere = self.are_known() && self.is_near(m.node, own) == self.outside;
            (elsewhere, self.fall_together(m.node, own))
        };
        ring.sort_by_key(unlike);
        // Not all of a domain have theirs on the same node.
        let first = ring.first().map(unlike);
        let best = ring.iter().take_while(|m| Some(unlike(m)) == first).count();
        if let Some(turn) = before.checked_rem(best) {
            ring[..best].rotate_left(turn);
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
        let mut placed = Neighbours::new(2, vec![0, 0, 1, 1], false);
        placed.place(vec![0, 0, 1, 1, 1]);
        let nodes: Vec<u32> = placed.after(1, &members).iter().map(|m| m.node).collect();
        assert_eq!(nodes, [0, 2, 3, 4, 5], "4 has joined the second");
    }

    #[test]
    fn copies_leave_what_fails_together() {
        let first = |neighbours: &Neighbours, nodes: u32| {
            let members: Vec<Member> = (0..nodes).map(|node| Member { node, epoch: 1 }).collect();
            (0..nodes).map(|own| neighbours.after(own, &members)[0].node).collect::<Vec<_>>()
        };
        let racks = |of: &[u32]| Neighbours::default().with_domains(of.to_vec());
        assert_eq!(first(&racks(&[0, 0, 1, 1]), 4), [2, 3, 0, 1], "each has one");
        assert_eq!(first(&racks(&[0, 0, 0, 1, 1, 1, 2, 2, 2]), 9), [3, 4, 5, 6, 7, 8, 0, 1, 2]);
        assert_eq!(first(&racks(&[0, 1, 0, 1]), 4), [1, 2, 3, 0], "as in the ring");
        assert_eq!(first(&racks(&[0, 0, 0]), 3), [1, 2, 0], "there is but one");
        assert_eq!(first(&racks(&[0, 0]), 4), [2, 3, 0, 1], "later ones are one");
        let mut grown = racks(&[0, 0, 1]);
        assert_eq!(first(&grown, 4)[2], 3, "nothing is known of 3");
        grown.set_domains(vec![0, 0, 1, 1]);
        assert_eq!(first(&grown, 4), [2, 3, 0, 1], "3 has joined the second");
        // Of each cluster the first and the third node are on one switch.
        let clusters = |outside| Neighbours::new(2, vec![0, 0, 0, 1, 1, 1], outside);
        let switches = vec![0, 1, 0, 2, 3, 2];
        let inside = clusters(false).with_domains(switches.clone());
        assert_eq!(first(&inside, 6), [1, 2, 1, 4, 5, 4]);
        assert_eq!(first(&clusters(true).with_domains(switches), 6), [3, 3, 3, 0, 0, 0]);
        let two = clusters(true).with_domains(vec![0, 0, 0, 1, 1, 1]);
        assert_eq!(first(&two, 6), [3, 4, 5, 0, 1, 2]);
    }
}
