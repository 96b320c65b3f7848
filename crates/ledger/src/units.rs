//! Recovery units: which ranks are checkpointed together and go back together, and where what one
//! unit sends to another is logged.
//!
//! One value for all modes of `--ft`. `logged` has a unit for each rank, `node` and `cluster` have
//! one for the ranks that begin there, `coordinated` has a single one; `routed` is `logged` with
//! the log at routers. Within a unit nothing is logged, as nobody of it goes back without the
//! others. The planner is built from this value (`protocol::recovery::Planner::new`), and so is the
//! segment (`recording`, `unit::bind`). Options and bytes on disk have names of their own for
//! the modes, which are converted where they are read.
//!
//! Kept true: each rank is in one unit, for ever and wherever it is; the number of a unit is that
//! of the rank, node or cluster that it stands for.

use std::collections::BTreeSet;

/// What the ranks of a unit stay on, and what they are lost with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// Each rank is a unit.
    Rank,
    /// One node.
    Node,
    /// The nodes of one cluster.
    Cluster,
    /// All nodes: there is one unit.
    Job,
}

impl Extent {
    /// Whether what one unit sends to another is logged: there may be another.
    pub fn logs(self) -> bool {
        self != Extent::Job
    }
}

/// Where messages from one unit to another are logged.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LogAt {
    /// On the sender's node.
    #[default]
    Sender,
    /// On these nodes, which take no ranks.
    Routers(BTreeSet<u32>),
}

impl LogAt {
    /// These nodes are routers; if there are none, senders log.
    pub fn routers(nodes: impl IntoIterator<Item = u32>) -> LogAt {
        let nodes: BTreeSet<u32> = nodes.into_iter().collect();
        if nodes.is_empty() { LogAt::Sender } else { LogAt::Routers(nodes) }
    }

    /// Whether a node logs for others, and takes no ranks.
    pub fn is_router(&self, node: u32) -> bool {
        matches!(self, LogAt::Routers(nodes) if nodes.contains(&node))
    }
}

/// A partition of the ranks of a job into recovery units.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Units {
    extent: Extent,
    /// By rank.
    of: Vec<u32>,
    log_at: LogAt,
}

impl Units {
    /// The units of ranks that begin on these nodes, which are in these clusters.
    pub fn new(extent: Extent, homes: &[u32], cluster: impl Fn(u32) -> u32) -> Units {
        let of = match extent {
            Extent::Rank => (0..homes.len() as u32).collect(),
            Extent::Node => homes.to_vec(),
            Extent::Cluster => homes.iter().map(|node| cluster(*node)).collect(),
            Extent::Job => vec![0; homes.len()],
        };
        Units { extent, of, log_at: LogAt::Sender }
    }

    /// Any other partition: the number of each rank's unit, whose ranks stay on one node.
    pub fn on_nodes(of: Vec<u32>) -> Units {
        Units { extent: Extent::Node, of, log_at: LogAt::Sender }
    }

    /// The same of ranks that stay in one cluster.
    pub fn in_clusters(of: Vec<u32>) -> Units {
        Units { extent: Extent::Cluster, of, log_at: LogAt::Sender }
    }

    /// The same, with the log there.
    #[must_use]
    pub fn logged_at(self, log_at: LogAt) -> Units {
        Units { log_at, ..self }
    }

    pub fn extent(&self) -> Extent {
        self.extent
    }

    pub fn log_at(&self) -> &LogAt {
        &self.log_at
    }

    /// Whether each rank is a unit.
    pub fn are_ranks(&self) -> bool {
        self.extent == Extent::Rank
    }

    /// Whether all ranks are one unit: nothing is logged, and nobody comes back without all others.
    pub fn are_one(&self) -> bool {
        self.extent == Extent::Job
    }

    /// Whether ranks come back with some others, but not with all.
    pub fn are_groups(&self) -> bool {
        !self.are_ranks() && !self.are_one()
    }

    /// Whether all ranks of a unit are on one node, of which there may be several.
    pub fn stay_on_a_node(&self) -> bool {
        self.extent == Extent::Node
    }

    /// The ranks of a unit in words, where there are several.
    pub fn together(&self) -> Option<&'static str> {
        match self.extent {
            Extent::Rank => None,
            Extent::Node => Some("the ranks that began on one node"),
            Extent::Cluster => Some("the ranks that began in one cluster"),
            Extent::Job => Some("all ranks"),
        }
    }

    /// The unit of a rank.
    pub fn of(&self, rank: usize) -> u32 {
        self.of[rank]
    }

    /// The unit of each rank.
    pub fn by_rank(&self) -> &[u32] {
        &self.of
    }

    /// All units.
    pub fn all(&self) -> BTreeSet<u32> {
        self.of.iter().copied().collect()
    }

    /// The ranks of a unit.
    pub fn ranks_of(&self, unit: u32) -> Vec<usize> {
        match self.extent {
            Extent::Rank => vec![unit as usize],
            _ => (0..self.of.len()).filter(|rank| self.of[*rank] == unit).collect(),
        }
    }

    /// Whether what one rank sends to another stays within a unit, where nothing is logged.
    pub fn is_inner(&self, from: usize, to: usize) -> bool {
        self.of[from] == self.of[to]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOMES: [u32; 5] = [0, 0, 1, 2, 3];

    fn units(extent: Extent) -> Units {
        Units::new(extent, &HOMES, |node| node / 2)
    }

    #[test]
    fn each_mode_is_a_partition_of_the_ranks() {
        assert_eq!(units(Extent::Rank).by_rank(), [0, 1, 2, 3, 4]);
        assert_eq!(units(Extent::Node).by_rank(), HOMES);
        assert_eq!(units(Extent::Cluster).by_rank(), [0, 0, 0, 1, 1]);
        assert_eq!(units(Extent::Job).by_rank(), [0; 5]);
        for extent in [Extent::Rank, Extent::Node, Extent::Cluster, Extent::Job] {
            let units = units(extent);
            let all = units.all();
            let ranks = all.iter().flat_map(|unit| units.ranks_of(*unit));
            assert_eq!(ranks.collect::<BTreeSet<_>>(), (0..5).collect(), "{extent:?}");
            for unit in all {
                assert!(units.ranks_of(unit).iter().all(|rank| units.of(*rank) == unit));
            }
        }
    }

    #[test]
    fn nothing_is_logged_within_a_unit() {
        let logged = |extent| {
            let units = units(extent);
            let pairs = (0..5).flat_map(|from| (0..5).map(move |to| (from, to)));
            pairs.filter(|(from, to)| from != to && !units.is_inner(*from, *to)).count()
        };
        assert_eq!(logged(Extent::Rank), 20);
        assert_eq!(logged(Extent::Node), 18);
        assert_eq!(logged(Extent::Cluster), 12);
        assert_eq!(logged(Extent::Job), 0);
    }

    #[test]
    fn any_other_partition_stays_on_nodes() {
        let units = Units::on_nodes(vec![7, 7, 9, 9, 7]);
        assert_eq!((units.extent(), units.ranks_of(7)), (Extent::Node, vec![0, 1, 4]));
        assert!(!units.are_ranks() && !units.are_one());
    }

    #[test]
    fn without_routers_senders_log() {
        assert_eq!(LogAt::routers([]), LogAt::Sender);
        let units = units(Extent::Rank).logged_at(LogAt::routers([4]));
        assert!(units.log_at().is_router(4) && !units.log_at().is_router(3));
    }
}
