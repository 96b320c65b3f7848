//! The death of a controller whose ranks go back together, and its successor.
//!
//! Real: the framing of records and how a torn one is cut off, the sessions, the planner's replay
//! of its inputs. Modelled: what a record contains, as in `crate::term`.

use super::controller::Return;
use super::world::{Mistake, World};
use super::*;
use crate::term::Fate;

/// How long a new controller waits for nodes to come back.
const REJOINING: u64 = 1_500;

/// How things stood before a turn of the controller.
#[derive(Clone)]
pub(super) struct Before {
    truth: Vec<State>,
    losses: u64,
    vaulted: bool,
    vault: BTreeMap<Key, super::vault::Kept>,
}

impl World {
    /// Whether the controller decides something when this happens.
    pub fn is_turn(&self, event: &Event) -> bool {
        match event {
            Event::Arrive(packet) => matches!(packet, Packet::FromNode { .. }),
            Event::Rejoined { deaths } => *deaths == self.report.controllers,
            Event::Schedule | Event::Suspect { .. } | Event::Join | Event::Drain => true,
            _ => false,
        }
    }

    /// Lets something happen; if the controller decides something by that, as one turn.
    pub fn take(&mut self, event: Event) {
        self.decided = None;
        if !self.is_turn(&event) {
            return self.happen(event);
        }
        if self.dead {
            // It goes on looking when there is one again, which misses who is dead.
            return match event {
                Event::Schedule => self.at(100, event),
                Event::Drain => self.at(500, event),
                Event::Join => self.at(300, event),
                _ => {}
            };
        }
        let fate = self.fate.take();
        if fate.is_some() {
            let (truth, losses) = (self.truth.clone(), self.losses);
            let (vaulted, vault) = (self.vaulted, self.vault.clone());
            self.before = Some(Box::new(Before { truth, losses, vaulted, vault }));
        }
        self.happen(event);
        self.end_turn(fate);
    }

    /// The controller dies in its next turn.
    pub fn kill_controller(&mut self) {
        if self.journal.is_none() || self.dead {
            return;
        }
        self.fate = self.random.pick(&Fate::ALL);
        let fate = self.fate;
        self.trace(|| format!("FAULT the controller dies in its next turn: {fate:?}"));
    }

    /// Writes down what was decided, and then does it.
    pub fn end_turn(&mut self, fate: Option<Fate>) {
        let plans = std::mem::take(&mut self.plans);
        let mut orders = Vec::new();
        for (node, said) in std::mem::take(&mut self.turn) {
            // One that is lost is not spoken to.
            if let Some(session) = self.controller.sessions.get_mut(&node) {
                orders.push((node, session.number(said)));
            }
        }
        self.decided = Some(!plans.is_empty() || !orders.is_empty());
        let lost = fate.is_some_and(Fate::loses_record);
        if let Some(journal) = &mut self.journal
            && fate != Some(Fate::Unwritten)
        {
            journal.append(plans, &self.controller, lost);
        }
        let most = Fate::seen(fate, orders.len(), self.makes(Mistake::EffectsUnwritten));
        for (node, frame) in orders.into_iter().take(most) {
            if let Some(line) = self.lines.get(&node).copied() {
                self.send(Packet::ToNode { node, line, frame });
            }
        }
        if fate.is_some() {
            self.controller_dies(lost);
        }
    }

    fn controller_dies(&mut self, lost: bool) {
        self.report.controllers += 1;
        if let (Some(before), true) = (self.before.take(), lost) {
            let Before { truth, losses, vaulted, vault } = *before;
            (self.truth, self.losses) = (truth, losses);
            (self.vaulted, self.vault) = (vaulted, vault);
            self.over = false;
        }
        if let Some(journal) = &mut self.journal {
            (self.controller, self.controller.planner) = journal.read();
        }
        self.dead = true;
        self.lines.clear();
        let all: Vec<u32> = self.nodes.keys().copied().collect();
        for node in all {
            let after = 20 + self.random.below(100);
            self.at(after, Event::Call { node });
        }
        let after = 20 + self.random.below(1_000);
        self.at(after, Event::Term);
    }

    /// Another controller goes on.
    pub fn term(&mut self) {
        self.dead = false;
        // What was under way was never counted.
        self.controller.round = None;
        if self.makes(Mistake::SnapshotForgotten) {
            (self.controller.snapshot, self.controller.last) = (None, self.controller.newest());
        }
        if self.makes(Mistake::ReturnForgotten) {
            self.controller.back = Return::default();
        }
        self.trace(|| String::from("a new controller goes on"));
        self.end_turn(None);
        let deaths = self.report.controllers;
        self.at(REJOINING, Event::Rejoined { deaths });
    }

    /// A node and the controller have a connection from here on.
    pub fn connect(&mut self, number: u32) {
        let Some(node) = self.nodes.get_mut(&number) else { return };
        self.lines_made += 1;
        node.line = self.lines_made;
        self.lines.insert(number, node.line);
    }

    /// A node that has lost its controller calls the next one.
    pub fn call(&mut self, number: u32) {
        let Some(node) = self.nodes.get(&number) else { return };
        if self.lines.get(&number) == Some(&node.line) {
            return;
        }
        if self.dead {
            let after = 20 + self.random.below(100);
            return self.at(after, Event::Call { node: number });
        }
        if !self.controller.sessions.contains_key(&number) {
            self.trace(|| format!("node {number} is told to go"));
            self.nodes.remove(&number);
            return;
        }
        self.trace(|| format!("node {number} is back"));
        self.connect(number);
        let Some(node) = self.nodes.get(&number) else { return };
        let (line, said): (u64, Vec<_>) = (node.line, node.session.again().collect());
        let session = self.controller.sessions.get(&number);
        let orders: Vec<_> = session.into_iter().flat_map(Session::again).collect();
        for frame in orders {
            self.send(Packet::ToNode { node: number, line, frame });
        }
        for frame in said {
            self.send(Packet::FromNode { node: number, line, frame });
        }
    }

    /// Who is not back by now is lost.
    pub fn rejoined(&mut self) {
        let known = self.controller.known.values().copied();
        let late: Vec<Member> = known.filter(|m| !self.lines.contains_key(&m.node)).collect();
        late.into_iter().for_each(|member| self.suspect(member));
    }

    /// What the controller has said comes to a node.
    pub fn frame_for_node(&mut self, number: u32, line: u64, frame: Numbered<ToNode>) {
        let Some(node) = self.nodes.get_mut(&number).filter(|n| n.line == line) else { return };
        match node.session.hear(frame.number, frame.heard) {
            Ok(true) => self.node_hears(number, frame.message),
            Ok(false) => {}
            Err(foreign) => self.fail(format!("to node {number}: {foreign}")),
        }
    }

    /// What a node has said comes to the controller.
    pub fn frame_of_node(&mut self, number: u32, line: u64, frame: Numbered<Word>) {
        if self.lines.get(&number) != Some(&line) {
            return;
        }
        let Some(session) = self.controller.sessions.get_mut(&number) else { return };
        match session.hear(frame.number, frame.heard) {
            Ok(true) => {
                let (from, said) = frame.message;
                self.controller_hears(from, said);
            }
            Ok(false) => {}
            Err(foreign) => self.fail(format!("of node {number}: {foreign}")),
        }
    }
}
