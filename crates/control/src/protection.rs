//! How a job is protected: the modes of `--ft`, as job specifications and journals have them.
//!
//! The bytes are those of `Ft`; what follows from a mode is asked of the recovery units that it
//! means (`eyrie_protocol::units`), but for `verify` and `none`, which have none.

use eyrie_protocol::units::Extent;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Fault-tolerance mode of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ft {
    /// Message logging: a rank that dies is recovered alone.
    Logged,
    /// Nothing is logged; a rank that dies ends the job.
    None,
    /// `eyrie verify`: record, run again under force, compare; so many times, with messages delayed
    /// and hastened by this seed and those that follow it.
    Verify { seed: u32, seeds: u32 },
    /// Nothing is logged; all ranks are checkpointed together, and go back together.
    Coordinated,
    /// The ranks that begin on one node are checkpointed together, and go back together; what they
    /// send to others is logged.
    Node,
    /// The same of those that begin in one cluster. `outside`: copies of their images and outcomes
    /// are in another cluster.
    Cluster { outside: bool },
    /// Nothing is logged; that a rank is lost is reported to the others, which handle it. The job
    /// ends if none of them has for so long; 0: it does not.
    Report { grace_ms: u64 },
}

impl Ft {
    pub fn name(self) -> &'static str {
        match self {
            Ft::Logged => "logged",
            Ft::None => "none",
            Ft::Verify { .. } => "verify",
            Ft::Coordinated => "coordinated",
            Ft::Node => "node",
            Ft::Cluster { .. } => "cluster",
            Ft::Report { .. } => "report",
        }
    }

    /// Of a job whose program handles failures itself: how long it has for that at most, if that is
    /// limited.
    pub fn report(self) -> Option<Option<Duration>> {
        match self {
            Ft::Report { grace_ms } => {
                Some((grace_ms > 0).then(|| Duration::from_millis(grace_ms)))
            }
            _ => None,
        }
    }

    /// Whether a rank that is lost is reported to the others.
    pub fn reports(self) -> bool {
        self.report().is_some()
    }

    /// Whether it is `eyrie verify`.
    pub fn verifies(self) -> bool {
        self.verification().is_some()
    }

    /// Of `eyrie verify`: the seed, and how many there are.
    pub fn verification(self) -> Option<(u32, u32)> {
        match self {
            Ft::Verify { seed, seeds } => Some((seed, seeds)),
            _ => None,
        }
    }

    /// What recovery units are; none: ranks are not protected.
    pub fn extent(self) -> Option<Extent> {
        match self {
            Ft::None | Ft::Verify { .. } | Ft::Report { .. } => None,
            Ft::Logged => Some(Extent::Rank),
            Ft::Node => Some(Extent::Node),
            Ft::Cluster { .. } => Some(Extent::Cluster),
            Ft::Coordinated => Some(Extent::Job),
        }
    }

    /// The mode whose units are the smallest that have all ranks of a node. `clusters`: copies are
    /// outside, where there are several.
    #[must_use]
    pub fn with_whole_nodes(self, many: bool, clusters: Option<bool>) -> Self {
        match (many, clusters) {
            (false, _) => Self::Coordinated,
            (true, Some(outside)) => Self::Cluster { outside },
            (true, None) => Self::Node,
        }
    }

    /// Whether ranks are checkpointed, and brought back when they die.
    pub fn protects(self) -> bool {
        self.extent().is_some()
    }

    /// Whether several ranks are brought to stand for one checkpoint.
    pub fn stands_together(self) -> bool {
        self.extent() > Some(Extent::Rank)
    }

    /// Whether ranks go back with others, and log against the rest.
    pub fn has_units(self) -> bool {
        self.stands_together() && self.logs()
    }

    /// Whether a rank goes back without any other.
    pub fn goes_back_alone(self) -> bool {
        self.extent() == Some(Extent::Rank)
    }

    /// Whether all ranks go back together, and what is between them with them.
    pub fn all_go_back(self) -> bool {
        self.extent() == Some(Extent::Job)
    }

    /// Whether who comes back repeats itself, by what is logged for others that did not go back.
    pub fn logs(self) -> bool {
        self.extent().is_some_and(Extent::logs)
    }

    /// Whether all ranks of a unit are on one node, wherever that is.
    pub fn stays_on_a_node(self) -> bool {
        self.extent() == Some(Extent::Node)
    }

    /// Whether a unit is all that is in one cluster.
    pub fn stays_in_a_cluster(self) -> bool {
        self.extent() == Some(Extent::Cluster)
    }

    /// Whether copies are in another cluster, where there are several; none: that does not matter.
    /// `asked`: what was said of the clusters, where the mode says nothing.
    pub fn copies_outside(self, asked: Option<bool>) -> Option<bool> {
        match self {
            Ft::Cluster { outside } => Some(outside),
            _ => asked.filter(|_| self.goes_back_alone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_differ_by_their_units() {
        let all = [
            Ft::None,
            Ft::Verify { seed: 0, seeds: 1 },
            Ft::Logged,
            Ft::Node,
            Ft::Cluster { outside: true },
            Ft::Coordinated,
        ];
        let [report, ever] = [1500, 0].map(|grace_ms| Ft::Report { grace_ms });
        assert!(report.reports() && !report.protects() && !report.logs());
        assert_eq!(report.report(), Some(Some(Duration::from_millis(1500))));
        assert_eq!(ever.report(), Some(None));
        assert!(all.iter().all(|ft| !ft.reports()));
        assert_eq!(all.map(Ft::protects), [false, false, true, true, true, true]);
        assert_eq!(all.map(Ft::stands_together), [false, false, false, true, true, true]);
        assert_eq!(all.map(Ft::has_units), [false, false, false, true, true, false]);
        assert_eq!(all.map(Ft::goes_back_alone), [false, false, true, false, false, false]);
        assert_eq!(all.map(Ft::all_go_back), [false, false, false, false, false, true]);
        assert_eq!(all.map(Ft::logs), [false, false, true, true, true, false]);
        assert_eq!(all.map(Ft::stays_on_a_node), [false, false, false, true, false, false]);
        assert_eq!(all.map(Ft::stays_in_a_cluster), [false, false, false, false, true, false]);
        let outside = |asked| all.map(|ft| ft.copies_outside(asked));
        assert_eq!(outside(None), [None, None, None, None, Some(true), None]);
        let asked = Some(false);
        assert_eq!(outside(asked), [None, None, asked, None, Some(true), None]);
    }
}
