//! `eyrie drain` and `eyrie migrate`: who may leave, where ranks go, and telling who waits
//! for it how far it is.
//!
//! Kept true: what cannot be is refused before anything is done, also what there is no memory for;
//! whoever waits hears the end of each node.

use crate::Job;
use crate::leaving::model::{Departure, Departures, End, Terms, Watcher};
use crate::outside::ClientHandle;
use crate::recovery::model::Recovery;
use eyrie_control::{LeaveStep, Leaving, NodeMsg};
use eyrie_protocol::membership::Member;
use eyrie_state::units;
use std::collections::{BTreeMap, BTreeSet};

impl Recovery {
    pub fn some_stay(&self, leaving: &BTreeSet<u32>) -> Result<(), String> {
        if self.takers().any(|m| !leaving.contains(&m.node)) {
            return Ok(());
        }
        Err(String::from(
            "no node would stay that its ranks could go to: let others join first (eyrie grow)",
        ))
    }
}

impl Departures {
    /// Nobody waits any more who has heard all, or is gone.
    pub fn forget_watchers(&mut self) {
        self.watchers.retain(|w| !w.nodes.is_empty() && !w.client.is_closed());
    }

    pub fn answer_leave(&mut self, leaving: Leaving) {
        let (node, last) = (leaving.node, leaving.step.is_last());
        let message = NodeMsg::Leaving(Box::new(leaving));
        for watcher in self.watchers.iter_mut().filter(|w| w.nodes.contains(&node)) {
            watcher.client.send(&message);
            if last {
                watcher.nodes.remove(&node);
            }
            if watcher.nodes.is_empty() {
                watcher.client.send(&NodeMsg::Done);
            }
        }
    }
}

impl Job {
    /// Has nodes leave. `Leaving` follows for each, then `Done`.
    pub fn drain(
        &mut self,
        (names, to): (&[String], &[String]),
        limit_ms: Option<u64>,
        number: u64,
        client: ClientHandle,
    ) -> Result<(), String> {
        self.may_leave()?;
        let nodes = self.select_leaving(names)?;
        let to = self.select_destinations(to)?;
        if let Some(node) = to.intersection(&nodes).next() {
            return Err(format!("node {node} is to leave itself: name another one with --to"));
        }
        self.recovery.some_stay(&nodes)?;
        let terms = Terms { limit_ms, end: End::Left, number: Some(number) };
        self.depart_when_looked(Departure { nodes, to, terms, client });
        Ok(())
    }

    /// The same for nodes that were told to end, if they may.
    pub(crate) fn drain_unasked(
        &mut self,
        nodes: BTreeSet<u32>,
        limit_ms: u64,
    ) -> Result<(), String> {
        self.may_leave()?;
        self.recovery.some_stay(&nodes)?;
        // There is no time to ask: by what is known.
        let wishes = self.wishes_by_capacity(&nodes, &BTreeSet::new()).unwrap_or_default();
        let terms = Terms { limit_ms: Some(limit_ms), end: End::Left, number: None };
        self.set_out(nodes, &BTreeSet::new(), wishes, terms);
        Ok(())
    }

    /// Has the ranks of nodes move to others, all at one time. Answered as `drain` is.
    pub fn migrate(
        &mut self,
        (from, to): (&[String], &[String]),
        (release, limit_ms): (bool, Option<u64>),
        number: u64,
        client: ClientHandle,
    ) -> Result<(), String> {
        self.may_leave()?;
        let to = self.select_destinations(to)?;
        let mut nodes = self.select_leaving(from)?;
        if let Some(node) = to.intersection(&nodes).next() {
            return Err(format!("node {node} is among those of --from and of --to"));
        }
        if from.is_empty() {
            nodes = self.nodes.placement.homes().iter().copied().collect();
            nodes.retain(|node| !to.contains(node) && !self.leaving.nodes.contains_key(node));
        }
        if nodes.iter().all(|node| self.nodes.placement.ranks_on(*node).is_empty()) {
            return Err(match from.is_empty() {
                true => String::from("all ranks are on those nodes already"),
                false => String::from("there are no ranks on the nodes of --from"),
            });
        }
        let end = if release { End::AllLeft } else { End::Spare };
        let terms = Terms { limit_ms, end, number: Some(number) };
        self.depart_when_looked(Departure { nodes, to, terms, client });
        Ok(())
    }

    /// Nodes are not to leave after all, of which all can stay.
    pub fn call_off(&mut self, names: &[String]) -> Result<(), String> {
        let mut nodes = self.select_nodes(names)?;
        for node in nodes.clone() {
            nodes.extend(self.call_off_with(node)?);
        }
        let why = "it was called off";
        let mut waiting = std::mem::take(&mut self.leaving.waiting);
        for departure in &mut waiting {
            let both = departure.nodes.intersection(&nodes).copied().collect::<Vec<_>>();
            both.iter().for_each(|node| departure.stays(*node, why));
        }
        waiting.retain(|departure| !departure.nodes.is_empty());
        self.leaving.waiting = waiting;
        for node in nodes {
            self.stays(node, why);
        }
        Ok(())
    }

    /// Those that do not leave if this one does not. `Err`: it does.
    pub(crate) fn call_off_with(&self, node: u32) -> Result<BTreeSet<u32>, String> {
        let name = self.nodes.node_name(node);
        if self.is_noticed(node) {
            return Err(format!(
                "{name} is told to end by its machine, which nobody here can undo"
            ));
        }
        let waits = self.leaving.waiting.iter().filter(|d| d.nodes.contains(&node));
        let waits: Vec<&Departure> = waits.collect();
        if !waits.is_empty() {
            let mut all = BTreeSet::from([node]);
            for departure in waits.into_iter().filter(|d| d.terms.end != End::Left) {
                all.extend(&departure.nodes);
            }
            return Ok(all);
        }
        if !self.leaving.nodes.contains_key(&node) {
            return Err(format!("{name} is not about to leave"));
        }
        let member = self.nodes.member(node);
        if !self.recovery.planner.as_ref().is_some_and(|p| p.may_stay(&member)) {
            return Err(format!("{name} cannot stay: its ranks are going on elsewhere already"));
        }
        let mut all = self.all_with(node);
        // Its ranks may be gone, so that it stays without them, whatever others do.
        all.insert(node);
        Ok(all)
    }

    /// It is known what memory there is.
    pub(crate) fn depart(&mut self, departure: Departure) {
        self.outside.reach("leave-1");
        let Departure { nodes, to, terms, client } = departure;
        let gone = |node: &&u32| {
            self.leaving.nodes.contains_key(node) || !self.nodes.all[**node as usize].is_live()
        };
        let may = match nodes.iter().chain(&to).find(gone) {
            Some(node) => Err(format!("node {node} has left meanwhile, or is about to")),
            None => self.may_leave().and_then(|()| self.recovery.some_stay(&nodes)),
        };
        match may.and_then(|()| self.wishes_by_capacity(&nodes, &to)) {
            Ok(wishes) => {
                self.leaving.watchers.push(Watcher { nodes: nodes.clone(), client });
                self.set_out(nodes, &to, wishes, terms);
            }
            Err(why) => {
                let step = LeaveStep::Stays;
                for &node in &nodes {
                    let leaving = Leaving { node, step, took_ms: 0.0, text: why.clone() };
                    client.send(&NodeMsg::Leaving(Box::new(leaving)));
                    self.tell_stays(node, &why);
                }
                client.send(&NodeMsg::Done);
            }
        }
    }

    /// `roomy`: where those go that have not room everywhere.
    fn set_out(
        &mut self,
        nodes: BTreeSet<u32>,
        to: &BTreeSet<u32>,
        wishes_by_capacity: BTreeMap<u32, Vec<Member>>,
        terms: Terms,
    ) {
        let mut wishes = match to.is_empty() {
            true => self.wishes_by_cluster(&nodes),
            false => {
                let nearest = self.nearest(&nodes, to);
                nearest.unwrap_or_else(|| self.nodes.wishes(&nodes, to))
            }
        };
        wishes.extend(wishes_by_capacity);
        self.begin_leaves(&nodes, wishes, terms);
        self.tend_leaves();
    }

    /// Of a job with several clusters ranks stay in theirs, if a node of it stays: on spares, if
    /// there are some.
    fn wishes_by_cluster(&self, nodes: &BTreeSet<u32>) -> BTreeMap<u32, Vec<Member>> {
        let mut all = BTreeMap::new();
        for cluster in 0..self.spec.placement.clusters.count() {
            let here = |node: &u32| self.spec.placement.clusters.of(*node) == cluster;
            let going: BTreeSet<u32> = nodes.iter().copied().filter(here).collect();
            let takers = self.recovery.takers().map(|m| m.node);
            let mut stay: BTreeSet<u32> =
                takers.filter(|n| here(n) && !nodes.contains(n)).collect();
            if going.is_empty() || stay.is_empty() {
                continue;
            }
            let empty = |node: &u32| self.nodes.placement.ranks_on(*node).is_empty();
            if stay.iter().any(empty) {
                stay.retain(empty);
            }
            all.extend(self.nodes.wishes(&going, &stay));
        }
        all
    }

    fn may_leave(&self) -> Result<(), String> {
        if !self.many() {
            let text = "the job has one node, and its ranks nowhere to go: start it with --nodes \
                        or --hosts";
            return Err(text.into());
        }
        if !self.spec.protection.ft.protects() {
            let ft = self.spec.protection.ft.name();
            return Err(format!("nodes do not leave jobs with --ft {ft}, which this one has"));
        }
        if let Some(why) = self.no_more_coordinated() {
            return Err(why);
        }
        if let Some(why) = &self.recovery.unprotected {
            return Err(format!("the job runs without protection: {why}"));
        }
        self.swapped_out().map_err(|why| format!("{why}, or save it (eyrie checkpoint --end)"))?;
        if self.saving.under_way.is_some() {
            return Err(String::from("the job is being saved: it ends, or ask again"));
        }
        let settled =
            self.recovery.planned && !self.saving.restarting && self.nodes.rejoining.is_none();
        if !settled || !self.recovery.monitor.running() {
            return Err(String::from("the job is just starting or ending: ask again"));
        }
        Ok(())
    }

    /// The nodes that these words mean, none of which leaves already.
    fn select_leaving(&self, words: &[String]) -> Result<BTreeSet<u32>, String> {
        let nodes = self.select_nodes(words)?;
        match nodes.iter().find(|node| self.leaving.nodes.contains_key(node)) {
            Some(node) => Err(format!("node {node} is leaving already")),
            None => Ok(nodes),
        }
    }

    /// The same of nodes that ranks are to go to.
    fn select_destinations(&self, words: &[String]) -> Result<BTreeSet<u32>, String> {
        let nodes = self.select_leaving(words)?;
        let routing = units::routing(&self.spec);
        match nodes.iter().find(|node| routing.is_router(**node)) {
            Some(node) => Err(format!(
                "node {node} is a router, on which no ranks run: name other nodes with --to"
            )),
            None => Ok(nodes),
        }
    }

    /// Tells a step, once.
    pub(crate) fn tell_leave(&mut self, node: u32, step: LeaveStep, text: String) {
        let clock = self.clock.now();
        let Some(leave) = self.leaving.nodes.get_mut(&node) else { return };
        if leave.step.replace(step) != Some(step) {
            let took_ms = leave.begun.elapsed_ms(clock);
            self.leaving.answer_leave(Leaving { node, step, took_ms, text });
        }
    }
}
