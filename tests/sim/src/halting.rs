//! Jobs that are told to stand still now and then (`eyrie suspend`, `eyrie share`).
//!
//! Real: who holds the job, which orders that gives, and whose answers count (`protocol::halt`).
//! Modelled: what the controller does about it (`job::halt`), and how ranks come to stand.

use crate::types::*;
use crate::world::World;
use eyrie_protocol::halt::{Holder, Order};
use eyrie_protocol::membership::Member;

/// A client that does not renew its hold any more has lost it after so long.
const LEASE: Time = 2_500;
/// More than there are clients.
const CLIENTS: u64 = 1_000_000;

impl World {
    pub fn begin_to_hold(&mut self, halts: bool) {
        if halts {
            let first = 100 + self.random.below(1_500);
            self.at(first, Event::Hold);
        }
    }

    /// The user, or a client, wants the job to stand still.
    pub fn hold_still(&mut self) {
        // Each client comes once, with a connection of its own to a controller.
        let client = self.report.controllers * CLIENTS + self.report.events;
        let (holder, until) = match self.random.below(3) {
            0 => (Holder::User, None),
            1 => (Holder::Client(client), Some(self.now + LEASE)),
            // As long as its connection stands.
            _ => (Holder::Client(client), None),
        };
        self.controller.halt.hold(holder, until);
        self.trace(|| format!("{holder:?} has the job stand still"));
        // A client may vanish without a word, and lose its lease.
        if until.is_none() || self.random.one_in(2) {
            let after = 100 + self.random.below(3_000);
            self.at(after, Event::LetGo { holder });
        }
        self.tend_halt();
        self.fault_nearby(4);
        let after = 300 + self.random.below(4_000);
        self.at(after, Event::Hold);
    }

    /// Somebody does not want the job to stand still any more.
    pub fn let_go(&mut self, holder: Holder) {
        let gone = match holder {
            Holder::User => false,
            // With the controller that it was connected to.
            Holder::Client(number) => number / CLIENTS != self.report.controllers,
        };
        if !gone && self.controller.halt.release(holder) {
            self.trace(|| format!("{holder:?} lets the job go on"));
        }
        self.tend_halt();
    }

    /// Has the ranks stop or go on, if that is to be.
    pub fn tend_halt(&mut self) {
        let (now, ready) = (self.now, self.may_halt());
        let forever = self.mutated(Mutation::LeaseForever);
        let halt = &mut self.controller.halt;
        if !forever {
            halt.lapse(now);
        }
        match halt.order(now, ready) {
            Some(Order::Stop(turn)) => {
                self.report.halts += 1;
                self.say_to_nodes(&ToNode::Halt { turn });
                self.fault_nearby(4);
            }
            Some(Order::GoOn(_)) => self.say_to_nodes(&ToNode::EndHalt),
            None => {}
        }
    }

    /// Also to those that go back to the beginning.
    fn say_to_nodes(&mut self, said: &ToNode) {
        let all: Vec<Member> = self.controller.conns.keys().copied().collect();
        all.into_iter().for_each(|to| self.say_to(to, said.clone()));
    }

    /// A new controller goes on: clients of the one before are gone.
    pub fn take_over_halt(&mut self) {
        if !self.mutated(Mutation::ClientsRemembered) {
            self.controller.halt.forget_clients();
        }
        self.tend_halt();
    }

    /// Nobody waits for the ranks to come to stand for something else.
    fn may_halt(&self) -> bool {
        let planner = &self.controller.planner;
        let sets = self.neighbours.are_known() && !self.controller.sets.is_empty();
        !sets && planner.leaving().next().is_none() && self.controller.rolling_back.is_none()
    }

    /// A node joins: its ranks stand as those of the others.
    pub fn tell_halt(&mut self, to: Member) {
        let turn = self.controller.halt.order_for_new();
        if let Some(turn) = turn.filter(|_| !self.mutated(Mutation::NewcomerRuns)) {
            self.say_to(to, ToNode::Halt { turn });
        }
    }

    /// The ranks of a node stand, it says.
    pub fn node_halted(&mut self, node: u32, turn: u64) {
        let any = self.mutated(Mutation::AnyAnswer);
        let halt = &mut self.controller.halt;
        let turn = if any { halt.order_for_new().unwrap_or(turn) } else { turn };
        halt.stands(node, turn);
        if self.all_stand() {
            self.report.stood += 1;
        }
    }

    /// Whether the ranks of all live nodes stand, as far as the controller knows.
    fn all_stand(&self) -> bool {
        let live = self.controller.planner.members().iter().map(|m| m.node);
        self.controller.halt.whole(live)
    }

    /// The time of what goes by the ranks' clock.
    pub fn ranks_time(&self) -> Time {
        self.controller.halt.ranks_ms(self.now)
    }

    // ---- at a node

    /// Its ranks are to stand.
    pub fn halt(&mut self, at: Member, turn: u64) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.halt = Some((turn, false));
        let ranks: Vec<u32> = node.procs.keys().copied().collect();
        for rank in ranks {
            let after = self.random.below(300);
            self.at(after, Event::Halted { at, rank, turn });
        }
        self.tell_halted(at);
    }

    /// A rank has come to stand.
    pub fn rank_halted(&mut self, at: Member, rank: u32, turn: u64) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if node.halt.is_some_and(|h| h.0 == turn)
            && let Some(proc) = node.procs.get_mut(&rank)
        {
            proc.halted = true;
        }
        self.tell_halted(at);
    }

    /// They go on.
    pub fn end_halt(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.halt = None;
        let mut on = Vec::new();
        for (rank, proc) in &mut node.procs {
            proc.halted = false;
            if !proc.stands && std::mem::take(&mut proc.would_go_on) {
                on.push((*rank, proc.incarnation));
            }
        }
        for (rank, incarnation) in on {
            let after = 1 + self.random.below(10);
            self.at(after, Event::Step { at, rank, incarnation });
        }
    }

    /// A rank was started: it stands at once, if all do.
    pub fn halt_new(&mut self, at: Member, rank: u32) {
        let runs = self.mutated(Mutation::StartsRunning);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let halted = node.halt.is_some() && !runs;
        node.procs.get_mut(&rank).into_iter().for_each(|proc| proc.halted = halted);
    }

    /// Says that all ranks of a node stand, if they do.
    pub fn tell_halted(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let Some((turn, told)) = &mut node.halt else { return };
        if *told || !node.procs.values().all(|p| p.halted || p.done) {
            return;
        }
        *told = true;
        let turn = *turn;
        self.tell(at, FromNode::Halted { turn });
    }

    /// A rank does something.
    pub fn check_stands(&mut self, at: Member, rank: u32) {
        if !self.dead && self.controller.planner.members().contains(&at) && self.all_stand() {
            self.fail(format!("rank {rank} runs on {at} while the job stands still"));
        }
    }
}
