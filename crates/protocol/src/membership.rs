//! Which nodes make up a job, in which incarnation, and who stands next to whom.
//!
//! Pure. Kept true: an epoch is never given twice in a job, so a member that was declared dead is
//! never taken for its successor under the same number.

use serde::{Deserialize, Serialize};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ring_goes_on_at_its_beginning() {
        let members: Vec<Member> = [3, 0, 2, 1].map(|node| Member { node, epoch: 7 }).into();
        let after = |own| ring_after(own, &members).iter().map(|m| m.node).collect::<Vec<_>>();
        assert_eq!(after(0), [1, 2, 3]);
        assert_eq!(after(2), [3, 0, 1]);
        assert_eq!(after(9), [0, 1, 2, 3], "one that is no member itself");
    }
}
