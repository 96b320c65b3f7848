//! Going on with a job whose controller is dead, by its journal.
//!
//! The state is that of the journal. Nodes call, and are told what the dead controller had
//! decided and they had not heard; what they had said and it had not written down they say again.
//! Whoever does not come is lost.
//!
//! Kept true: nothing is decided anew that was decided; what is not needed for that is left alone:
//! ranks that live are not touched.

use crate::clock::Now;
use crate::nodes::model::{Node, State};
use crate::outside::{Lead, Outside};
use crate::status::model::EventLog;
use crate::timers::Timer;
use crate::{BeginError, Job, Place, journal, monitor};
use eyrie_control::auth::Key;
use eyrie_control::message::MAX_DATA_BYTES;
use eyrie_control::{EventKind, NodeMsg, Stream, ToNode};
use eyrie_state::home;
use eyrie_state::stdin_file::Input;
use std::rc::Rc;
use std::time::Duration;

impl Job {
    /// The job as its last controller left it. The head is this controller's already: with its
    /// number, and where it listens.
    pub fn resume(
        place: Place,
        known: journal::Known,
        lead: Option<Rc<dyn Lead>>,
        outside: Outside,
        now: Now,
    ) -> Result<Job, BeginError> {
        let spec = known.head.spec.clone();
        let mut nodes = Vec::new();
        for (record, session) in &known.nodes {
            let adopt = |daemon| outside.launcher.adopt_daemon(daemon);
            let daemon = record.daemon.as_ref().map(adopt).transpose();
            let daemon = daemon.map_err(BeginError::Daemon)?;
            nodes.push(Node::known(record, session.clone(), daemon));
        }
        let mut job = Job::begin(place, spec, None, nodes, outside, now)?;
        lead.into_iter().for_each(|lead| job.lead(lead));
        let was_to_be_saved = known.record.to_be_saved;
        job.take_record(known)?;
        job.go_on(was_to_be_saved);
        Ok(job)
    }

    fn take_record(&mut self, known: journal::Known) -> Result<(), BeginError> {
        let record = known.record;
        let input = self.outside.files.open_input();
        let input = input.and_then(|file| Input::resume(file, &record.input));
        let stdin = self.place.folder.join(home::STDIN);
        self.console.input = input.map_err(|e| BeginError::File(stdin, e))?;
        let (count, last) = known.events;
        self.status.events = EventLog::reopen(&self.outside.files, count, last);
        let begun = known.head.begun_unix_ms;
        self.clock.begun_at(begun);
        (self.nodes.epoch, self.nodes.placement, self.recovery.planned) =
            (record.epoch, record.placement, record.planned);
        (self.recovery.unprotected, self.recovery.starts) = (record.unprotected, record.start);
        (self.recovery.recoveries, self.recovery.rollbacks) = (record.recoveries, record.rollbacks);
        self.console.talk.differences = record.output_differences;
        (self.status.malformed, self.end.exit_code) = (record.malformed, record.exit_code);
        self.leaving.nodes = record.leaves;
        self.suspension.take_over(record.suspension);
        self.checkpoints.router_pauses = record.pauses;
        self.checkpoints.units.take_up(record.unit_snapshots);
        self.take_notices(record.notices, record.here);
        self.saving.periodic.put_off = record.put_off;
        self.gateways.blocks = record.blocks;
        self.recovery.sharing = record.sharing;
        (self.saving.count, self.saving.is_saved, self.saving.restarting) =
            (record.saves, record.is_saved, record.restarting);
        self.take_archive(record.archive)?;
        self.note_flushed();
        (self.recovery.monitor, self.checkpoints.scheduler, self.recovery.planner) =
            (known.monitor, known.scheduler, known.planner);
        self.leave_outdated();
        self.recovery.monitor.console_back();
        self.recovery.monitor.set_reports(self.spec.protection.ft.reports());
        self.ranks.all = known.ranks;
        self.vaults = known.vaults;
        self.checkpoints.coordinated = known.coordinated;
        self.checkpoints.fallback = known.fallback;
        if known.torn > 0 {
            tracing::warn!(
                bytes = known.torn,
                "the journal's last record was torn, and is cut off"
            );
        }
        self.journal.head = Some(known.head);
        Ok(())
    }

    /// Takes up what was under way. `was_to_be_saved`: somebody had asked for that.
    fn go_on(&mut self, was_to_be_saved: bool) {
        let clock = self.clock.now();
        self.renew_journal();
        let mut event = self.clock.event(EventKind::ControllerLost);
        event.count = Some(self.journal.reign());
        event.text = format!("controller {} goes on by the journal", self.journal.reign());
        self.journal.log_event(event);
        self.print_the_rest();
        self.tell_archive();
        self.abandon_round();
        self.ask_at_rest();
        let (known, limit) = (self.console.input.known().0, self.console.input.limit());
        self.console.credit = limit;
        self.journal.tell_console(NodeMsg::StdinFrom { known, limit });
        let detector = self.spec.timing.intervals.detector;
        for node in 0..self.nodes.all.len() as u32 {
            let n = &self.nodes.all[node as usize];
            match n.state {
                State::Lost if !n.cleared => self.clear_node(node, n.cut_off(&detector, clock)),
                State::Lost => {}
                State::Live | State::Joining => self.watch_adopted(node),
            }
        }
        match self.recovery.monitor.phase() {
            "stopping" => self.arm_grace(),
            "saving" if self.was_saved() => {}
            "saving" => {
                self.clear_archive();
                self.step(monitor::Input::NotSaved);
            }
            _ => {
                self.release_stopped_for_nothing();
                // Nobody waits any more for the job to be saved.
                self.end_snapshot_hold();
            }
        }
        if was_to_be_saved && !self.recovery.monitor.is_ending() {
            self.journal.say("the job is not saved, and goes on: its controller died");
        }
        // Nothing is being brought any more.
        self.stop_flush();
        match self.end.exit_code {
            Some(_) => self.outside.machine.over(),
            // What the dead controller would have removed.
            None => self.forget_unneeded(),
        }
        self.begin_gateways();
        // Else when no node brings anything for the dead controller any more (`rejoined`).
        if self.saving.archive.holds() && self.end.exit_code.is_some() {
            self.bring_to_depot();
        }
        self.nodes.grant_output();
        self.nodes.rejoining = Some(clock.moment());
        let limit = Duration::from_millis(self.spec.timing.intervals.limits.rejoin_ms);
        self.arm(limit, Timer::Rejoining);
        self.await_joining();
        self.rejoined();
        self.end_turn();
    }

    /// Nodes that were to join have the time for that anew.
    fn await_joining(&mut self) {
        if !self.recovery.planned {
            return self.await_first();
        }
        let joining = |n: &(u32, &Node)| n.1.state == State::Joining;
        let joining = (0u32..).zip(&self.nodes.all).filter(joining);
        let joining: Vec<_> = joining.map(|(node, n)| (node, n.starts_with())).collect();
        joining.into_iter().for_each(|(node, epoch)| self.arm_late(node, epoch));
    }

    /// Whether a node is to come back. One behind gateways that was with no controller yet is not:
    /// it starts, and may take as long for that as any.
    fn is_to_return(&self, node: u32) -> bool {
        let n = &self.nodes.all[node as usize];
        n.is_awaited() && !(self.spec.placement.clusters.is_behind(node) && n.is_starting())
    }

    /// What the dead controller had taken and the console has not printed.
    fn print_the_rest(&mut self) {
        let printed = crate::journal::state::printed(&self.outside.files);
        for (rank, r) in (0u32..).zip(&self.ranks.all) {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let rest = r.tapes[stream as usize].unprinted(printed(rank, stream));
                for part in rest.chunks(MAX_DATA_BYTES) {
                    self.journal.tell_console(NodeMsg::Output {
                        rank,
                        stream,
                        bytes: part.to_vec(),
                    });
                }
            }
        }
    }

    /// Has the end of a daemon reported that is not our child.
    fn watch_adopted(&mut self, node: u32) {
        let daemon = self.nodes.all[node as usize].daemon.as_ref();
        let Some(daemon) = daemon.filter(|d| !d.left) else { return };
        let watched = self.outside.launcher.watch_adopted(node, daemon.epoch);
        // It is missed when it does not come back.
        let _ = watched.inspect_err(|error| {
            tracing::warn!(node, %error, "its daemon is not watched");
        });
    }

    /// Asks what nodes encrypt with what they store, if this controller does not know.
    fn ask_at_rest(&mut self) {
        if self.outside.launcher.lacks_at_rest() {
            self.nodes.to_all(&ToNode::TellAtRest);
        }
    }

    /// A node has told it.
    pub(crate) fn learn_at_rest(&mut self, key: Key) {
        self.outside.launcher.learn_at_rest(key);
    }

    /// A node is back, or lost: are there more to wait for?
    pub(crate) fn rejoined(&mut self) {
        let clock = self.clock.now();
        let awaited = (0..self.nodes.all.len() as u32).any(|node| self.is_to_return(node));
        let Some(since) = self.nodes.rejoining.take_if(|_| !awaited) else { return };
        let live = self.nodes.all.iter().filter(|n| n.state == State::Live).count();
        let mut event = self.clock.event(EventKind::ControllerBack);
        event.count = Some(live as u64);
        event.took_ms = Some(since.elapsed_ms(clock));
        event.text = format!("{live} nodes are with controller {}", self.journal.reign());
        self.journal.log_event(event);
        if self.saving.archive.holds()
            && self.end.exit_code.is_none()
            && !self.saving.periodic.is_under_way()
        {
            self.bring_to_depot();
        }
    }

    /// The nodes had time enough.
    pub(crate) fn rejoining_over(&mut self) {
        // One that has come and is away again has its own time.
        let late =
            |node: &u32| self.is_to_return(*node) && self.nodes.all[*node as usize].away.is_none();
        let late: Vec<u32> = (0..self.nodes.all.len() as u32).filter(late).collect();
        if self.nodes.rejoining.is_none() {
            return;
        }
        for node in late {
            let epoch = self.nodes.all[node as usize].called();
            self.node_gone(node, epoch, "it did not come back to the new controller");
        }
        self.rejoined();
    }

    /// Kills the controller, as a fault would.
    pub fn inject_controller(&mut self) -> Result<(), String> {
        if self.journal.open.is_none() {
            return Err(String::from(
                "this job ends with its controller: it has no journal (see eyrie run --nodes)",
            ));
        }
        let mut event = self.clock.event(EventKind::Injected);
        event.text = String::from("SIGKILL of the controller");
        self.journal.log_event(event);
        Ok(())
    }
}
