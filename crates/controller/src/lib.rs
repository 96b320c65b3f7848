//! The controller of a job: its parts, and the way of an event through them.
//!
//! It is driven from outside (the daemon crate's `serve::drive`, or a simulator): told what the
//! clocks show (`Job::set_now`), given an event (`Job::take`: what nodes and their daemons say,
//! what tasks and threads have done, signals, a timer that is due), and asked for the effects when
//! a turn is over (`Job::end_turn`). Effects (`journal::commit::Effects`) are orders to nodes,
//! confirmations and grants, events, lines and output for the console, answers to clients, and lost
//! nodes to be cleared away. None comes about before the journal has the record of its turn.
//!
//! | part | owns |
//! |---|---|
//! | `nodes` | the nodes and their sessions, which ranks are on each, links that are missed |
//! | `ranks` | what is known of each rank |
//! | `recovery` | the monitor and the planner: who comes back where, from what |
//! | `checkpoints` | the scheduler, who waits for checkpoints, coordinated and fallback snapshots |
//! | `vault` | generations with parity, the round that is under way, scrubs |
//! | `leaving` | nodes that drain or migrate, notices of their machines |
//! | `saving` | the job on disk: saved whole, now and then, in an object store |
//! | `suspension` | who has the job stand still, memory that is swapped out |
//! | `gateways` | the gateways of clusters, and which clusters are blocked |
//! | `journal` | what a successor needs, and what waits for it to be durable |
//! | `console`, `status` | input, output; events and what clients ask |
//! | `clock`, `timers` | the time as it was given, and what is due when |
//!
//! What a part knows stands in the `model` files of its folder, which know nothing of `Job`; what
//! the job decides by it stands in the others.
//!
//! Kept true: everything here runs on one thread and never blocks on a node; no clock is read,
//! nothing sleeps, no file is opened, no thread or process is started: all of that is asked of
//! `outside`, which the daemon crate has, or which is in memory (`memory`); the rules are in
//! `monitor`, `scheduler` and `retention`, not here; processes, pipes, segments and images are the
//! nodes' (`agent`).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::unwrap_used, clippy::expect_used))]

mod beside;
pub(crate) mod checkpoints;
pub(crate) mod clock;
pub(crate) mod console;
pub(crate) mod gateways;
pub mod journal;
pub(crate) mod leaving;
#[cfg(any(test, feature = "testing"))]
pub mod memory;
pub mod monitor;
pub(crate) mod nodes;
pub mod outside;
pub(crate) mod ranks;
pub(crate) mod recovery;
pub(crate) mod saving;
pub(crate) mod status;
pub(crate) mod suspension;
pub(crate) mod timers;
pub(crate) mod vault;
pub(crate) mod verify;

pub(crate) use crate::checkpoints::model::Ask;
use crate::journal::Journaling;
use crate::monitor::{Action, Monitor};
use clock::Clock;
pub use clock::Now;
use eyrie_control::gateway::GatewayEvent;
use eyrie_control::ha::News;
use eyrie_control::node::{FromNode, ToNode};
use eyrie_control::signals::{SIGHUP, SIGKILL, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use eyrie_control::{EventKind, JobSpec, NodeMsg};
use eyrie_protocol::session::Numbered;
use eyrie_state::saved_job::SavedJob;
use eyrie_state::stdin_file::Input;
pub use journal::JournalError;
pub use nodes::model::Node;
use outside::{Brought, NodeLine, Outside};
/// What a state that is saved consists of.
pub mod saved {
    pub use crate::saving::archive::{needed, settle, stored_ranks};
}
pub(crate) use ranks::{Capture, Latest, Proc, Rank, Starting};
use status::model::EventLog;
use std::path::PathBuf;
use std::time::Duration;
pub use timers::Timer;
use timers::Timers;

/// What nodes and tasks tell the controller.
pub enum Msg {
    Node {
        node: u32,
        message: FromNode,
    },
    /// A node daemon has called and proved itself.
    Connected {
        node: u32,
        epoch: u64,
        wired: Box<dyn NodeLine>,
    },
    /// What it says on that connection.
    Framed {
        node: u32,
        line: u64,
        frame: Numbered<FromNode>,
    },
    /// The connection is over.
    HungUp {
        node: u32,
        epoch: u64,
        line: u64,
        why: String,
    },
    /// All that is to be saved is on disk, so many bytes, or cannot be.
    Archived {
        attempt: u32,
        result: Result<u64, String>,
    },
    /// Somebody called who did not.
    TurnedAway {
        why: String,
    },
    /// A node daemon, or the connection to it, is gone.
    Gone {
        node: u32,
        epoch: u64,
        why: String,
    },
    /// Of a lost node, so many processes are left.
    Cleared {
        node: u32,
        left: usize,
    },
    /// A gateway, by its cluster and the number of its start, says something, or nothing.
    Gateway {
        cluster: u32,
        number: u64,
        heard: GatewayEvent,
    },
    /// Its process has ended.
    GatewayGone {
        cluster: u32,
        number: u64,
    },
    /// One that was taken down is gone.
    GatewayEnded {
        cluster: u32,
    },
    /// Of the state in etcd.
    Ha(News),
    /// The console takes output again.
    Room,
    /// From the thread of the object store.
    InDepot {
        result: Result<Brought, String>,
    },
    /// It is known what is in it, for an attempt to bring something there.
    Surveyed {
        attempt: u32,
        result: Result<(), String>,
    },
    /// A state of which nodes have brought parts, so many bytes in all, is in it, or cannot be.
    Committed {
        attempt: u32,
        bytes: u64,
        result: Result<Brought, String>,
    },
    /// What was armed is due.
    Timer(Timer),
    Stop {
        signal: i32,
    },
    ConsoleGone,
}

/// What the daemon was started with besides the job's description.
pub struct Place {
    pub id: String,
    /// The job's. What is in it is reached by `outside::Files`.
    pub folder: PathBuf,
}

/// The end of the job.
#[derive(Default)]
pub(crate) struct Ending {
    exit_code: Option<i32>,
    /// Nodes were told to end.
    winds_up: bool,
}

/// One job: its parts, each of which owns its state.
pub struct Job {
    place: Place,
    spec: JobSpec,
    clock: Clock,
    timers: Timers,
    outside: Outside,
    nodes: nodes::membership::Nodes,
    ranks: ranks::Ranks,
    recovery: recovery::model::Recovery,
    checkpoints: checkpoints::model::Checkpoints,
    vaults: vault::model::Vaults,
    journal: journal::Journaling,
    gateways: gateways::model::Gateways,
    leaving: leaving::model::Departures,
    suspension: suspension::SuspensionState,
    saving: saving::model::Saving,
    console: console::Console,
    status: status::model::Status,
    verify: Option<verify::Verify>,
    end: Ending,
}

/// Why a job cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    #[error("node daemon: {0}")]
    Daemon(std::io::Error),
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    #[error("{0}")]
    Saved(#[from] eyrie_state::saved_job::SavedJobError),
    #[error("the network between the nodes, {0}")]
    Network(#[from] eyrie_topo::reader::ReadError),
}

fn open_input(
    place: &Place,
    outside: &Outside,
    saved: Option<&SavedJob>,
) -> Result<Input, BeginError> {
    let files = &outside.files;
    let reopen = |known, hash| Input::reopen(files.open_input()?, known, hash);
    let input = match saved {
        Some(saved) => reopen(saved.input, &saved.input_hash),
        // Another controller of this job was there before.
        None if files.length(eyrie_state::home::STDIN).is_some() => reopen((0, false), &[0; 16]),
        None => files.create_input().map(Input::new),
    };
    input.map_err(|e| BeginError::File(place.folder.join(eyrie_state::home::STDIN), e))
}

impl Journaling {
    /// A line for the user.
    pub fn say(&self, text: impl Into<String>) {
        let text = text.into();
        tracing::info!("{text}");
        self.tell_console(NodeMsg::Say(text));
    }

    /// To the console, as soon as what led to it is durable.
    pub fn tell_console(&self, message: NodeMsg) {
        self.commit.printed.borrow_mut().push(message);
    }
}

impl Job {
    /// Makes the books of a job on these nodes, or takes those over that were saved; `start_all`
    /// or `restart` starts its ranks.
    pub fn begin(
        place: Place,
        spec: JobSpec,
        saved: Option<SavedJob>,
        nodes: Vec<Node>,
        outside: Outside,
        now: Now,
    ) -> Result<Job, BeginError> {
        let elapsed = Duration::from_millis(saved.as_ref().map_or(0, |s| s.elapsed_ms));
        let input = open_input(&place, &outside, saved.as_ref())?;
        let events = EventLog::open(&outside.files);
        let placement = eyrie_state::units::first_placement(&spec);
        let topology = recovery::network::Topology::of(&spec)?;
        let ranks =
            (0..spec.program.size).map(|_| Rank::new(spec.program.size, &console::tape(&spec)));
        let job = Job {
            clock: Clock::new(now, elapsed),
            timers: Timers::default(),
            nodes: nodes::membership::Nodes::new(nodes, placement),
            ranks: ranks::Ranks::new(ranks.collect()),
            recovery: recovery::model::Recovery {
                topology,
                ..recovery::model::Recovery::new(Monitor::new(
                    spec.program.size,
                    !spec.protection.ft.verifies(),
                ))
            },
            checkpoints: checkpoints::model::Checkpoints::new(&spec),
            vaults: vault::model::Vaults::default(),
            journal: journal::Journaling { verbose: spec.program.verbose, ..Default::default() },
            gateways: gateways::model::Gateways::default(),
            leaving: leaving::model::Departures::default(),
            suspension: suspension::SuspensionState::default(),
            saving: saving::model::Saving::default(),
            console: console::Console::new(outside.console.clone(), input),
            status: status::model::Status::new(events),
            verify: spec.protection.ft.verification().map(verify::Verify::new),
            end: Ending::default(),
            outside,
            place,
            spec,
        };
        Ok(job.begun_with(saved))
    }

    fn begun_with(mut self, saved: Option<SavedJob>) -> Job {
        self.begin_coordinated();
        self.recovery.monitor.set_reports(self.spec.protection.ft.reports());
        saved.into_iter().for_each(|saved| self.take_over(saved));
        self
    }

    /// What the clocks show from now on.
    pub fn set_now(&self, now: Now) {
        self.clock.set(now);
    }

    /// There is one when the job is over (`outside::Machine::over`).
    pub fn exit_code(&self) -> Option<i32> {
        self.end.exit_code
    }

    pub fn keeps_folder(&self) -> bool {
        self.spec.storage.keep
    }

    fn size(&self) -> u32 {
        self.spec.program.size
    }

    /// Whether a rank that dies now can be brought back.
    fn protected(&self) -> bool {
        self.spec.protection.ft.protects() && self.recovery.unprotected.is_none()
    }

    /// A line for the user.
    pub fn say(&self, text: impl Into<String>) {
        self.journal.say(text);
    }

    pub fn spec(&self) -> &JobSpec {
        &self.spec
    }

    /// Takes one message.
    pub fn take(&mut self, message: Msg) {
        match message {
            Msg::Node { node, message } => self.hear(node, message),
            Msg::Connected { node, epoch, wired } => self.connected(node, epoch, wired),
            Msg::Framed { node, line, frame } => self.framed(node, line, frame),
            Msg::HungUp { node, epoch, line, why } => self.connection_ended(node, epoch, line, why),
            Msg::Archived { attempt, result } => self.archived(attempt, result),
            Msg::TurnedAway { why } => self.status.turned_away(&why),
            Msg::Gone { node, epoch, why } => self.node_gone(node, epoch, &why),
            Msg::Cleared { node, left } => self.cleared(node, left),
            Msg::Gateway { cluster, number, heard } => {
                self.hear_gateway(cluster, number, heard);
            }
            Msg::GatewayGone { cluster, number } => self.gateway_gone(cluster, number),
            Msg::GatewayEnded { cluster } => self.gateway_ended(cluster),
            Msg::Ha(news) => return self.hear_of_etcd(news),
            Msg::Room => self.nodes.grant_output(),
            Msg::InDepot { result } => self.in_depot(result),
            Msg::Surveyed { attempt, result } => self.surveyed(attempt, result),
            Msg::Committed { attempt, bytes, result } => self.committed(attempt, bytes, result),
            Msg::Timer(timer) => self.fire(timer),
            Msg::Stop { signal: SIGTERM | SIGHUP } if self.saves_in_batch() => {}
            Msg::Stop { signal: SIGTERM } if self.saves_when_told() => {}
            Msg::Stop { signal } => self.stop(signal),
            Msg::ConsoleGone => {
                self.forsake_etcd();
                self.break_verify_off(|| String::from("the command has ended"));
                self.step(monitor::Input::ConsoleGone);
            }
        }
        self.save_when_ready();
        self.tend_suspension();
        self.schedule();
        self.tend_vault();
        self.tend_leaves();
        if self.nodes.rejoining.is_some() {
            self.rejoined();
        }
    }

    /// The user asks the job to end, also so that it can be restarted, or to pass on a signal that
    /// does not end it.
    pub fn stop(&mut self, signal: i32) {
        if signal == SIGQUIT {
            if let Err(why) = self.checkpoint_and_end(None) {
                self.journal.say(format!("the job is not saved: {why}"));
            }
        } else if [SIGUSR1, SIGUSR2].contains(&signal) {
            self.console.talk.passed.push(signal);
            self.nodes.to_all(&ToNode::Signal { signal });
        } else {
            self.forsake_etcd();
            self.break_verify_off(|| format!("it was stopped by signal {signal}"));
            self.step(monitor::Input::Stop { signal });
        }
    }

    /// The user gives the job up, with all that is saved of it.
    pub fn abort(&mut self) {
        self.forsake_etcd();
        self.break_verify_off(|| String::from("it was aborted"));
        self.step(monitor::Input::Abort);
    }

    /// The job cannot go on.
    fn fatal(&mut self, text: String) {
        self.break_verify_off(|| text.clone());
        self.step(monitor::Input::Fatal { text, code: 1 });
    }

    /// Gives the monitor an input and carries out what it says.
    fn step(&mut self, input: monitor::Input) {
        let input = match input {
            // What is saved is not given up for the beginning.
            monitor::Input::Unrecoverable { why }
                if self.saving.restarting && !self.saving.archive.holds() =>
            {
                let text = format!("the job cannot be restarted: {why}");
                monitor::Input::Fatal { text, code: 1 }
            }
            input => input,
        };
        for action in self.recovery.monitor.step(input) {
            match action {
                Action::Recover { rank } => self.bring_back(rank),
                Action::RecoverLater { rank, pause, elsewhere } => {
                    self.recover_later(rank, pause, elsewhere);
                }
                Action::Report { rank } => self.report(rank),
                Action::RestartAll => self.restart_all(),
                Action::Regroup => self.regroup(),
                Action::GiveUpSnapshot => self.give_up_newest_snapshot(),
                Action::SignalAll(signal) => self.nodes.to_all(&ToNode::Signal { signal }),
                Action::KillAll => self.nodes.to_all(&ToNode::Signal { signal: SIGKILL }),
                Action::ArmGrace => self.arm_grace(),
                Action::Save => self.save_job(),
                Action::Say(text) => self.journal.say(text),
                Action::End { code } => self.end(code),
            }
        }
    }

    fn fire(&mut self, timer: Timer) {
        match timer {
            Timer::Reconnect { node, epoch, line, why } => {
                self.reconnect_overdue(node, epoch, line, &why);
            }
            Timer::Rejoining => self.rejoining_over(),
            Timer::LateNode { node, epoch } => self.late_over(node, epoch),
            Timer::Joining => self.joining_over(),
            Timer::GatewayLate { cluster, number } => self.gateway_late(cluster, number),
            Timer::GatewayDue { cluster } => self.gateway_due(cluster),
            Timer::Looks { ask } => self.looks_over(ask),
            Timer::Survey { attempt } => self.survey_late(attempt),
            Timer::Notices => self.heed_notices(),
            Timer::Grace => self.step(monitor::Input::GraceOver),
            Timer::Unhandled { rank, failures } => self.unhandled(rank, failures),
        }
    }

    /// Has something told so long from now on.
    fn arm(&mut self, after: Duration, timer: Timer) {
        let now = self.clock.now();
        self.timers.arm(now.steady.saturating_add(after), timer);
    }

    /// A timer that is due: it is to be taken as a message.
    pub fn due_timer(&mut self) -> Option<Msg> {
        self.timers.due(self.clock.now().steady).map(Msg::Timer)
    }

    /// How long until the next timer is due.
    pub fn next_timer(&self) -> Duration {
        let now = self.clock.now();
        self.timers.next().map_or(Duration::MAX, |at| at.saturating_sub(now.steady))
    }

    fn arm_grace(&mut self) {
        let grace = Duration::from_millis(self.spec.timing.intervals.grace.end_ms);
        self.arm(grace, Timer::Grace);
    }

    fn end(&mut self, code: i32) {
        if !self.saving.is_saved {
            (0..self.size()).for_each(|rank| self.flush_output(rank));
        }
        // In a verification another run, or a judgement, comes first.
        if let Some(code) = self.verify_next(code) {
            self.ended(code);
        }
    }

    fn ended(&mut self, code: i32) {
        let mut event = self.clock.event(EventKind::Ended);
        event.count = u64::try_from(code).ok();
        self.journal.log_event(event);
        if !self.saving.is_saved && !self.saving.restarting {
            // A job on one node that fails by itself would do so again from its last set.
            let hopeless = !self.many() && !self.recovery.monitor.is_hung_up();
            match hopeless || self.recovery.monitor.is_given_up() {
                true => self.forget_saved(),
                false => self.leave_saved(),
            }
        }
        self.end.exit_code = Some(code);
        self.outside.machine.over();
    }
}
