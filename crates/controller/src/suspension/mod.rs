//! The job stands still for a while: `eyrie suspend`, and the turns of `eyrie share`.
//!
//! Nothing else waits for that: daemons answer, deaths are noticed and what died is brought back
//! (it stands, too, then), checkpoints that are asked for are taken. Those that are due by the
//! clock are not, as that is the ranks' clock.
//!
//! Kept true: ranks are not stopped while others wait for them to come to stand (a set, a cut) or
//! while a node leaves; a job that ends does not stand still.

pub(crate) mod swap;

use crate::Job;
use crate::outside::ClientHandle;
use eyrie_control::node::ToNode;
use eyrie_control::{EventKind, NodeMsg, Suspension};
use eyrie_protocol::suspend;
use eyrie_protocol::suspend::SuspendOrder;
use eyrie_protocol::suspend::Suspender;

/// Who wants the job to stand still, and who waits for it.
#[derive(Default)]
pub(crate) struct SuspensionState {
    pub rule: suspend::SuspendState,
    /// Clients that wait until it stands.
    waiting: Vec<ClientHandle>,
    /// All stand, which was told.
    whole: bool,
    /// It was the user who had them stop.
    by_user: bool,
}

const SUSPENDED: &str = "it is suspended already (eyrie resume lets it go on)";

impl SuspensionState {
    /// As another controller left it: its clients are gone.
    pub fn take_over(&mut self, mut rule: suspend::SuspendState) {
        rule.forget_clients();
        (self.whole, self.by_user) = (rule.stopped(), rule.holds(Suspender::User));
        self.rule = rule;
    }
}

impl SuspensionState {
    /// Whether nodes were told to stop their ranks.
    pub fn is_suspended(&self) -> bool {
        self.rule.stopped()
    }
}

impl Job {
    /// The user wants the job to stand still; with `swap` without its memory.
    pub fn suspend(&mut self, swap: bool, client: ClientHandle) -> Result<(), String> {
        let rule = &self.suspension.rule;
        if rule.holds(Suspender::User) && (rule.swaps() || !swap) {
            return Err(String::from(SUSPENDED));
        }
        let before = rule.swaps();
        if swap {
            self.may_swap()?;
        }
        self.suspension.rule.swap(swap);
        self.suspension.whole &= !swap;
        let held = self.hold(Suspender::User, None, client);
        if held.is_err() {
            self.suspension.rule.swap(before);
        }
        held
    }

    /// A client wants the job to stand still.
    pub fn hold(
        &mut self,
        holder: Suspender,
        lease_ms: Option<u64>,
        client: ClientHandle,
    ) -> Result<(), String> {
        if !self.recovery.monitor.running() || self.saving.under_way.is_some() {
            let phase = if self.saving.under_way.is_some() {
                "being saved"
            } else {
                self.recovery.monitor.phase()
            };
            return Err(format!("it is {phase}"));
        }
        let until = lease_ms.map(|ms| self.clock.now_ms().saturating_add(ms));
        self.suspension.rule.hold(holder, until);
        self.suspension.waiting.push(client);
        self.tend_suspension();
        Ok(())
    }

    /// It may go on, as far as this client is concerned.
    pub fn let_go_on(&mut self, holder: Suspender, client: &ClientHandle) -> Result<(), String> {
        let swapped = self.suspension.rule.swaps();
        let held = self.suspension.rule.release(holder);
        if !held && holder == Suspender::User {
            return Err(String::from("it is running, and not suspended"));
        }
        if held && holder == Suspender::User && self.suspension.rule.wanted() {
            self.journal
                .say("the job is not suspended any more; it goes on in its turn (eyrie share)");
        }
        self.tend_suspension();
        if swapped && !self.suspension.rule.swaps() {
            self.swap_in();
        }
        client.send(&NodeMsg::Done);
        Ok(())
    }

    /// A client's connection is over.
    pub fn client_gone(&mut self, client: u64) {
        if self.suspension.rule.release(Suspender::Client(client)) {
            self.tend_suspension();
        }
        self.forget_scrub(client);
    }

    /// The ranks' clock.
    pub(crate) fn ranks_ms(&self) -> u64 {
        self.suspension.rule.ranks_ms(self.clock.now_ms())
    }

    /// Has the ranks stop or go on, if that is to be.
    pub(crate) fn tend_suspension(&mut self) {
        let now = self.clock.now_ms();
        if self.end.exit_code.is_some() {
            return;
        }
        if self.recovery.monitor.is_ending() {
            self.suspension.rule.release_all();
        }
        if self.suspension.rule.lapse(now) > 0 {
            self.journal
                .say("eyrie share does not say any more that the job is to wait: it goes on");
        }
        let stood = self.suspension.rule.for_ms(now);
        match self.suspension.rule.order(now, self.may_suspend()) {
            Some(SuspendOrder::Stop(turn)) => {
                self.suspension.whole = false;
                self.nodes.to_all(&ToNode::Halt { turn });
            }
            Some(SuspendOrder::GoOn(_)) => {
                self.nodes.to_all(&ToNode::EndHalt);
                self.log_suspension(EventKind::Resumed, stood);
            }
            None => {}
        }
        self.tend_swap();
        self.answer_suspended();
    }

    /// Whether the ranks of all live nodes stand.
    pub(crate) fn all_stand(&self) -> bool {
        let live = (0u32..).zip(&self.nodes.all).filter(|(_, n)| n.is_live()).map(|(node, _)| node);
        self.suspension.rule.whole(live)
    }

    /// Whether nobody waits for the ranks to come to stand for something else.
    fn may_suspend(&self) -> bool {
        let sets = self
            .checkpoints
            .coordinated
            .as_ref()
            .is_some_and(crate::checkpoints::coordinated_model::Coordinated::is_taking);
        let placed = !self.many() || self.recovery.planned;
        let others =
            sets || self.checkpoints.units.are_taking() || self.saving.periodic.cut.is_some();
        placed && !others && self.leaving.nodes.is_empty() && self.saving.under_way.is_none()
    }

    /// Events are for what a user did: turns would flood them.
    fn log_suspension(&mut self, kind: EventKind, took_ms: Option<u64>) {
        if kind == EventKind::Suspended {
            self.suspension.by_user = self.suspension.rule.holds(Suspender::User);
        }
        if self.suspension.by_user {
            let mut event = self.clock.event(kind);
            event.took_ms = took_ms.map(|ms| ms as f64);
            if self.suspension.rule.swaps() {
                event.text = String::from("its memory is out");
            }
            self.journal.log_event(event);
        }
        if kind == EventKind::Resumed {
            self.suspension.by_user = false;
        }
    }

    /// The ranks of a node stand.
    pub(crate) fn node_suspended(&mut self, node: u32, turn: u64, restless: Vec<(u32, String)>) {
        self.suspension.rule.stands(node, turn);
        for (rank, why) in restless {
            self.journal
                .say(format!("rank {rank} runs on for now, as it cannot be stopped: {why}"));
        }
        self.answer_suspended();
    }

    /// The ranks stand, but keep their memory.
    pub(crate) fn not_swapped(&mut self, why: &str) {
        self.suspension.rule.swap(false);
        let text = format!("the job is suspended, but keeps its memory: {why}");
        for client in std::mem::take(&mut self.suspension.waiting) {
            client.send(&NodeMsg::Error(text.clone()));
        }
        self.journal.say(text);
        self.swap_in();
    }

    /// Tells those who wait for what is so now.
    fn answer_suspended(&mut self) {
        let whole = self.all_stand() && (!self.suspension.rule.swaps() || self.is_out());
        if whole && !std::mem::replace(&mut self.suspension.whole, true) {
            let took = self.suspension.rule.for_ms(self.clock.now_ms());
            self.log_suspension(EventKind::Suspended, took);
        }
        let called_off = !self.suspension.rule.wanted();
        let waiting = std::mem::take(&mut self.suspension.waiting);
        for client in waiting {
            if whole {
                client.send(&NodeMsg::Done);
            } else if called_off {
                let text = "it goes on: somebody said so meanwhile, or it ends";
                client.send(&NodeMsg::Error(String::from(text)));
            } else {
                self.suspension.waiting.push(client);
            }
        }
    }

    /// A node joins: its ranks stand as those of the others.
    pub(crate) fn tell_suspended(&self, node: u32) {
        if let Some(turn) = self.suspension.rule.order_for_new() {
            self.nodes.all[node as usize].send(ToNode::Halt { turn });
        }
    }

    pub(crate) fn suspension_status(&self) -> Option<Suspension> {
        let rule = &self.suspension.rule;
        let user = rule.holds(Suspender::User).then(|| String::from("user"));
        let share = rule.is_leased().then(|| String::from("share"));
        let by = user.into_iter().chain(share).collect();
        let for_ms = rule.for_ms(self.clock.now_ms())?;
        Some(Suspension { for_ms, by, whole: self.suspension.whole, swapped: rule.swaps() })
    }
}
