//! The controller of a job: the state behind the daemon, and how the monitor's actions are carried
//! out by its nodes.
//!
//! Kept true: everything here runs on the daemon's main thread and never blocks; tasks and nodes
//! talk to it by `Msg`; the rules are in `monitor`, `scheduler` and `retention`, not here;
//! processes, pipes, segments and images are the nodes' (`agent`).

mod anew;
mod archive;
mod away;
mod beyond;
mod books;
mod checkpoints;
mod commit;
mod cut;
mod death;
mod depot;
mod drain;
mod encoder;
mod failures;
mod fallback;
mod flush;
mod gateways;
pub(crate) mod grow;
mod halt;
mod hurry;
mod in_turn;
mod journal;
mod leave;
mod loss;
mod named;
mod nodes;
mod notice;
mod output;
mod pause;
mod plan;
mod reach;
mod rejoin;
mod repeated;
mod report;
mod resume;
mod room;
mod rounds;
mod saving;
mod seat;
mod set_leave;
mod sets;
mod silence;
mod snapshots;
mod start;
mod suspend;
mod swap;
mod together;
mod unfit;
mod unit_leave;
mod units;
mod vault;
mod verify;
mod ways;

use crate::crew::{Crew, Heard, Wired};
use crate::ha::News;
use crate::input::Input;
use crate::loans::Loans;
use crate::membership::Member;
use crate::monitor::{self, Action, Monitor};
use crate::outlet::Outlet;
use crate::output::Tape;
use crate::placement::Placement;
use crate::recovery::Planner;
use crate::retention::Retention;
use crate::saved::SavedJob;
use crate::scheduler::Scheduler;
use books::Moment;
pub use commit::Reign;
use eyrie_control::node::{FromNode, RankLook, Taken, ToNode};
use eyrie_control::{Event, EventKind, JobSpec, Meta, NodeMsg};
use eyrie_protocol::session::Numbered;
use failures::Failures;
pub use journal::{DaemonBooks, Head, JournalError, point};
pub use nodes::Node;
pub use output::{end_input, take_input};
use report::EventLog;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::{Notify, mpsc};

/// Time for an orderly end after the first signal.
const GRACE: Duration = Duration::from_secs(10);

/// What nodes and tasks tell the main loop.
pub enum Msg {
    Node {
        node: u32,
        message: FromNode,
    },
    /// A node daemon has called and proved itself.
    Connected {
        node: u32,
        epoch: u64,
        wired: Wired,
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
    /// The node had time enough to call again after that, through another gateway.
    HoldOver {
        node: u32,
        epoch: u64,
        line: u64,
        why: String,
    },
    /// After the death of a controller the nodes had time enough to come back.
    RejoiningOver,
    /// All that is to be saved is on disk, so many bytes, or cannot be.
    Archived {
        attempt: u32,
        result: Result<u64, String>,
    },
    /// A node that joins late had time enough.
    LateOver {
        node: u32,
        epoch: u64,
    },
    /// The nodes had time enough to join.
    JoiningOver,
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
        heard: Heard,
    },
    /// Its process has ended.
    GatewayGone {
        cluster: u32,
        number: u64,
    },
    /// It had time enough to listen.
    GatewayLate {
        cluster: u32,
        number: u64,
    },
    /// One that was taken down is gone.
    GatewayEnded {
        cluster: u32,
    },
    /// Another one is to be started.
    GatewayDue {
        cluster: u32,
    },
    /// Of the state in etcd.
    Ha(News),
    /// The console takes output again.
    Room,
    /// The nodes had time enough to say how they are.
    LooksOver {
        ask: u64,
    },
    /// From the thread of the object store.
    InDepot {
        result: Result<crate::depot::Brought, String>,
    },
    /// What is in it, for an attempt to bring something there.
    Surveyed {
        attempt: u32,
        result: Result<Box<crate::depot::There>, String>,
    },
    /// It had time to answer to that.
    SurveyLate {
        attempt: u32,
    },
    /// A state of which nodes have brought parts, so many bytes in all, is in it, or cannot be.
    Committed {
        attempt: u32,
        bytes: u64,
        result: Result<crate::depot::Brought, String>,
    },
    /// Nodes that were told to end had time to say so.
    NoticesOver,
    GraceOver,
    Stop {
        signal: i32,
    },
    ConsoleGone,
}

/// The process of a rank.
#[derive(Serialize, Deserialize)]
struct Proc {
    pid: u32,
    start: u64,
    /// Its output is no longer listened to: it differed.
    mute: bool,
}

/// A start that was ordered and not answered yet.
#[derive(Serialize, Deserialize)]
struct Starting {
    start: u64,
    generation: u32,
    /// It brings back a rank that died.
    recovery: bool,
    /// With what was recorded of it elsewhere.
    moved: bool,
}

/// An image that was taken of a process of a rank.
#[derive(Serialize, Deserialize)]
struct Capture {
    generation: u32,
    /// The planner's number of the process.
    incarnation: u32,
    taken: Box<Taken>,
}

/// A checkpoint as `eyrie status` shows it.
#[derive(Serialize, Deserialize)]
struct Latest {
    at: Moment,
    taken: Box<Taken>,
}

/// One rank. What is skipped is in the journal by itself, or of no weight.
#[derive(Serialize, Deserialize)]
struct Rank {
    proc: Option<Proc>,
    starting: Option<Starting>,
    /// Ended by itself.
    gone: bool,
    #[serde(skip, default = "blank")]
    tapes: [Tape; 2],
    retention: Retention,
    latest: Option<Latest>,
    reason: Option<String>,
    /// Why the last one is on no other node, if for want of that.
    #[serde(skip)]
    partnerless: Option<String>,
    failures: Failures,
    /// Generation under way.
    capturing: Option<u32>,
    /// Of which process of the rank, by the planner's number.
    captured: u32,
    /// Where its image is copied while it is taken.
    partner: Option<Member>,
    /// Nodes that it was lost with and that are not cleared away yet.
    lost: BTreeSet<u32>,
    /// How it is to be brought back, until it is ordered to start.
    order: Option<plan::Order>,
    /// Of ranks that come back together: its image, which is at its home.
    found: Option<Box<Meta>>,
    /// The planner's number of the process that was ordered last.
    incarnation: u32,
    /// An image that does not count yet.
    pending: Option<Capture>,
    recoveries: u64,
    deaths: u64,
    #[serde(skip)]
    injected_at: Option<Instant>,
    died_at: Option<Moment>,
    /// What its node said of it last.
    #[serde(skip)]
    look: RankLook,
    /// Its log as it is written, or was, for `eyrie replay`.
    saving: saving::Saving,
    /// It was killed, or will be, as its recovery unit goes back.
    falls: bool,
    /// It leaves its node.
    moves: rounds::Moves,
    /// The image for which its memory goes out.
    swap: Option<u32>,
    /// What has kept it from being brought back since it ran last.
    trouble: unfit::Trouble,
    /// It is brought back after a pause, as it died again and again.
    later: Option<repeated::Later>,
    /// It is to come back at another node, if there is one.
    elsewhere: bool,
    /// What was said of files that were not as they were.
    said_of_files: BTreeSet<String>,
}

fn blank() -> [Tape; 2] {
    [Tape::new(0), Tape::new(0)]
}

/// Somebody waits for checkpoints.
struct Ask {
    outlet: Option<Outlet>,
    /// The job is to be saved when it has them.
    ends: bool,
    /// One of them did not come about.
    failed: Option<String>,
    /// Rank, and the generation its answer must be newer than.
    left: Vec<(u32, u32)>,
}

/// What the daemon was started with besides the job's description.
pub struct Place {
    pub id: String,
    pub folder: PathBuf,
}

/// One job.
pub struct Job {
    tell: mpsc::UnboundedSender<Msg>,
    console: Outlet,
    place: Place,
    spec: JobSpec,
    nodes: Vec<Node>,
    placement: Placement,
    /// The latest epoch of a node.
    epoch: u64,
    /// Of a job over nodes, from its beginning on.
    planner: Option<Planner>,
    vaults: vault::Vaults,
    /// Ranks were given homes, and all did not go back to the beginning since.
    planned: bool,
    ticked_ms: u64,
    /// Images of which no copy was left, the newest of each rank since all began.
    gone: beyond::AllGone,
    ranks: Vec<Rank>,
    monitor: Monitor,
    scheduler: Scheduler,
    loans: Loans,
    input: Input,
    input_credit: u64,
    events: EventLog,
    /// Those that are to be told when the turn is committed, and what else comes about then.
    told: Vec<Event>,
    commit: commit::Commit,
    /// Of a job that outlives its controller.
    journal: Option<journal::Journal>,
    head: Option<Head>,
    /// For the next record.
    noted: Vec<journal::Entry>,
    /// Ranks that may have changed since the last one.
    touched: BTreeSet<u32>,
    /// What stands in the journal, by its hash.
    written: BTreeMap<journal::Part, u128>,
    /// Since when nodes are awaited that were with the controller before.
    rejoining: Option<Moment>,
    asks: Vec<Ask>,
    /// Of a job over nodes: who starts their daemons.
    crew: Option<Crew>,
    gateways: gateways::Gateways,
    awaited: Vec<grow::Awaited>,
    /// Nodes that are to leave.
    leaves: BTreeMap<u32, leave::Leave>,
    leave_watchers: Vec<drain::Watcher>,
    suspend: Option<suspend::Suspend>,
    halt: halt::Halt,
    notices: notice::Notices,
    /// Checkpoints that routers stop for.
    pauses: eyrie_protocol::pause::Pauses,
    /// `--ft coordinated`.
    together: Option<together::Together>,
    /// `--fallback-every`.
    fallback: fallback::Fallback,
    /// `--ft node`.
    units: units::Units,
    /// Over nodes: what it takes to restart it lies here.
    archive: archive::Archive,
    flush: flush::Flush,
    /// How often the job was saved.
    saves: u32,
    /// What it takes to restart it is on disk.
    is_saved: bool,
    /// Not all ranks of a saved job run again yet.
    restarting: bool,
    looks: report::Looks,
    unprotected: Option<String>,
    verify: Option<verify::Verify>,
    begun: Instant,
    begun_wall: SystemTime,
    /// Number of the latest start of a process.
    start: u64,
    recoveries: u64,
    rollbacks: u64,
    talk: output::Talk,
    pub malformed: u64,
    exit_code: Option<i32>,
    over: Rc<Notify>,
    /// Nodes were told to end.
    winds_up: bool,
}

/// Why a job cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    #[error("{0}")]
    Node(#[from] crate::agent::BeginError),
    #[error("node daemon: {0}")]
    Daemon(std::io::Error),
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    #[error("{0}")]
    Saved(#[from] crate::saved::SavedJobError),
    #[error("{0}")]
    Journal(#[from] JournalError),
    #[error(
        "the ranks that began on one node (--ft node), or in one cluster (--ft cluster), were \
         saved together, and begin together again: go on with as many nodes, or clusters, and \
         ranks laid out as before"
    )]
    Units,
}

fn open_input(place: &Place, saved: Option<&SavedJob>) -> Result<Input, BeginError> {
    let stdin = place.folder.join(crate::home::STDIN);
    let input = match saved {
        Some(saved) => Input::reopen(&stdin, saved.input, &saved.input_hash),
        // Another controller of this job was there before.
        None if stdin.exists() => Input::reopen(&stdin, (0, false), &[0; 16]),
        None => Input::create(&stdin),
    };
    input.map_err(|e| BeginError::File(stdin, e))
}

/// Handle by which tasks reach the job.
pub type Shared = Rc<RefCell<Job>>;

impl Job {
    /// Makes the books of a job on these nodes, or takes those over that were saved; `start_all`
    /// or `restart` starts its ranks.
    pub fn begin(
        place: Place,
        spec: JobSpec,
        saved: Option<SavedJob>,
        nodes: Vec<Node>,
        console: Outlet,
        tell: mpsc::UnboundedSender<Msg>,
    ) -> Result<Shared, BeginError> {
        let job = Job {
            tell,
            console,
            epoch: nodes.len() as u64,
            nodes,
            placement: crate::units::first_placement(&spec),
            planner: None,
            vaults: vault::Vaults::default(),
            planned: false,
            ticked_ms: 0,
            gone: beyond::AllGone::new(),
            ranks: (0..spec.size).map(|_| Rank::new(spec.size, &output::tape(&spec))).collect(),
            monitor: Monitor::new(spec.size, !spec.ft.verifies()),
            scheduler: checkpoints::scheduler(&spec, 0),
            loans: Loans::default(),
            input: open_input(&place, saved.as_ref())?,
            input_credit: 0,
            events: EventLog::open(&place.folder.join(crate::home::EVENTS)),
            told: Vec::new(),
            commit: commit::Commit::default(),
            journal: None,
            head: None,
            noted: Vec::new(),
            touched: BTreeSet::new(),
            written: BTreeMap::new(),
            rejoining: None,
            asks: Vec::new(),
            crew: None,
            gateways: gateways::Gateways::default(),
            awaited: Vec::new(),
            leaves: BTreeMap::new(),
            leave_watchers: Vec::new(),
            suspend: None,
            halt: halt::Halt::default(),
            notices: notice::Notices::default(),
            pauses: Default::default(),
            together: None,
            fallback: fallback::Fallback::default(),
            units: units::Units::new(crate::units::of(&spec)),
            archive: archive::Archive::default(),
            flush: flush::Flush::default(),
            saves: 0,
            is_saved: false,
            restarting: false,
            looks: report::Looks::default(),
            unprotected: None,
            verify: verify::Verify::of(spec.ft),
            begun: Instant::now(),
            begun_wall: SystemTime::now(),
            start: 0,
            recoveries: 0,
            rollbacks: 0,
            talk: output::Talk::default(),
            malformed: 0,
            exit_code: None,
            over: Rc::new(Notify::new()),
            winds_up: false,
            place,
            spec,
        };
        Ok(Rc::new(RefCell::new(job.begun_with(saved))))
    }

    fn begun_with(mut self, saved: Option<SavedJob>) -> Job {
        let elapsed = Duration::from_millis(saved.as_ref().map_or(0, |s| s.elapsed_ms));
        self.begun = self.begun.checked_sub(elapsed).unwrap_or(self.begun);
        self.begun_wall -= elapsed;
        self.begin_together();
        saved.into_iter().for_each(|saved| self.take_over(saved));
        self
    }

    /// Notified once when the job is over; then `exit_code` is set.
    pub fn over(&self) -> Rc<Notify> {
        Rc::clone(&self.over)
    }

    pub fn exit_code(&self) -> Option<i32> {
        self.exit_code
    }

    pub fn keeps_folder(&self) -> bool {
        self.spec.keep
    }

    fn now_ms(&self) -> u64 {
        self.begun.elapsed().as_millis() as u64
    }

    fn size(&self) -> u32 {
        self.spec.size
    }

    fn rank(&mut self, rank: u32) -> &mut Rank {
        self.touched.insert(rank);
        &mut self.ranks[rank as usize]
    }

    /// The process of a rank, if it is the one of that start.
    fn proc(&mut self, rank: u32, start: u64) -> Option<&mut Proc> {
        self.touched.insert(rank);
        self.ranks.get_mut(rank as usize)?.proc.as_mut().filter(|p| p.start == start)
    }

    /// Whether a rank that dies now can be brought back.
    fn protected(&self) -> bool {
        self.spec.ft.protects() && self.unprotected.is_none()
    }

    /// A line for the user.
    pub fn say(&self, text: impl Into<String>) {
        let text = text.into();
        tracing::info!("{text}");
        self.tell_console(NodeMsg::Say(text));
    }

    /// To the console, as soon as what led to it is durable.
    fn tell_console(&self, message: NodeMsg) {
        self.commit.printed.borrow_mut().push(message);
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
            Msg::HungUp { node, epoch, line, why } => self.hung_up(node, epoch, line, why),
            Msg::HoldOver { node, epoch, line, why } => self.hold_over(node, epoch, line, &why),
            Msg::RejoiningOver => self.rejoining_over(),
            Msg::Archived { attempt, result } => self.archived(attempt, result),
            Msg::LateOver { node, epoch } => self.late_over(node, epoch),
            Msg::JoiningOver => self.joining_over(),
            Msg::TurnedAway { why } => self.turned_away(&why),
            Msg::Gone { node, epoch, why } => self.node_gone(node, epoch, &why),
            Msg::Cleared { node, left } => self.cleared(node, left),
            Msg::Gateway { cluster, number, heard } => {
                self.hear_gateway(cluster, number, heard);
            }
            Msg::GatewayGone { cluster, number } => self.gateway_gone(cluster, number),
            Msg::GatewayLate { cluster, number } => self.gateway_late(cluster, number),
            Msg::GatewayEnded { cluster } => self.gateway_ended(cluster),
            Msg::GatewayDue { cluster } => self.gateway_due(cluster),
            Msg::Ha(news) => return self.hear_of_etcd(news),
            Msg::Room => self.grant_output(),
            Msg::LooksOver { ask } => self.looks_over(ask),
            Msg::InDepot { result } => self.in_depot(result),
            Msg::Surveyed { attempt, result } => self.surveyed(attempt, result),
            Msg::SurveyLate { attempt } => self.survey_late(attempt),
            Msg::Committed { attempt, bytes, result } => self.committed(attempt, bytes, result),
            Msg::NoticesOver => self.heed_notices(),
            Msg::GraceOver => self.step(monitor::Input::GraceOver),
            Msg::Stop { signal: libc::SIGTERM | libc::SIGHUP } if self.saves_in_slurm() => {}
            Msg::Stop { signal: libc::SIGTERM } if self.saves_when_told() => {}
            Msg::Stop { signal } => self.stop(signal),
            Msg::ConsoleGone => {
                self.forsake_etcd();
                self.break_verify_off(|| String::from("the command has ended"));
                self.step(monitor::Input::ConsoleGone);
            }
        }
        self.suspend_when_ready();
        self.tend_halt();
        self.schedule();
        self.tend_vault();
        self.tend_leaves();
        if self.rejoining.is_some() {
            self.rejoined();
        }
    }

    /// The user asks the job to end, also so that it can be restarted, or to pass on a signal that
    /// does not end it.
    pub fn stop(&mut self, signal: i32) {
        if signal == libc::SIGQUIT {
            if let Err(why) = self.checkpoint_and_end(None) {
                self.say(format!("the job is not saved: {why}"));
            }
        } else if [libc::SIGUSR1, libc::SIGUSR2].contains(&signal) {
            self.to_all(&ToNode::Signal { signal });
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
            monitor::Input::Unrecoverable { why } if self.restarting && !self.archive.holds() => {
                let text = format!("the job cannot be restarted: {why}");
                monitor::Input::Fatal { text, code: 1 }
            }
            input => input,
        };
        for action in self.monitor.step(input) {
            match action {
                Action::Recover { .. } if self.together.is_some() => self.all_go_back(),
                Action::Recover { rank } => self.recover(rank),
                Action::RecoverLater { rank, pause, elsewhere } => {
                    self.recover_later(rank, pause, elsewhere);
                }
                Action::RestartAll => self.restart_all(),
                Action::GiveUpSnapshot => self.give_up_newest_snapshot(),
                Action::SignalAll(signal) => self.to_all(&ToNode::Signal { signal }),
                Action::KillAll => self.to_all(&ToNode::Signal { signal: libc::SIGKILL }),
                Action::ArmGrace => self.arm_grace(),
                Action::Save => self.save_job(),
                Action::Say(text) => self.say(text),
                Action::End { code } => self.end(code),
            }
        }
    }

    fn arm_grace(&self) {
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(GRACE).await;
            let _ = tell.send(Msg::GraceOver);
        });
    }

    fn end(&mut self, code: i32) {
        if !self.is_saved {
            (0..self.size()).for_each(|rank| self.flush_output(rank));
        }
        // In a verification another run, or a judgement, comes first.
        if let Some(code) = self.verify_next(code) {
            self.ended(code);
        }
    }

    fn ended(&mut self, code: i32) {
        let mut event = self.event(EventKind::Ended);
        event.count = u64::try_from(code).ok();
        self.log_event(event);
        if !self.is_saved && !self.restarting {
            // A job on one node that fails by itself would do so again from its last set.
            let hopeless = !self.many() && !self.monitor.is_hung_up();
            match hopeless || self.monitor.is_given_up() {
                true => self.forget_saved(),
                false => self.leave_saved(),
            }
        }
        self.exit_code = Some(code);
        self.over.notify_one();
    }
}

impl Rank {
    fn new(ranks: u32, tape: &Tape) -> Rank {
        Rank {
            proc: None,
            starting: None,
            gone: false,
            tapes: [tape.clone(), tape.clone()],
            retention: Retention::new(ranks),
            latest: None,
            reason: None,
            partnerless: None,
            failures: Failures::default(),
            capturing: None,
            captured: 0,
            partner: None,
            lost: BTreeSet::new(),
            order: None,
            found: None,
            incarnation: 0,
            pending: None,
            recoveries: 0,
            deaths: 0,
            injected_at: None,
            died_at: None,
            look: RankLook::default(),
            saving: saving::Saving::No,
            falls: false,
            moves: rounds::Moves::default(),
            swap: None,
            trouble: unfit::Trouble::default(),
            later: None,
            elsewhere: false,
            said_of_files: BTreeSet::new(),
        }
    }
}
