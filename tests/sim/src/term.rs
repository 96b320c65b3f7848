//! The controller's journal, its death, and its successor.
//!
//! Real: the framing of records and how a torn one is cut off, the sessions, the planner's replay
//! of its inputs. Modelled: what a record contains (its bytes are a number that leads there).

use crate::types::*;
use crate::world::World;
use eyrie_protocol::journal;
use eyrie_protocol::membership::Member;
use eyrie_protocol::recovery::{Input, Planner};

/// How long a new controller waits for nodes to come back.
const REJOINING: Time = 1_500;

/// What a turn of the controller leads to.
#[derive(Clone)]
pub enum Effect {
    Say(Member, ToNode),
    Print { rank: u32, line: u64 },
}

/// At which step of its next turn the controller dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    Unwritten,
    Torn,
    Written,
    /// Some of what it decided has left.
    HalfSent,
}

impl Fate {
    pub const ALL: [Fate; 4] = [Fate::Unwritten, Fate::Torn, Fate::Written, Fate::HalfSent];

    /// Whether the record of its turn is not there, or not whole.
    pub fn loses_record(self) -> bool {
        matches!(self, Fate::Unwritten | Fate::Torn)
    }

    /// How many of the effects of a turn are seen. `early`: by mistake all, before the record is
    /// written.
    pub fn seen(fate: Option<Fate>, effects: usize, early: bool) -> usize {
        match fate {
            None => effects,
            Some(Fate::HalfSent) => effects / 2,
            Some(_) if early => effects,
            Some(_) => 0,
        }
    }
}

/// What outlives the controller, which is a `C`.
#[derive(Clone)]
pub struct Journal<C> {
    bytes: Vec<u8>,
    /// What each record told the planner.
    records: Vec<Vec<Input>>,
    /// The controller after each of the last records: a torn one, and the one before.
    states: Vec<C>,
    first: Planner,
}

impl<C: Clone> Journal<C> {
    /// `first`: its planner.
    pub fn new(controller: &C, first: Planner) -> Journal<C> {
        let (bytes, records, states) = Default::default();
        let mut journal = Journal { bytes, records, states, first };
        journal.append(Vec::new(), controller, false);
        journal
    }

    pub fn append(&mut self, plans: Vec<Input>, after: &C, torn: bool) {
        let number = (self.records.len() as u64).to_le_bytes();
        let frame = journal::frame(&number).unwrap_or_default();
        let length = if torn { frame.len() / 2 } else { frame.len() };
        self.bytes.extend_from_slice(&frame[..length]);
        self.records.push(plans);
        self.states.push(after.clone());
        let old = self.states.len().saturating_sub(2);
        self.states.drain(..old);
    }

    /// The controller as its successor finds it, and what its planner is by what that was told. A
    /// torn tail is cut off.
    pub fn read(&mut self) -> (C, Planner) {
        let (found, length) = journal::read(&self.bytes);
        let count = found.len();
        self.bytes.truncate(length);
        let torn = self.records.len() - count;
        self.records.truncate(count);
        self.states.truncate(self.states.len() - torn);
        let mut planner = self.first.clone();
        for input in self.records.iter().flatten() {
            planner.step(input.clone());
        }
        (self.states[self.states.len() - 1].clone(), planner)
    }
}

impl World {
    /// Whether the controller decides something when this happens.
    pub fn is_turn(&self, event: &Event) -> bool {
        match event {
            Event::Arrive { conn, side } | Event::Closed { conn, side } => {
                self.conns[*conn].ends[*side] == Endpoint::Controller
            }
            Event::Rejoined { deaths } => *deaths == self.report.controllers,
            Event::Schedule | Event::Suspect { .. } | Event::Join | Event::Drain => true,
            Event::Hold | Event::LetGo { .. } => true,
            _ => false,
        }
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
        let mut effects = Vec::new();
        for effect in std::mem::take(&mut self.turn) {
            effects.push(match effect {
                Effect::Say(to, said) => {
                    let session = self.controller.sessions.entry(to).or_default();
                    let frame = session.number(said);
                    (Some((to, frame)), None)
                }
                Effect::Print { rank, line } => (None, Some((rank, line))),
            });
        }
        self.decided = Some(!plans.is_empty() || !effects.is_empty());
        let early = self.mutated(Mutation::EffectsUnwritten);
        let lost = fate.is_some_and(Fate::loses_record);
        if let Some(journal) = &mut self.journal
            && !matches!(fate, Some(Fate::Unwritten))
        {
            journal.append(plans, &self.controller, lost);
        }
        let most = Fate::seen(fate, effects.len(), early);
        for (say, print) in effects.into_iter().take(most) {
            if let Some((to, frame)) = say
                && let Some(conn) = self.controller.conns.get(&to).copied()
            {
                self.send(conn, Endpoint::Controller, Packet::ToNode(frame));
            }
            if let Some((rank, line)) = print {
                self.truth.printed[rank as usize].push(line);
            }
        }
        if fate.is_some() {
            self.controller_dies(lost);
        }
    }

    fn controller_dies(&mut self, lost: bool) {
        self.report.controllers += 1;
        let mut conns: Vec<usize> = self.controller.conns.values().copied().collect();
        if let (Some(before), true) = (self.before.take(), lost) {
            let printed = std::mem::take(&mut self.truth.printed);
            self.truth = before;
            if self.mutated(Mutation::EffectsUnwritten) {
                self.truth.printed = printed;
            }
            self.over = false;
            self.report.lost = false;
        }
        if let Some(journal) = &mut self.journal {
            (self.controller, self.controller.planner) = journal.read();
        }
        self.dead = true;
        conns.extend(self.controller.conns.values());
        for conn in conns {
            self.conns[conn].open[0] = false;
            if !self.conns[conn].broken {
                self.cut(conn);
            }
        }
        let after = 20 + self.random.below(1_000);
        self.at(after, Event::Term);
    }

    /// Another controller goes on.
    pub fn term(&mut self) {
        self.dead = false;
        // What was under way was never counted.
        self.controller.round = None;
        if self.mutated(Mutation::SnapshotsForgotten) {
            self.controller.snapshots.clear();
        }
        self.trace(|| String::from("a new controller goes on"));
        for rank in 0..self.ranks() {
            let printed = self.truth.printed[rank as usize].len();
            let lines = self.controller.tapes[rank as usize].clone();
            let rest = lines.into_iter().skip(printed);
            self.turn.extend(rest.map(|line| Effect::Print { rank, line }));
        }
        self.take_over_suspend();
        self.end_turn(None);
        let deaths = self.report.controllers;
        self.at(REJOINING, Event::Rejoined { deaths });
    }

    /// A node that has lost its controller calls the next one.
    pub fn call(&mut self, member: Member) {
        let Some(node) = self.nodes.get(&member) else { return };
        if self.conns[node.conn].open[1] && !self.conns[node.conn].broken {
            return;
        }
        if self.dead {
            let after = 20 + self.random.below(100);
            return self.at(after, Event::Call { member });
        }
        let known = self.controller.conns.get(&member).copied();
        let Some(old) = known.filter(|c| !self.conns[*c].open[0]) else {
            self.trace(|| format!("{member} is told to go"));
            return self.perish(member);
        };
        self.trace(|| format!("{member} is back"));
        self.conns[old].open = [false; 2];
        let conn = self.open(Endpoint::Controller, Endpoint::Node(member));
        self.controller.conns.insert(member, conn);
        let forgotten = self.mutated(Mutation::OrdersForgotten);
        let session = self.controller.sessions.entry(member).or_default();
        let orders: Vec<_> = session.again().filter(|_| !forgotten).collect();
        for frame in orders {
            self.send(conn, Endpoint::Controller, Packet::ToNode(frame));
        }
        let Some(node) = self.nodes.get_mut(&member) else { return };
        node.conn = conn;
        let said: Vec<_> = node.session.again().collect();
        for frame in said {
            self.send(conn, Endpoint::Node(member), Packet::FromNode(frame));
        }
    }

    /// Who is not back by now is lost.
    pub fn rejoined(&mut self) {
        let late = |c: &(&Member, &usize)| !self.conns[*c.1].open[0];
        let late: Vec<Member> = self.controller.conns.iter().filter(late).map(|c| *c.0).collect();
        late.into_iter().for_each(|member| self.suspect(member));
    }
}
