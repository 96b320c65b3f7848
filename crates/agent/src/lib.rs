//! A node: the processes of its ranks, their pipes, the job segment and the images. It does what
//! the controller says (`ToNode`) and tells what happens (`FromNode`).
//!
//! Kept true: everything here runs on one thread, the one that forks, and never blocks; threads
//! and tasks talk to it by `Msg`; nothing is decided here.

#![allow(unsafe_code)] // the segment, signals

mod archive;
mod binding;
mod capture;
mod checkpoint;
mod consistent_cut;
mod coordinated;
mod death;
mod death_cause;
mod dying;
mod failures;
mod faults;
mod held_rank;
mod inspect;
mod leader_lease;
mod leave;
mod logs;
mod network;
mod observe;
mod remote_images;
pub mod replay;
mod router_pause;
mod saved_logs;
mod sockets;
mod start;
mod state;
mod streams;
mod suspend;
#[cfg(test)]
mod tests;
mod unit;
mod vault;
mod verify;
mod written_files;

pub use state::network::Network;

use crate::checkpoint::Report;
use crate::state::binding::Binding;
use crate::state::capture::{Capture, Wanted, pool};
use crate::state::cuts::Cuts;
use crate::state::deposits::Deposits;
use crate::state::ending::{self, Ending};
use crate::state::failures::Failures;
use crate::state::image_copy::NotThere;
use crate::state::inspection::Underway;
use crate::state::leaving::{Leaving, There};
use crate::state::logs::Logs;
use crate::state::restart::{Restart, Search};
use crate::state::sockets::{Sockets, Stepped};
use crate::state::standing::{Stand, Standing, Suspension};
use crate::state::streams::Streams;
use crate::state::together::{Copied, Together};
use crate::state::verify::Verify;
use eyrie_control::job::gone_of;
use eyrie_control::node::{Choice, FromNode, ToNode};
use eyrie_control::{JobSpec, Meta, Wtime};
use eyrie_image::{Beginning, Between, Pool, Tap, Watch};
use eyrie_ledger::recording::Recording;
use eyrie_ledger::saved;
use eyrie_ledger::segment::{Geometry, Segment, SegmentError};
use eyrie_process::core_claims::CoreClaims;
use eyrie_process::futex::{self, Bell};
use eyrie_process::reap;
use eyrie_process::spawn::Prefix;
use eyrie_state::sealing;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What threads and tasks tell the node.
pub enum Msg {
    /// The process of `rank` ended.
    Exited { rank: u32, start: u64 },
    /// The end of its process is marked, and was looked at so often.
    Ending { rank: u32, start: u64, looks: u32 },
    /// The process of a rank that was told to have ended is gone.
    Gone { rank: u32, pid: libc::pid_t },
    /// A rank wants to be looked at.
    Bell,
    /// The node is called, or not, that takes an image while it is written.
    Poured { wanted: Wanted, tap: Option<Box<dyn Tap>> },
    /// From a checkpoint thread.
    Checkpoint { rank: u32, generation: u32, start: u64, report: Report },
    /// From a thread that checks images.
    Found { rank: u32, attempt: u64, choice: Choice },
    /// What was recorded of a rank that comes here is held elsewhere again: it may start.
    Ready { rank: u32, start: u64, from: Box<Meta> },
    /// A thread does not read the logs of the segment any more.
    LogsRead,
    /// How a pass found an image.
    Inspected(Box<eyrie_control::vault::Report>),
    /// An image was brought to another node, or not.
    Copied {
        rank: u32,
        start: u64,
        generation: u32,
        taken: Box<crate::checkpoint::Taken>,
        result: Result<(), NotThere>,
    },
    /// The log of a rank was written.
    Saved { rank: u32 },
    /// This node is told to end.
    Notice,
    /// A rank stands still, or cannot be stopped.
    Stopped { rank: u32, start: u64, why: Option<String> },
    /// It goes on, or is dead.
    WentOn { rank: u32, start: u64 },
    /// All ranks go on that stood for a moment, or are dead.
    CutOver { attempt: u32, whole: bool },
    /// What all ranks, which stand still, need of the segment is copied, and what is between them
    /// besides; or not.
    SegmentCopied { generation: u32, copied: Option<Arc<Between>> },
    /// What the ranks of this node, which stand still, have sent is copied, or not.
    SentCopied { generation: u32, copied: io::Result<Copied> },
    /// What had come over connections to other nodes is read.
    FarRead { generation: u32, between: Between },
    /// A step in making the sockets of ranks that come back is done, or cannot be.
    Stepped(Box<Stepped>),
    /// It was written, or not.
    SegmentSaved { name: String, result: Result<u64, String> },
}

/// The process of a rank.
struct Proc {
    pid: libc::pid_t,
    pidfd: Rc<AsyncFd<OwnedFd>>,
    start: u64,
    pipes: [Rc<AsyncFd<OwnedFd>>; 2],
    /// Bytes that came out of the pipes, counted from the program's start.
    written: [u64; 2],
    tasks: Vec<JoinHandle<()>>,
    /// Sees its end before it is gone. None: that is not told.
    watch: Option<ending::Watch>,
    /// The controller knows that it cannot go on.
    said: bool,
    /// ... that it waits to be one unit with others.
    shares: bool,
    /// The kernel's counters when it began.
    before: death_cause::Before,
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// One rank.
#[derive(Default)]
struct Rank {
    proc: Option<Proc>,
    deaths: u64,
    /// Number of its last process.
    last_pid: Option<libc::pid_t>,
    capture: Capture,
    restart: Restart,
    stand: Stand,
    binding: Binding,
    saving: Option<std::thread::JoinHandle<io::Result<u64>>>,
    /// What the node that it moves to has of it.
    there: There,
}

impl Rank {
    /// What is left of it when the job begins anew: another one under its number must not be
    /// touched any more by who touches its process.
    fn forget(&mut self) {
        self.restart.end_search();
        self.capture.call_off();
        let standing = self.stand.standing.take().map(Standing::called_off);
        let (freezing, half_filled) = (self.capture.freezing, self.restart.half_filled);
        *self = Rank {
            deaths: self.deaths,
            last_pid: self.last_pid,
            capture: Capture { freezing, ..Default::default() },
            restart: Restart { half_filled, ..Default::default() },
            stand: Stand { standing, ..Default::default() },
            ..Rank::default()
        };
    }
}

/// What a node is started with besides the job's description.
pub struct Place {
    pub id: String,
    pub images: PathBuf,
    /// Where they are brought when a job on one node is saved, if they are not there.
    pub saved: Option<PathBuf>,
    pub prefix: Prefix,
    /// Of a job that is restarted: what was saved of the segment.
    pub segment: Option<PathBuf>,
}

/// What helps if there are no addresses for it, of which it takes many and hardly any memory, or if
/// no file may be as long.
fn if_limited(error: &SegmentError) -> &'static str {
    match error {
        SegmentError::Os(error) if error.raw_os_error() == Some(libc::ENOMEM) => {
            ": it takes as many addresses as the logs may become long; raise ulimit -v, or make \
             --log-limit smaller"
        }
        SegmentError::Os(error) if error.raw_os_error() == Some(libc::EFBIG) => {
            ": it is a file as long as the logs may become; raise ulimit -f, or make --log-limit \
             smaller"
        }
        _ => "",
    }
}

/// Why a node cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    #[error("{0}{hint}", hint = if_limited(.0))]
    Segment(#[from] SegmentError),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("thread: {0}")]
    Thread(io::Error),
    #[error("{0}: {1}")]
    Saved(PathBuf, saved::SavedError),
    #[error("{0}: it is of another job")]
    Foreign(PathBuf),
}

/// One node.
pub struct Agent {
    this: Weak<RefCell<Agent>>,
    tell: mpsc::UnboundedSender<Msg>,
    /// Where what it says goes.
    out: Arc<dyn Fn(FromNode) + Send + Sync>,
    /// None: there is no other node.
    network: Option<Network>,
    place: Place,
    spec: JobSpec,
    segment: Arc<Segment>,
    segment_file: SegmentFile,
    ranks: Vec<Rank>,
    images: Images,
    processes: Processes,
    streams: Streams,
    phase: Phase,
    /// A checkpoint of all ranks together, until all of them stand still.
    together: Option<Together>,
    cuts: Cuts,
    sockets: Sockets,
    suspension: Suspension,
    verify: Option<Verify>,
    logs: Logs,
    leaving: Leaving,
}

/// What holds the job segment, and hears of it.
struct SegmentFile {
    fd: OwnedFd,
    _bell: Bell,
    /// Ranks whose windows' memory is there again since they, or their units, went back.
    windows: BTreeSet<u32>,
}

/// What belongs to the images of all ranks.
struct Images {
    /// Tells which files ranks write to without keeping them open, where the kernel does.
    watch: Option<Arc<Watch>>,
    /// What files were before ranks began here.
    beginning: Option<Beginning>,
    /// Last processes of ranks that all go back, until they are started.
    anew: BTreeSet<libc::pid_t>,
    /// Where ranks lend and borrow pages of their images.
    pool: Option<Arc<Pool>>,
    /// The pass over the images here.
    inspection: Arc<Underway>,
    deposits: Deposits,
}

/// What belongs to the processes of all ranks.
struct Processes {
    /// Those that have ended and are not gone.
    ending: Ending,
    /// Processors of this machine that ranks here are bound to.
    claims: CoreClaims,
    /// How often it was looked whether a program has another MPI.
    mpi_looks: u32,
    /// Those that are not brought back.
    failures: Failures,
}

/// How far the job is.
#[derive(Default)]
struct Phase {
    unprotected: bool,
    finished: bool,
}

/// Handle by which tasks reach the node.
pub type Shared = Rc<RefCell<Agent>>;

impl Agent {
    /// Makes the segment and the folder for images. `tell` is where its threads and tasks report.
    pub fn begin(
        place: Place,
        spec: JobSpec,
        tell: mpsc::UnboundedSender<Msg>,
        out: Arc<dyn Fn(FromNode) + Send + Sync>,
        network: Option<Network>,
    ) -> Result<Shared, BeginError> {
        let own = network.as_ref().map_or(0, |n| n.own.node);
        let images = place.images.clone();
        let (fd, segment) = match &place.segment {
            Some(path) => load_segment(&place.id, &spec, path)?,
            None => {
                eyrie_image::create_private_dir(&images)
                    .map_err(|e| BeginError::File(images, e))?;
                make_segment(&place.id, &spec, own)?
            }
        };
        let bell = listen(&segment, &tell)?;
        let verify = spec.protection.ft.verifies().then(Verify::default);
        let watch = written_files::watch(&spec, &place.images);
        let beginning = written_files::beginning(&spec, &place, watch.as_deref());
        Ok(Rc::new_cyclic(|this| {
            RefCell::new(Agent {
                this: this.clone(),
                tell,
                out,
                network,
                segment,
                segment_file: SegmentFile { fd, _bell: bell, windows: BTreeSet::new() },
                ranks: (0..spec.program.size).map(|_| Rank::default()).collect(),
                images: Images {
                    watch,
                    beginning,
                    anew: BTreeSet::new(),
                    pool: pool(&spec),
                    inspection: Arc::default(),
                    deposits: Deposits::default(),
                },
                processes: Processes {
                    ending: Ending::default(),
                    claims: CoreClaims::new(&place.id),
                    mpi_looks: 0,
                    failures: Failures::default(),
                },
                streams: Streams::default(),
                phase: Phase::default(),
                together: None,
                cuts: Cuts::default(),
                sockets: Sockets::default(),
                suspension: Suspension::default(),
                verify,
                logs: Logs::default(),
                leaving: Leaving::default(),
                place,
                spec,
            })
        }))
    }

    /// Carries out what the controller says.
    pub fn obey(&mut self, message: ToNode) {
        match message {
            ToNode::Start { rank, start, from, moved } => {
                self.start(rank, start, &from, moved.as_deref());
            }
            ToNode::Find { rank, attempt, generations, fetch } => {
                self.find(rank, Search { attempt, generations, fetch });
            }
            ToNode::Invite { rank, generation, key } => self.invite(rank, generation, key),
            ToNode::Checkpoint(order) => self.order_checkpoint(order),
            ToNode::CheckpointAll { ranks, generation, incremental, hold, segment } => {
                self.checkpoint_all(&ranks, generation, incremental, hold, segment);
            }
            ToNode::CheckpointSet { parts, generation, incremental, hold } => {
                self.checkpoint_set(parts, generation, incremental, hold);
            }
            ToNode::Pause { rank, generation } => self.pause(rank, generation),
            ToNode::Resume { rank, generation } => self.resume(rank, generation),
            ToNode::GoOn { generation, keep } => self.go_on(generation, keep),
            ToNode::ReadFar { generation, joints } => self.read_far(generation, joints),
            ToNode::Rejoin(order) => self.rejoin(order),
            ToNode::Cut { attempt, ranks } => self.begin_cut(attempt, ranks),
            ToNode::CutOver { attempt } => self.end_cut(attempt),
            ToNode::Reload { segment } => self.reload(segment),
            ToNode::Copy { rank, generations, to } => self.copy_images(rank, generations, to),
            ToNode::Vault(order) => self.order_vault(order),
            ToNode::Inspect(order) => self.inspect(order),
            ToNode::TellAtRest => self.tell_at_rest(),
            ToNode::Members { members } => self.set_members(&members),
            ToNode::Homes { homes } => self.set_homes(&homes),
            ToNode::Held { ask, ranks } => self.tell_held(ask, &ranks),
            // The connection sees to that.
            ToNode::Beat { .. } | ToNode::Dismissed => {}
            ToNode::Trim { .. } | ToNode::Release { .. } => self.give_up_logs(message),
            ToNode::Withdraw { rank, generations } => self.withdraw(rank, &generations),
            ToNode::Remove { rank, generations } => self.give_up_images(rank, &generations),
            ToNode::Signal { signal } => self.take_signal(signal),
            ToNode::Kill { ranks } => self.kill(&ranks),
            ToNode::Input { start, bytes } => self.streams.take_input(start, bytes),
            ToNode::InputOver { start } => self.streams.end_input(start),
            ToNode::OutputTaken { bytes } => self.streams.output_taken(bytes),
            ToNode::Unprotect => self.unprotect(),
            ToNode::Renew { epoch, all } => self.renew(epoch, all),
            ToNode::Look { ask, targets } => self.tell_looks(ask, targets),
            ToNode::SaveLog { rank, need, det_pos, output } => {
                self.save_log(rank, need, det_pos, output);
            }
            ToNode::SaveSegment { name } => self.save_segment(name),
            ToNode::Archive { at } => self.set_archive(at),
            ToNode::Deposit { attempt, rank, generations } => {
                self.deposit(attempt, rank, generations);
            }
            ToNode::Ways { attempt, sealed } => self.take_ways(attempt, &sealed),
            ToNode::EndDeposits => self.end_deposits(),
            ToNode::Force { seed } => self.force(seed),
            ToNode::Judge => self.judge(),
            ToNode::Gather { ranks, life } => self.gather(&ranks, life),
            ToNode::Failed { rank } => self.rank_failed(rank),
            ToNode::Finish => self.finish(),
            ToNode::Leaving { round, nodes } => self.hear_leaving(round, &nodes),
            ToNode::LetGo { rank } => self.let_rank_go(rank),
            ToNode::Slow { rank, part } => self.slow(rank, part),
            ToNode::Vacate => self.vacate(),
            ToNode::Depart => self.depart(),
            ToNode::Halt { turn } => self.halt(turn),
            ToNode::EndHalt => self.end_halt(),
            ToNode::Clusters { of, gateway } => self.set_clusters(of, gateway),
            ToNode::Domains { names } => self.set_domains(names),
            ToNode::Yield { rank } => self.leaving.yields(rank),
            ToNode::Units { spec } => self.set_units(*spec),
        }
    }

    /// Takes what a thread or task tells.
    pub fn take(&mut self, message: Msg) {
        match message {
            Msg::Exited { rank, start } => self.process_ended(rank, start),
            Msg::Ending { rank, start, looks } => self.process_ends(rank, start, looks),
            Msg::Gone { rank, pid } => self.process_gone(rank, pid),
            Msg::Bell => self.look(),
            Msg::Poured { wanted, tap } => self.freeze(wanted, tap),
            Msg::Checkpoint { rank, generation, start, report } => {
                self.checkpoint_report(rank, generation, start, report);
            }
            Msg::Found { rank, attempt, choice } => {
                self.say(FromNode::Found { rank, attempt, choice })
            }
            Msg::Ready { rank, start, from } => self.start_ready(rank, start, &from),
            Msg::LogsRead => self.logs_read(),
            Msg::Inspected(found) => self.inspected(*found),
            Msg::Copied { rank, start, generation, taken, result } => {
                self.copied(rank, start, generation, *taken, result);
            }
            Msg::Saved { rank } => self.log_saved(rank),
            Msg::Notice => self.say(FromNode::Notice),
            Msg::Stopped { rank, start, why } => self.rank_stopped(rank, start, why),
            Msg::WentOn { rank, start } => self.rank_went_on(rank, start),
            Msg::CutOver { attempt, whole } => self.cut_over(attempt, whole),
            Msg::SegmentCopied { generation, copied } => self.segment_copied(generation, copied),
            Msg::SentCopied { generation, copied } => self.sent_copied(generation, copied),
            Msg::FarRead { generation, between } => self.far_read(generation, between),
            Msg::Stepped(stepped) => self.step_done(*stepped),
            Msg::SegmentSaved { name, result } => self.say(FromNode::SegmentSaved { name, result }),
        }
    }

    /// Whether the controller's `Finish` was carried out.
    pub fn finished(&self) -> bool {
        self.phase.finished
    }

    fn say(&self, message: FromNode) {
        (self.out)(message);
    }

    fn rank(&mut self, rank: u32) -> &mut Rank {
        &mut self.ranks[rank as usize]
    }

    fn size(&self) -> u32 {
        self.spec.program.size
    }

    /// The program's name and arguments.
    fn argv(&self) -> Vec<OsString> {
        self.spec.program.argv.iter().map(|a| OsString::from_vec(a.clone())).collect()
    }

    /// The process of a rank, if it is the one of that start.
    fn proc(&mut self, rank: u32, start: u64) -> Option<&mut Proc> {
        self.rank(rank).proc.as_mut().filter(|p| p.start == start)
    }

    /// The processes of the ranks.
    fn processes(&self) -> Vec<libc::pid_t> {
        self.ranks.iter().filter_map(|r| Some(r.proc.as_ref()?.pid)).collect()
    }

    /// A signal for all ranks.
    fn take_signal(&mut self, signal: i32) {
        if let Some(gone) = gone_of(signal) {
            return self.take_gone(gone);
        }
        self.signal_all(signal);
        match signal {
            libc::SIGKILL => self.give_up_starts(),
            // Also what has left the groups of the ranks.
            libc::SIGCONT => (0..self.size()).for_each(|rank| self.let_rank_go(rank)),
            _ => {}
        }
    }

    /// Has those that wait for programs know who has ended.
    fn take_gone(&self, gone: u32) {
        self.segment.header().gone.store(gone, Ordering::Release);
        fence(Ordering::SeqCst);
        (0..self.size()).for_each(|rank| self.segment.rank(rank).wake());
    }

    fn signal_all(&self, signal: i32) {
        for proc in self.ranks.iter().filter_map(|r| r.proc.as_ref()) {
            // SAFETY: the process is our child and not collected yet, so number and group are
            // its own; a group that does not exist (any more) is an error without effect.
            unsafe {
                if libc::getpgid(proc.pid) == proc.pid {
                    libc::kill(-proc.pid, signal);
                } else {
                    libc::kill(proc.pid, signal);
                }
            }
        }
    }

    fn kill(&self, ranks: &[u32]) {
        for proc in ranks.iter().filter_map(|r| self.ranks.get(*r as usize)?.proc.as_ref()) {
            // SAFETY: our own child, not collected yet.
            unsafe { libc::kill(proc.pid, libc::SIGKILL) };
        }
    }

    fn unprotect(&mut self) {
        self.phase.unprotected = true;
        self.segment.header().unprotected.store(1, Ordering::Release);
        (0..self.size()).for_each(|rank| futex::ring(&self.segment.rank(rank).doorbell));
    }

    /// The job begins anew: a new segment, and nothing of the ranks. No process is left, as the
    /// controller saw all of them end.
    fn renew(&mut self, epoch: u64, all: bool) {
        self.images.anew = self.ranks.iter().filter_map(|r| r.last_pid.filter(|_| all)).collect();
        self.forget_ranks();
        self.network.iter_mut().for_each(|n| n.own.epoch = epoch);
        if let Err(error) = self.renew_segment() {
            self.say(FromNode::Failed { text: format!("cannot start again: {error}") });
        }
        self.join();
    }

    fn forget_ranks(&mut self) {
        self.logs.begin_anew();
        self.forget_cut();
        self.leaving.begin_anew();
        self.give_up_together();
        self.sockets = Sockets::default();
        self.images.pool.iter().for_each(|p| p.clear());
        self.ranks.iter_mut().for_each(Rank::forget);
    }

    /// The ranks go back to where the segment was written to this file.
    fn reload(&mut self, segment: String) {
        self.forget_ranks();
        let path = self.place.images.join(&segment);
        let loaded = load_segment(&self.place.id, &self.spec, &path)
            .and_then(|(fd, segment)| Ok((listen(&segment, &self.tell)?, fd, segment)));
        let result = match loaded {
            Ok((bell, fd, segment)) => {
                if segment.header().recording().retains() {
                    saved::forget_received(&segment);
                }
                let file = SegmentFile { fd, _bell: bell, windows: BTreeSet::new() };
                (self.segment, self.segment_file) = (segment, file);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        self.say(FromNode::Reloaded { segment, result });
    }

    fn renew_segment(&mut self) -> Result<(), BeginError> {
        let own = self.segment.node();
        let (fd, segment) = make_segment(&self.place.id, &self.spec, own)?;
        let _bell = listen(&segment, &self.tell)?;
        let file = SegmentFile { fd, _bell, windows: BTreeSet::new() };
        (self.segment, self.segment_file) = (segment, file);
        Ok(())
    }

    fn finish(&mut self) {
        if self.processes.ending.puts_off_end() {
            return;
        }
        let left = reap::clear() as u64;
        self.await_deposits();
        self.phase.finished = true;
        self.say(FromNode::Finished { left });
    }
}

fn make_segment(
    id: &str,
    spec: &JobSpec,
    node: u32,
) -> Result<(OwnedFd, Arc<Segment>), BeginError> {
    let verification = spec.protection.ft.verification();
    let recording = match spec.protection.ft.extent() {
        Some(extent) => Recording::of_units(extent),
        None if verification.is_some() => Recording::compared(),
        None => Recording::default(),
    };
    let recording = match spec.protection.clocks {
        Wtime::Plain => recording,
        Wtime::Mpi => recording.with_clock(),
        Wtime::Auto => recording.with_clock().with_libc(),
        Wtime::Logged => recording.with_clock().with_libc().with_threads_clock(),
    };
    let cores = cores(spec);
    let geometry = Geometry::new(spec.program.size, spec.protection.log_limit_bytes);
    let (fd, segment) = Segment::create_on(id, geometry, recording.bits(), cores, node)?;
    segment.header().room.store(spec.program.room(), Ordering::Release);
    if let Some((seed, _)) = verification {
        segment.header().whim.store(seed, Ordering::Relaxed);
    }
    if spec.protection.ft.reports() {
        segment.report_failures();
    }
    state::units::bind_units(&segment, spec);
    Ok((eyrie_process::spawn::high(fd), Arc::new(segment)))
}

/// Cores for the ranks of one node: its share, where all nodes are on this machine.
fn cores(spec: &JobSpec) -> u32 {
    let all = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    if spec.placement.hosts.is_some() { all } else { all / spec.placement.nodes.max(1) }
}

/// The segment of a job that was saved.
fn load_segment(
    id: &str,
    spec: &JobSpec,
    path: &Path,
) -> Result<(OwnedFd, Arc<Segment>), BeginError> {
    let file = sealing::open(path).map_err(|e| BeginError::File(path.into(), e))?;
    let (fd, segment) =
        saved::load_all(&file, id).map_err(|e| BeginError::Saved(path.into(), e))?;
    if segment.geometry() != Geometry::new(spec.program.size, spec.protection.log_limit_bytes) {
        return Err(BeginError::Foreign(path.into()));
    }
    state::units::bind_units(&segment, spec);
    segment.header().cores.store(cores(spec), Ordering::Release);
    segment.header().room.store(spec.program.room(), Ordering::Release);
    Ok((eyrie_process::spawn::high(fd), Arc::new(segment)))
}

fn listen(segment: &Arc<Segment>, tell: &mpsc::UnboundedSender<Msg>) -> Result<Bell, BeginError> {
    let tell = tell.clone();
    let heard = move || drop(tell.send(Msg::Bell));
    Bell::listen(Arc::clone(segment), heard).map_err(BeginError::Thread)
}

/// Serves a node until it has finished: `orders` are the controller's.
pub async fn serve(
    agent: &Shared,
    orders: &mut mpsc::UnboundedReceiver<ToNode>,
    mut told: mpsc::UnboundedReceiver<Msg>,
) {
    // However many messages come.
    let mut ticked = tokio::time::Instant::now();
    while !agent.borrow().finished() {
        agent.borrow_mut().heed_lead();
        if agent.borrow().suspension.given_up {
            return;
        }
        let due = ticked + agent.borrow().next_look();
        tokio::select! {
            biased;
            message = told.recv() => match message {
                Some(message) => agent.borrow_mut().take(message),
                None => return,
            },
            order = orders.recv() => match order {
                Some(order) => agent.borrow_mut().obey(order),
                None => return,
            },
            () = tokio::time::sleep_until(due) => {
                agent.borrow_mut().tick();
                ticked = tokio::time::Instant::now();
            }
        }
    }
}
