//! What is checked of ranks that stand with their last image on a node that they leave: none does
//! when no node leaves, unless all stand to go on as larger units.

use crate::real::host::Simulation;
use crate::types::Time;
use eyrie_controller::memory::driven::Controller;
use std::collections::BTreeMap;

/// After so long every node has heard that its ranks go on.
const HEARD: Time = 3_000;

impl Simulation {
    pub(super) fn check_held(&mut self) {
        let planner = &self.world.controller.planner;
        let busy = self.controller.is_none() || self.world.controller.is_busy;
        let stand = self.controller.as_ref().is_some_and(Controller::stands_for_units);
        if busy || stand || self.ended() || planner.leaving().next().is_some() {
            return self.held.clear();
        }
        let now = self.world.now;
        let mut held = BTreeMap::new();
        for member in planner.members().iter().filter(|m| !self.is_away(**m)) {
            let procs = self.world.nodes.get(member).into_iter().flat_map(|n| &n.procs);
            for (rank, _) in procs.filter(|(_, proc)| proc.held && !proc.done) {
                let key = (*member, *rank);
                held.insert(key, self.held.get(&key).copied().unwrap_or(now));
            }
        }
        let late = held.iter().find(|(_, since)| **since + HEARD < now).map(|(key, _)| *key);
        self.held = held;
        if let Some((member, rank)) = late {
            self.world.fail(format!("rank {rank} stands on {member}, and no node leaves"));
        }
    }
}
