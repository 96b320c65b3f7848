//! Jobs that are told to stand still now and then (`eyrie suspend`, `eyrie share`).
//!
//! Real: who holds the job, which orders that gives, and whose answers count (`protocol::suspend`).
//! Modelled: what the controller does about it (`job::suspension`), and how ranks come to stand.

use crate::types::*;
use crate::world::World;
use eyrie_protocol::membership::Member;
use eyrie_protocol::suspend::{SuspendOrder, Suspender};

/// A client that does not renew its hold any more has lost it after so long.
const LEASE: Time = 2_500;
/// More than there are clients.
const CLIENTS: u64 = 1_000_000;

impl World {
    pub fn begin_to_hold(&mut self, suspends: bool) {
        if suspends {
            let first = 100 + self.random.below(1_500);
            self.at(first, Event::Hold);
        }
    }

    /// The user, or a client, wants the job to stand still.
    pub fn hold_still(&mut self) {
        // Each client comes once, with a connection of its own to a controller.
        let client = self.report.controllers * CLIENTS + self.report.events;
        let (holder, until) = match self.random.below(3) {
            0 => (Suspender::User, None),
            1 => (Suspender::Client(client), Some(self.now + LEASE)),
            // As long as its connection stands.
            _ => (Suspender::Client(client), None),
        };
        self.controller.suspend.hold(holder, until);
        self.trace(|| format!("{holder:?} has the job stand still"));
        // A client may vanish without a word, and lose its lease.
        if until.is_none() || self.random.one_in(2) {
            let after = 100 + self.random.below(3_000);
            self.at(after, Event::LetGo { holder });
        }
        self.tend_suspend();
        self.fault_nearby(4);
        let after = 300 + self.random.below(4_000);
        self.at(after, Event::Hold);
    }

    /// Somebody does not want the job to stand still any more.
    pub fn let_go(&mut self, holder: Suspender) {
        let gone = match holder {
            Suspender::User => false,
            // With the controller that it was connected to.
            Suspender::Client(number) => number / CLIENTS != self.report.controllers,
        };
        if !gone && self.controller.suspend.release(holder) {
            self.trace(|| format!("{holder:?} lets the job go on"));
        }
        self.tend_suspend();
    }

    /// Has the ranks stop or go on, if that is to be.
    pub fn tend_suspend(&mut self) {
        let (now, ready) = (self.now, self.may_suspend());
        let forever = self.mutated(Mutation::LeaseForever);
        let suspend = &mut self.controller.suspend;
        if !forever {
            suspend.lapse(now);
        }
        match suspend.order(now, ready) {
            Some(SuspendOrder::Stop(turn)) => {
                self.report.suspends += 1;
                self.say_to_nodes(&ToNode::Suspend { turn });
                self.fault_nearby(4);
            }
            Some(SuspendOrder::GoOn(_)) => self.say_to_nodes(&ToNode::EndSuspend),
            None => {}
        }
    }

    /// Also to those that go back to the beginning.
    fn say_to_nodes(&mut self, said: &ToNode) {
        let all: Vec<Member> = self.controller.conns.keys().copied().collect();
        all.into_iter().for_each(|to| self.say_to(to, said.clone()));
    }

    /// A new controller goes on: clients of the one before are gone.
    pub fn take_over_suspend(&mut self) {
        if !self.mutated(Mutation::ClientsRemembered) {
            self.controller.suspend.forget_clients();
        }
        self.tend_suspend();
    }

    /// Nobody waits for the ranks to come to stand for something else.
    fn may_suspend(&self) -> bool {
        let planner = &self.controller.planner;
        let snapshots = self.neighbours.are_known() && !self.controller.snapshots.is_empty();
        !snapshots && planner.leaving().next().is_none() && self.controller.rolling_back.is_none()
    }

    /// A node joins: its ranks stand as those of the others.
    pub fn tell_suspend(&mut self, to: Member) {
        let turn = self.controller.suspend.order_for_new();
        if let Some(turn) = turn.filter(|_| !self.mutated(Mutation::NewcomerRuns)) {
            self.say_to(to, ToNode::Suspend { turn });
        }
    }

    /// The ranks of a node stand, it says.
    pub fn node_suspended(&mut self, node: u32, turn: u64) {
        let any = self.mutated(Mutation::AnyAnswer);
        let suspend = &mut self.controller.suspend;
        let turn = if any { suspend.order_for_new().unwrap_or(turn) } else { turn };
        suspend.stands(node, turn);
        if self.all_stand() {
            self.report.stood += 1;
        }
    }

    /// Whether the ranks of all live nodes stand, as far as the controller knows.
    pub fn all_stand(&self) -> bool {
        let live = self.controller.planner.members().iter().map(|m| m.node);
        self.controller.suspend.whole(live)
    }

    /// The time of what goes by the ranks' clock.
    pub fn ranks_time(&self) -> Time {
        self.controller.suspend.ranks_ms(self.now)
    }

    // ---- at a node

    /// Its ranks are to stand.
    pub fn suspend(&mut self, at: Member, turn: u64) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.suspend = Some((turn, false));
        let ranks: Vec<u32> = node.procs.keys().copied().collect();
        for rank in ranks {
            let after = self.random.below(300);
            self.at(after, Event::Suspended { at, rank, turn });
        }
        self.tell_suspended(at);
    }

    /// A rank has come to stand.
    pub fn rank_suspended(&mut self, at: Member, rank: u32, turn: u64) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if node.suspend.is_some_and(|h| h.0 == turn)
            && let Some(proc) = node.procs.get_mut(&rank)
        {
            proc.suspended = true;
        }
        self.tell_suspended(at);
    }

    /// They go on.
    pub fn end_suspend(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.suspend = None;
        let mut on = Vec::new();
        for (rank, proc) in &mut node.procs {
            proc.suspended = false;
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
    pub fn suspend_new(&mut self, at: Member, rank: u32) {
        let runs = self.mutated(Mutation::StartsRunning);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let suspended = node.suspend.is_some() && !runs;
        node.procs.get_mut(&rank).into_iter().for_each(|proc| proc.suspended = suspended);
    }

    /// Says that all ranks of a node stand, if they do.
    pub fn tell_suspended(&mut self, at: Member) {
        let Some(node) = self.nodes.get_mut(&at) else { return };
        let Some((turn, told)) = &mut node.suspend else { return };
        if *told || !node.procs.values().all(|p| p.suspended || p.done) {
            return;
        }
        *told = true;
        let turn = *turn;
        self.tell(at, FromNode::Suspended { turn });
    }

    /// A rank does something.
    pub fn check_stands(&mut self, at: Member, rank: u32) {
        if !self.dead && self.controller.planner.members().contains(&at) && self.all_stand() {
            self.fail(format!("rank {rank} runs on {at} while the job stands still"));
        }
    }
}
