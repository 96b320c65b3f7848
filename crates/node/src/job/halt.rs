//! The job stands still for a while: `eyrie suspend`, and the turns of `eyrie share`.
//!
//! Nothing else waits for that: daemons answer, deaths are noticed and what died is brought back
//! (it stands, too, then), checkpoints that are asked for are taken. Those that are due by the
//! clock are not, as that is the ranks' clock.
//!
//! Kept true: ranks are not stopped while others wait for them to come to stand (a set, a cut) or
//! while a node leaves; a job that ends does not stand still.

use super::Job;
use crate::outlet::Outlet;
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, NodeMsg, Suspension};
use eyrie_protocol::halt::{self, Holder, Order};

/// Who wants the job to stand still, and who waits for it.
#[derive(Default)]
pub(super) struct Halt {
    pub rule: halt::Halt,
    /// Clients that wait until it stands.
    waiting: Vec<Outlet>,
    /// All stand, which was told.
    whole: bool,
    /// It was the user who had them stop.
    by_user: bool,
}

const SUSPENDED: &str = "it is suspended already (eyrie resume lets it go on)";

impl Halt {
    /// As another controller left it: its clients are gone.
    pub fn take_over(&mut self, mut rule: halt::Halt) {
        rule.forget_clients();
        (self.whole, self.by_user) = (rule.stopped(), rule.holds(Holder::User));
        self.rule = rule;
    }
}

impl Job {
    /// The user wants the job to stand still; with `swap` without its memory.
    pub fn suspend(&mut self, swap: bool, outlet: Outlet) -> Result<(), String> {
        let rule = &self.halt.rule;
        if rule.holds(Holder::User) && (rule.swaps() || !swap) {
            return Err(String::from(SUSPENDED));
        }
        let before = rule.swaps();
        if swap {
            self.may_swap()?;
        }
        self.halt.rule.swap(swap);
        self.halt.whole &= !swap;
        let held = self.hold(Holder::User, None, outlet);
        if held.is_err() {
            self.halt.rule.swap(before);
        }
        held
    }

    /// A client wants the job to stand still.
    pub fn hold(
        &mut self,
        holder: Holder,
        lease_ms: Option<u64>,
        outlet: Outlet,
    ) -> Result<(), String> {
        if !self.monitor.running() || self.suspend.is_some() {
            let phase = if self.suspend.is_some() { "being saved" } else { self.monitor.phase() };
            return Err(format!("it is {phase}"));
        }
        let until = lease_ms.map(|ms| self.now_ms().saturating_add(ms));
        self.halt.rule.hold(holder, until);
        self.halt.waiting.push(outlet);
        self.tend_halt();
        Ok(())
    }

    /// It may go on, as far as this client is concerned.
    pub fn let_go_on(&mut self, holder: Holder, outlet: &Outlet) -> Result<(), String> {
        let swapped = self.halt.rule.swaps();
        let held = self.halt.rule.release(holder);
        if !held && holder == Holder::User {
            return Err(String::from("it is running, and not suspended"));
        }
        if held && holder == Holder::User && self.halt.rule.wanted() {
            self.say("the job is not suspended any more; it goes on in its turn (eyrie share)");
        }
        self.tend_halt();
        if swapped && !self.halt.rule.swaps() {
            self.swap_in();
        }
        outlet.send(&NodeMsg::Done);
        Ok(())
    }

    /// A client's connection is over.
    pub fn client_gone(&mut self, client: u64) {
        if self.halt.rule.release(Holder::Client(client)) {
            self.tend_halt();
        }
        self.forget_scrub(client);
    }

    /// Whether nodes were told to stop their ranks.
    pub(super) fn is_halted(&self) -> bool {
        self.halt.rule.stopped()
    }

    /// The ranks' clock.
    pub(super) fn ranks_ms(&self) -> u64 {
        self.halt.rule.ranks_ms(self.now_ms())
    }

    /// Has the ranks stop or go on, if that is to be.
    pub(super) fn tend_halt(&mut self) {
        let now = self.now_ms();
        if self.exit_code.is_some() {
            return;
        }
        if self.monitor.is_ending() {
            self.halt.rule.release_all();
        }
        if self.halt.rule.lapse(now) > 0 {
            self.say("eyrie share does not say any more that the job is to wait: it goes on");
        }
        let stood = self.halt.rule.for_ms(now);
        match self.halt.rule.order(now, self.may_halt()) {
            Some(Order::Stop(turn)) => {
                self.halt.whole = false;
                self.to_all(&ToNode::Halt { turn });
            }
            Some(Order::GoOn(_)) => {
                self.to_all(&ToNode::EndHalt);
                self.log_halt(EventKind::Resumed, stood);
            }
            None => {}
        }
        self.tend_swap();
        self.answer_halted();
    }

    /// Whether the ranks of all live nodes stand.
    pub(super) fn all_stand(&self) -> bool {
        let live = (0u32..).zip(&self.nodes).filter(|(_, n)| n.is_live()).map(|(node, _)| node);
        self.halt.rule.whole(live)
    }

    /// Whether nobody waits for the ranks to come to stand for something else.
    fn may_halt(&self) -> bool {
        let sets = self.together.as_ref().is_some_and(super::together::Together::is_taking);
        let placed = !self.many() || self.planned;
        let others = sets || self.units.are_taking() || self.flush.cut.is_some();
        placed && !others && self.leaves.is_empty() && self.suspend.is_none()
    }

    /// Events are for what a user did: turns would flood them.
    fn log_halt(&mut self, kind: EventKind, took_ms: Option<u64>) {
        if kind == EventKind::Suspended {
            self.halt.by_user = self.halt.rule.holds(Holder::User);
        }
        if self.halt.by_user {
            let mut event = self.event(kind);
            event.took_ms = took_ms.map(|ms| ms as f64);
            if self.halt.rule.swaps() {
                event.text = String::from("its memory is out");
            }
            self.log_event(event);
        }
        if kind == EventKind::Resumed {
            self.halt.by_user = false;
        }
    }

    /// The ranks of a node stand.
    pub(super) fn node_halted(&mut self, node: u32, turn: u64, restless: Vec<(u32, String)>) {
        self.halt.rule.stands(node, turn);
        for (rank, why) in restless {
            self.say(format!("rank {rank} runs on for now, as it cannot be stopped: {why}"));
        }
        self.answer_halted();
    }

    /// The ranks stand, but keep their memory.
    pub(super) fn not_swapped(&mut self, why: &str) {
        self.halt.rule.swap(false);
        let text = format!("the job is suspended, but keeps its memory: {why}");
        for outlet in std::mem::take(&mut self.halt.waiting) {
            outlet.send(&NodeMsg::Error(text.clone()));
        }
        self.say(text);
        self.swap_in();
    }

    /// Tells those who wait for what is so now.
    fn answer_halted(&mut self) {
        let whole = self.all_stand() && (!self.halt.rule.swaps() || self.is_out());
        if whole && !std::mem::replace(&mut self.halt.whole, true) {
            let took = self.halt.rule.for_ms(self.now_ms());
            self.log_halt(EventKind::Suspended, took);
        }
        let called_off = !self.halt.rule.wanted();
        let waiting = std::mem::take(&mut self.halt.waiting);
        for outlet in waiting {
            if whole {
                outlet.send(&NodeMsg::Done);
            } else if called_off {
                let text = "it goes on: somebody said so meanwhile, or it ends";
                outlet.send(&NodeMsg::Error(String::from(text)));
            } else {
                self.halt.waiting.push(outlet);
            }
        }
    }

    /// A node joins: its ranks stand as those of the others.
    pub(super) fn tell_halt(&self, node: u32) {
        if let Some(turn) = self.halt.rule.order_for_new() {
            self.nodes[node as usize].send(ToNode::Halt { turn });
        }
    }

    pub(super) fn suspension(&self) -> Option<Suspension> {
        let rule = &self.halt.rule;
        let user = rule.holds(Holder::User).then(|| String::from("user"));
        let share = rule.is_leased().then(|| String::from("share"));
        let by = user.into_iter().chain(share).collect();
        let for_ms = rule.for_ms(self.now_ms())?;
        Some(Suspension { for_ms, by, whole: self.halt.whole, swapped: rule.swaps() })
    }
}
