//! The place of a cluster's gateway: with which node it is, and when another is started.
//!
//! Pure: the caller says which nodes there are, and carries out what it is told. Kept true: there
//! is one gateway at a time, and none with a node that is lost or has left; a cluster without nodes
//! has none, until one joins; nodes that fail to have it are tried in turn, for ever; one from
//! which other clusters were reached before is preferred, as not every node may have a way there.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// One that ends within this time of its start is started again only after a pause.
const SHORT: Duration = Duration::from_secs(1);
/// First and longest of these pauses.
const PAUSE: [Duration; 2] = [Duration::from_millis(20), Duration::from_secs(2)];
/// So many in a row that ended before they listened are told of, and twice as many, and so on.
const TOLD: u32 = 10;
/// So many short lives in a row are no fault of the node, if it listened each time.
const FORGIVEN: u32 = 2;
/// Stands for the controller's machine among the nodes: it has the gateway of its own cluster where
/// no node of that is left, and nodes of others reach the controller through that.
pub(crate) const HUB: u32 = u32::MAX;
/// A node that leaves is tried after one that stays has failed so often.
const LEAVING: u32 = 2;

/// A node that could have the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub node: u32,
    pub joining: bool,
    pub leaving: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// For the end of a pause.
    Waiting,
    Due,
    With {
        node: u32,
        listens: bool,
    },
    /// It is being ended.
    Ending {
        node: Option<u32>,
        pause: Duration,
    },
    Retired,
}

/// What is to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotOrder {
    Nothing,
    Start(u32),
    /// Its node is not there any more.
    TakeDown(u32),
    /// The cluster has no nodes any more.
    Retire,
}

/// How a gateway came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SlotEnd {
    /// Its process ended after so long, or was not started.
    Died(Duration),
    /// It did not listen in time, or fell silent: whatever it lives on may be at fault.
    Failed,
    /// Its node is lost or has left.
    Moved,
}

pub(crate) struct GatewaySlot {
    phase: Phase,
    /// How often each node failed to have it, in a row.
    failures: BTreeMap<u32, u32>,
    /// Nodes from which other clusters were reached.
    proven: BTreeSet<u32>,
    /// How many ended shortly, and before they listened, in a row.
    short: u32,
    unborn: u32,
}

impl Default for GatewaySlot {
    fn default() -> GatewaySlot {
        let (failures, proven) = (BTreeMap::new(), BTreeSet::new());
        GatewaySlot { phase: Phase::Due, failures, proven, short: 0, unborn: 0 }
    }
}

impl GatewaySlot {
    /// The nodes are these now. `may_start`: nothing stands against it.
    pub fn tend(&mut self, nodes: &[Candidate], may_start: bool) -> SlotOrder {
        match self.phase {
            Phase::With { node, .. } if nodes.iter().all(|n| n.node != node) => {
                return SlotOrder::TakeDown(node);
            }
            Phase::With { .. } | Phase::Ending { .. } => return SlotOrder::Nothing,
            Phase::Waiting | Phase::Due if nodes.is_empty() => {
                *self = GatewaySlot { phase: Phase::Retired, ..GatewaySlot::default() };
                return SlotOrder::Retire;
            }
            Phase::Retired if !nodes.is_empty() => self.phase = Phase::Due,
            Phase::Waiting | Phase::Due | Phase::Retired => {}
        }
        match self.choose(nodes).filter(|_| self.phase == Phase::Due && may_start) {
            Some(node) => {
                self.phase = Phase::With { node, listens: false };
                SlotOrder::Start(node)
            }
            None => SlotOrder::Nothing,
        }
    }

    /// Another cluster's gateway is reached.
    pub fn reaches(&mut self) {
        self.proven.extend(self.node());
    }

    /// Whether another of these nodes is to be tried, as other clusters are not reached: from this
    /// one they never were.
    pub fn may_lack_a_way(&self, nodes: &[Candidate]) -> bool {
        let Phase::With { node, listens: true } = self.phase else { return false };
        !self.proven.contains(&node) && nodes.iter().any(|n| n.node != node)
    }

    /// The one that failed least.
    fn choose(&self, nodes: &[Candidate]) -> Option<u32> {
        let failures = |n: &Candidate| self.failures.get(&n.node).copied().unwrap_or(0);
        let weight = |n: &Candidate| failures(n) + if n.leaving { LEAVING } else { 0 };
        let unproven = |n: &Candidate| !self.proven.contains(&n.node);
        let best = nodes.iter().min_by_key(|n| (weight(n), n.joining, unproven(n), n.node));
        best.map(|n| n.node)
    }

    /// The pause before the next start is over.
    pub fn is_due(&mut self) {
        if self.phase == Phase::Waiting {
            self.phase = Phase::Due;
        }
    }

    pub fn listens(&mut self) {
        self.unborn = 0;
        if let Phase::With { listens, .. } = &mut self.phase {
            *listens = true;
        }
    }

    /// It has come to its end, or is to. Returns the pause before the next one is started.
    pub fn over(&mut self, end: SlotEnd) -> Duration {
        let Phase::With { node, listens } = self.phase else { return PAUSE[0] };
        self.phase = Phase::Waiting;
        if end == SlotEnd::Moved {
            return Duration::ZERO;
        }
        let is_short = matches!(end, SlotEnd::Died(lived) if lived < SHORT);
        let excused = !is_short || self.short < FORGIVEN;
        match listens && matches!(end, SlotEnd::Died(_)) && excused {
            true => drop(self.failures.remove(&node)),
            false => *self.failures.entry(node).or_default() += 1,
        }
        self.short = if is_short { self.short.saturating_add(1) } else { 0 };
        self.unborn = if listens { 0 } else { self.unborn.saturating_add(1) };
        PAUSE[1].min(PAUSE[0] * 2u32.pow(self.short.min(16)))
    }

    /// The same, and its process is to be ended first.
    pub fn ends(&mut self, end: SlotEnd) {
        let (node, pause) = (self.node(), self.over(end));
        self.phase = Phase::Ending { node, pause };
    }

    /// That process is gone. Returns the pause before the next one is started.
    pub fn ended(&mut self) -> Duration {
        let Phase::Ending { pause, .. } = self.phase else { return PAUSE[0] };
        self.phase = Phase::Waiting;
        pause
    }

    /// How many in a row did not come up, when that is to be told.
    pub fn complaint(&self) -> Option<u32> {
        let times = self.unborn / TOLD;
        let is_round = self.unborn.is_multiple_of(TOLD) && times.is_power_of_two();
        is_round.then_some(self.unborn)
    }

    /// The node that it is with.
    pub fn node(&self) -> Option<u32> {
        match self.phase {
            Phase::With { node, .. } => Some(node),
            _ => None,
        }
    }

    /// The node from which it is just being taken away.
    pub fn leaves(&self) -> Option<u32> {
        match self.phase {
            Phase::Ending { node, .. } => node,
            _ => None,
        }
    }

    pub fn is_retired(&self) -> bool {
        self.phase == Phase::Retired
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: SlotEnd = SlotEnd::Died(Duration::from_secs(60));
    const AT_ONCE: SlotEnd = SlotEnd::Died(Duration::ZERO);

    fn staying(nodes: &[u32]) -> Vec<Candidate> {
        nodes.iter().map(|node| Candidate { node: *node, joining: false, leaving: false }).collect()
    }

    /// Goes to the next start, and returns with which node.
    fn start(slot: &mut GatewaySlot, nodes: &[Candidate]) -> u32 {
        slot.is_due();
        match slot.tend(nodes, true) {
            SlotOrder::Start(node) => node,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn it_goes_with_its_node_and_the_next_one_waits_for_its_end() {
        let mut slot = GatewaySlot::default();
        assert_eq!(start(&mut slot, &staying(&[2, 3])), 2);
        slot.listens();
        assert_eq!(slot.tend(&staying(&[2, 3]), true), SlotOrder::Nothing);
        assert_eq!(slot.tend(&staying(&[3]), true), SlotOrder::TakeDown(2));
        slot.ends(SlotEnd::Moved);
        assert_eq!((slot.tend(&staying(&[3]), true), slot.node()), (SlotOrder::Nothing, None));
        assert_eq!(slot.ended(), Duration::ZERO);
        assert_eq!(slot.tend(&staying(&[3]), true), SlotOrder::Nothing);
        slot.is_due();
        assert_eq!(slot.tend(&staying(&[3]), false), SlotOrder::Nothing);
        assert_eq!(start(&mut slot, &staying(&[3])), 3);
        // A node that comes does not change it.
        assert_eq!(slot.tend(&staying(&[2, 3]), true), SlotOrder::Nothing);
    }

    #[test]
    fn a_cluster_without_nodes_has_none_until_one_joins() {
        let mut slot = GatewaySlot::default();
        start(&mut slot, &staying(&[0]));
        assert_eq!(slot.tend(&[], true), SlotOrder::TakeDown(0));
        slot.ends(SlotEnd::Moved);
        assert_eq!(slot.tend(&[], true), SlotOrder::Nothing);
        slot.ended();
        assert_eq!(slot.tend(&[], true), SlotOrder::Retire);
        // The pause was still to end.
        slot.is_due();
        assert_eq!((slot.tend(&[], true), slot.is_retired()), (SlotOrder::Nothing, true));
        assert_eq!(start(&mut slot, &staying(&[5])), 5);
        assert!(!slot.is_retired());
        // One that never had nodes, as after a controller's death.
        assert_eq!(GatewaySlot::default().tend(&[], true), SlotOrder::Retire);
    }

    #[test]
    fn nodes_that_fail_are_tried_in_turn() {
        for end in [AT_ONCE, SlotEnd::Failed, LONG] {
            let mut slot = GatewaySlot::default();
            let tried: Vec<u32> = (0..6)
                .map(|_| {
                    let node = start(&mut slot, &staying(&[1, 4, 6]));
                    slot.over(end);
                    node
                })
                .collect();
            assert_eq!(tried, [1, 4, 6, 1, 4, 6], "{end:?}");
        }
    }

    #[test]
    fn one_that_listened_and_dies_stays_with_its_node_and_one_that_falls_silent_does_not() {
        let mut slot = GatewaySlot::default();
        for _ in 0..3 {
            assert_eq!(start(&mut slot, &staying(&[1, 4])), 1);
            slot.listens();
            assert_eq!(slot.over(LONG), PAUSE[0]);
        }
        start(&mut slot, &staying(&[1, 4]));
        slot.listens();
        slot.ends(SlotEnd::Failed);
        assert_eq!(slot.ended(), PAUSE[0]);
        assert_eq!(start(&mut slot, &staying(&[1, 4])), 4);
    }

    #[test]
    fn short_lives_are_forgiven_at_first() {
        let mut slot = GatewaySlot::default();
        let tried: Vec<u32> = (0..4)
            .map(|_| {
                let node = start(&mut slot, &staying(&[1, 4]));
                slot.listens();
                slot.over(AT_ONCE);
                node
            })
            .collect();
        assert_eq!(tried, [1, 1, 1, 4]);
    }

    #[test]
    fn it_goes_back_to_where_other_clusters_were_reached_from() {
        let (mut slot, nodes) = (GatewaySlot::default(), staying(&[1, 4, 6]));
        assert_eq!(start(&mut slot, &nodes), 1);
        assert!(!slot.may_lack_a_way(&nodes), "it does not listen yet");
        slot.listens();
        assert!(slot.may_lack_a_way(&nodes) && !slot.may_lack_a_way(&staying(&[1])));
        slot.ends(SlotEnd::Failed);
        slot.ended();
        assert_eq!(start(&mut slot, &nodes), 4);
        slot.listens();
        slot.reaches();
        assert!(!slot.may_lack_a_way(&nodes), "a link between is down");
        slot.ends(SlotEnd::Failed);
        slot.ended();
        assert_eq!(start(&mut slot, &nodes), 6);
        slot.listens();
        slot.ends(SlotEnd::Failed);
        slot.ended();
        assert_eq!(start(&mut slot, &nodes), 4, "all have failed once");
    }

    #[test]
    fn who_leaves_or_joins_is_tried_later() {
        let [mut one, mut two] = [1, 4].map(|node| staying(&[node])[0]);
        one.leaving = true;
        let mut slot = GatewaySlot::default();
        let tried: Vec<u32> = (0..5)
            .map(|_| {
                let node = start(&mut slot, &[one, two]);
                slot.over(AT_ONCE);
                node
            })
            .collect();
        assert_eq!(tried, [4, 4, 1, 4, 1]);
        (one.leaving, one.joining, two.joining) = (false, true, false);
        assert_eq!(start(&mut GatewaySlot::default(), &[one, two]), 4);
    }

    #[test]
    fn pauses_grow_and_it_is_told_now_and_then() {
        let mut slot = GatewaySlot::default();
        let mut told = Vec::new();
        let mut pause = Duration::ZERO;
        for _ in 0..100 {
            start(&mut slot, &staying(&[0]));
            let next = slot.over(AT_ONCE);
            assert!(next >= pause && next <= PAUSE[1]);
            pause = next;
            told.extend(slot.complaint());
        }
        assert_eq!((pause, told), (PAUSE[1], vec![10, 20, 40, 80]));
        start(&mut slot, &staying(&[0]));
        slot.listens();
        assert_eq!((slot.over(LONG), slot.complaint()), (PAUSE[0], None));
    }
}
