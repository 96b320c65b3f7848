//! A node: the processes of its ranks, their pipes, the job segment and the images. It does what
//! the controller says (`ToNode`) and tells what happens (`FromNode`).
//!
//! Kept true: everything here runs on one thread, the one that forks, and never blocks; threads
//! and tasks talk to it by `Msg`; nothing is decided here.

mod archive;
mod binding;
mod capture;
mod cause;
mod cut;
mod death;
mod elsewhere;
mod files;
mod going;
mod halt;
mod inspect;
mod leave;
mod look;
mod network;
mod pause;
mod saving;
mod sockets;
mod start;
mod streams;
#[cfg(test)]
mod tests;
mod together;
mod unfit;
mod unit;
mod unled;
mod vault;
mod verify;

pub(crate) use death::check_image_knowing;
pub(crate) use network::Network;
pub(crate) use unfit::{is_full, is_unread, lacks};

use crate::checkpoint::Report;
use crate::claims::Claims;
use crate::cores::Set;
use crate::futex::{self, Bell};
use crate::hold::Hold;
use crate::reap;
use crate::sealing;
use crate::spawn::Prefix;
use crate::units;
use eyrie_control::node::{Choice, FromNode, ToNode};
use eyrie_control::{Ft, JobSpec, Meta, Wtime};
use eyrie_image::{Between, Filling, MadeSockets, Pool, Tap, Tracker, Watch};
use eyrie_ledger::saved;
use eyrie_ledger::segment::{self, Geometry, Segment, SegmentError};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::unix::AsyncFd;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// What threads and tasks tell the node.
pub(crate) enum Msg {
    /// The process of `rank` ended.
    Exited { rank: u32, start: u64 },
    /// The end of its process is marked, and was looked at so often.
    Ending { rank: u32, start: u64, looks: u32 },
    /// The process of a rank that was told to have ended is gone.
    Gone { rank: u32, pid: libc::pid_t },
    /// A rank wants to be looked at.
    Bell,
    /// The node is called, or not, that takes an image while it is written.
    Poured { wanted: capture::Wanted, tap: Option<Box<dyn Tap>> },
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
        result: Result<(), network::NotThere>,
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
    SentCopied { generation: u32, copied: std::io::Result<together::Copied> },
    /// What had come over connections to other nodes is read.
    FarRead { generation: u32, between: Between },
    /// A step in making the sockets of ranks that come back is done, or cannot be.
    Stepped(Box<sockets::Stepped>),
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
    _watch: Option<going::Watch>,
    /// The controller knows that it cannot go on.
    said: bool,
    /// The kernel's counters when it began.
    before: cause::Before,
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Replay {
    No,
    /// Restored; the library has not said yet that it replays.
    Expected,
    Seen,
}

/// One rank.
struct Rank {
    proc: Option<Proc>,
    deaths: u64,
    /// What is known of its last image; away while a checkpoint is taken.
    tracker: Option<Box<Tracker>>,
    /// An image that it may build on turned out to be damaged.
    anew: bool,
    /// Generations whose files turned out to be damaged while one is taken.
    spoilt: BTreeSet<u32>,
    /// Generation under way.
    capturing: Option<u32>,
    /// The checkpoint thread may still touch the process, whose start this is, and its control
    /// block.
    freezing: Option<u64>,
    /// Ends what is stored of it before it is stopped for that.
    ahead: Option<Arc<AtomicBool>>,
    /// Ends what is stored of it while it stands still for that.
    storing: Option<Arc<AtomicBool>>,
    /// Images are to be looked for when that is over.
    find_later: Option<death::Search>,
    /// They are being looked for.
    search: Option<death::Over>,
    replay: Replay,
    /// Its process runs before all of its memory is there.
    filling: Option<Filling>,
    /// The last one died before all of its memory was there.
    half_filled: bool,
    /// Number of its last process.
    last_pid: Option<libc::pid_t>,
    saving: Option<saving::Thread>,
    /// Number of a start that waits for that.
    preparing: Option<u64>,
    /// Processors that it was bound to.
    bound: Option<Set>,
    /// Whether others use them.
    pressed: binding::Pressed,
    /// Where the image that is being taken is to be copied.
    copy: Option<network::Copy>,
    /// It stays stopped after an image, or is to.
    hold: Option<Arc<Hold>>,
    /// It stands still with the job, or now and then as it is slowed down.
    standing: Option<halt::Standing>,
    /// It is to run one part in so many of the time.
    slowed: Option<u32>,
    /// A checkpoint that it is let go for, and who takes its image.
    later: Option<(capture::Wanted, Option<Box<dyn Tap>>)>,
    /// What the node that it moves to has of it.
    there: leave::There,
    /// Why it could not be stopped.
    restless: Option<String>,
    /// Those of its image, until it is started from that.
    sockets: MadeSockets,
}

impl Rank {
    fn new() -> Rank {
        Rank {
            proc: None,
            deaths: 0,
            tracker: None,
            anew: false,
            spoilt: BTreeSet::new(),
            capturing: None,
            freezing: None,
            ahead: None,
            storing: None,
            find_later: None,
            search: None,
            replay: Replay::No,
            filling: None,
            half_filled: false,
            last_pid: None,
            saving: None,
            bound: None,
            pressed: binding::Pressed::default(),
            copy: None,
            hold: None,
            standing: None,
            slowed: None,
            later: None,
            there: leave::There::default(),
            restless: None,
            sockets: MadeSockets::default(),
            preparing: None,
        }
    }

    /// What is being stored of its process, while that runs or stands still for it, is not wanted
    /// any more.
    fn call_off(&self) {
        let all = self.ahead.iter().chain(&self.storing);
        all.for_each(|off| off.store(true, Ordering::Relaxed));
    }

    /// Images are not looked for any more.
    fn end_search(&mut self) {
        self.find_later = None;
        self.search.take().into_iter().for_each(|over| over.store(true, Ordering::SeqCst));
    }
}

/// What a node is started with besides the job's description.
pub(crate) struct Place {
    pub id: String,
    pub images: PathBuf,
    pub prefix: Prefix,
    /// Of a job that is restarted: what was saved of the segment.
    pub segment: Option<PathBuf>,
}

/// Why a node cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    #[error("job segment: {0}")]
    Segment(#[from] SegmentError),
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    #[error("thread: {0}")]
    Thread(std::io::Error),
    #[error("{0}: {1}")]
    Saved(PathBuf, saved::SavedError),
    #[error("{0}: it is of another job")]
    Foreign(PathBuf),
}

/// One node.
pub(crate) struct Agent {
    this: Weak<RefCell<Agent>>,
    tell: mpsc::UnboundedSender<Msg>,
    /// Where what it says goes.
    out: Arc<dyn Fn(FromNode) + Send + Sync>,
    /// Tells which files ranks write to without keeping them open, where the kernel does.
    watch: Option<Arc<Watch>>,
    /// None: there is no other node.
    network: Option<Network>,
    place: Place,
    spec: JobSpec,
    argv: Vec<OsString>,
    segment: Arc<Segment>,
    segment_fd: OwnedFd,
    _bell: Bell,
    ranks: Vec<Rank>,
    /// Processors of this machine that ranks here are bound to.
    claims: Claims,
    /// Where ranks lend and borrow pages of their images.
    pool: Option<Arc<Pool>>,
    flow: Rc<streams::Flow>,
    feed: Option<streams::Feed>,
    ahead: Option<streams::Ahead>,
    unprotected: bool,
    /// A checkpoint of all ranks together, until all of them stand still.
    together: Option<together::Together>,
    /// All ranks are stopped for a moment.
    cut: Option<cut::Cut>,
    /// They are to be, as soon as nobody holds one of them.
    cut_later: Option<cut::Due>,
    /// The ranks are to stand still, also those to come.
    halt: Option<halt::Halt>,
    /// Since when they are to, as another controller may have followed this node's.
    unled: Option<std::time::Instant>,
    /// All of this node is ended, as they did not come to stand.
    given_up: bool,
    verify: Option<verify::Verify>,
    /// Threads that read the logs of the segment; nothing of those is released meanwhile.
    reading_logs: u32,
    deposits: archive::Deposits,
    /// The pass over the images here.
    inspection: Arc<inspect::Underway>,
    trims: Vec<ToNode>,
    /// Source, receiver, position: acknowledgements for what is not written again yet.
    early: Vec<(u32, u32, u64)>,
    finished: bool,
    /// Nothing of the job is to stay here.
    departs: bool,
    /// All processes of ranks are being ended, which is to be told.
    vacating: bool,
    /// This node is to leave.
    leaves: bool,
    /// Whether the sockets of a set were made.
    wired: sockets::Wired,
    /// Over nodes: they are being made.
    work: Option<sockets::Work>,
    /// Ranks that were here when they were told to leave for good.
    vacated: Vec<u32>,
    going: going::Going,
    /// How often it was looked whether a program has another MPI.
    mpi_looks: u32,
}

/// Handle by which tasks reach the node.
pub(crate) type Shared = Rc<RefCell<Agent>>;

impl Agent {
    /// Makes the segment and the folder for images. `tell` is where its threads and tasks report.
    pub fn begin(
        place: Place,
        spec: JobSpec,
        tell: mpsc::UnboundedSender<Msg>,
        out: Arc<dyn Fn(FromNode) + Send + Sync>,
        network: Option<Network>,
    ) -> Result<Shared, BeginError> {
        let watch = files::watch(&spec, &place.images);
        let own = network.as_ref().map_or(0, |n| n.own.node);
        let images = place.images.clone();
        let (segment_fd, segment) = match &place.segment {
            Some(path) => load_segment(&place.id, &spec, path)?,
            None => {
                eyrie_image::create_private_dir(&images)
                    .map_err(|e| BeginError::File(images, e))?;
                make_segment(&place.id, &spec, own)?
            }
        };
        let bell = listen(&segment, &tell)?;
        let verify = spec.ft.verifies().then(verify::Verify::default);
        Ok(Rc::new_cyclic(|this| {
            RefCell::new(Agent {
                this: this.clone(),
                tell,
                out,
                network,
                argv: spec.argv.iter().map(|a| OsString::from_vec(a.clone())).collect(),
                segment,
                segment_fd,
                _bell: bell,
                ranks: (0..spec.size).map(|_| Rank::new()).collect(),
                claims: Claims::new(&place.id),
                pool: capture::pool(&spec),
                flow: Rc::default(),
                feed: None,
                ahead: None,
                unprotected: false,
                together: None,
                cut: None,
                cut_later: None,
                halt: None,
                unled: None,
                given_up: false,
                verify,
                reading_logs: 0,
                deposits: archive::Deposits::default(),
                inspection: Arc::default(),
                trims: Vec::new(),
                early: Vec::new(),
                finished: false,
                departs: false,
                vacating: false,
                leaves: false,
                vacated: Vec::new(),
                wired: None,
                work: None,
                going: going::Going::default(),
                watch,
                mpi_looks: 0,
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
                self.find(rank, death::Search { attempt, generations, fetch });
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
            ToNode::Input { start, bytes } => self.take_input(start, bytes),
            ToNode::InputOver { start } => self.end_input(start),
            ToNode::OutputTaken { bytes } => self.flow.taken(bytes),
            ToNode::Unprotect => self.unprotect(),
            ToNode::Renew { epoch } => self.renew(epoch),
            ToNode::Look { ask } => self.tell_looks(ask),
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
            ToNode::Yield { rank } => self.yield_rank(rank),
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
        self.finished
    }

    fn say(&self, message: FromNode) {
        (self.out)(message);
    }

    fn rank(&mut self, rank: u32) -> &mut Rank {
        &mut self.ranks[rank as usize]
    }

    fn size(&self) -> u32 {
        self.spec.size
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
        self.signal_all(signal);
        match signal {
            libc::SIGKILL => self.give_up_starts(),
            // Also what has left the groups of the ranks.
            libc::SIGCONT => (0..self.size()).for_each(|rank| self.let_rank_go(rank)),
            _ => {}
        }
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
        self.unprotected = true;
        self.segment.header().unprotected.store(1, Ordering::Release);
        (0..self.size()).for_each(|rank| futex::ring(&self.segment.rank(rank).doorbell));
    }

    /// The job begins anew: a new segment, and nothing of the ranks. No process is left, as the
    /// controller saw all of them end.
    fn renew(&mut self, epoch: u64) {
        self.forget_ranks();
        self.network.iter_mut().for_each(|n| n.own.epoch = epoch);
        if let Err(error) = self.renew_segment() {
            self.say(FromNode::Failed { text: format!("cannot start again: {error}") });
        }
        self.join();
    }

    fn forget_ranks(&mut self) {
        self.early.clear();
        // Positions of the segment that was.
        self.trims.clear();
        self.forget_cut();
        self.vacated.clear();
        (self.vacating, self.leaves) = (false, false);
        self.give_up_together();
        (self.wired, self.work) = (None, None);
        self.pool.iter().for_each(|p| p.clear());
        for r in &mut self.ranks {
            r.end_search();
            r.call_off();
            // One whose number the next one is to have must not be touched any more by then.
            let standing = r.standing.take().map(halt::Standing::called_off);
            let (deaths, freezing, half_filled) = (r.deaths, r.freezing, r.half_filled);
            let last_pid = r.last_pid;
            *r = Rank { deaths, freezing, half_filled, last_pid, standing, ..Rank::new() };
        }
    }

    /// The ranks go back to where the segment was written to this file.
    fn reload(&mut self, segment: String) {
        self.forget_ranks();
        let path = self.place.images.join(&segment);
        let loaded = load_segment(&self.place.id, &self.spec, &path)
            .and_then(|(fd, segment)| Ok((listen(&segment, &self.tell)?, fd, segment)));
        let result = match loaded {
            Ok((bell, fd, segment)) => {
                if self.spec.ft == Ft::Logged {
                    saved::forget_received(&segment);
                }
                self._bell = bell;
                (self.segment, self.segment_fd) = (segment, fd);
                Ok(())
            }
            Err(error) => Err(error.to_string()),
        };
        self.say(FromNode::Reloaded { segment, result });
    }

    fn renew_segment(&mut self) -> Result<(), BeginError> {
        let own = self.segment.node();
        let (fd, segment) = make_segment(&self.place.id, &self.spec, own)?;
        self._bell = listen(&segment, &self.tell)?;
        (self.segment, self.segment_fd) = (segment, fd);
        Ok(())
    }

    fn finish(&mut self) {
        if self.going.puts_off_end() {
            return;
        }
        let left = reap::clear() as u64;
        self.await_deposits();
        self.finished = true;
        self.say(FromNode::Finished { left });
    }
}

fn make_segment(
    id: &str,
    spec: &JobSpec,
    node: u32,
) -> Result<(OwnedFd, Arc<Segment>), BeginError> {
    let ft = match spec.ft {
        Ft::Logged | Ft::Node | Ft::Cluster { .. } => segment::FT_LOGGED,
        Ft::None => 0,
        Ft::Coordinated => segment::FT_COORDINATED,
        // Payload through the log (FT_PROTECT), so that the chain covers it and not its address.
        Ft::Verify { .. } => segment::FT_DETERMINANTS | segment::FT_HASH | segment::FT_PROTECT,
    };
    let clock = match spec.wtime {
        _ if ft & segment::FT_DETERMINANTS == 0 => 0,
        Wtime::Plain => 0,
        Wtime::Mpi => segment::FT_CLOCK,
        Wtime::Auto => segment::FT_CLOCK | segment::FT_LIBC,
        Wtime::Logged => segment::FT_CLOCK | segment::FT_LIBC | segment::FT_CLOCK_THREADED,
    };
    let ft = ft | clock;
    let cores = cores(spec);
    let geometry = Geometry::new(spec.size, spec.log_limit_bytes);
    let (fd, segment) = Segment::create_on(id, geometry, ft, cores, node)?;
    if let Ft::Verify { seed, .. } = spec.ft {
        segment.header().whim.store(seed, Ordering::Relaxed);
    }
    eyrie_ledger::unit::bind(&segment, &units::of(spec));
    Ok((crate::spawn::high(fd), Arc::new(segment)))
}

/// Cores for the ranks of one node: its share, where all nodes are on this machine.
fn cores(spec: &JobSpec) -> u32 {
    let all = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    if spec.hosts.is_some() { all } else { all / spec.nodes.max(1) }
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
    if segment.geometry() != Geometry::new(spec.size, spec.log_limit_bytes) {
        return Err(BeginError::Foreign(path.into()));
    }
    segment.header().cores.store(cores(spec), Ordering::Release);
    Ok((crate::spawn::high(fd), Arc::new(segment)))
}

fn listen(segment: &Arc<Segment>, tell: &mpsc::UnboundedSender<Msg>) -> Result<Bell, BeginError> {
    let tell = tell.clone();
    let heard = move || drop(tell.send(Msg::Bell));
    Bell::listen(Arc::clone(segment), heard).map_err(BeginError::Thread)
}

/// Serves a node until it has finished: `orders` are the controller's.
pub(crate) async fn serve(
    agent: &Shared,
    orders: &mut mpsc::UnboundedReceiver<ToNode>,
    mut told: mpsc::UnboundedReceiver<Msg>,
) {
    // However many messages come.
    let mut ticked = tokio::time::Instant::now();
    while !agent.borrow().finished() {
        agent.borrow_mut().heed_lead();
        if agent.borrow().given_up {
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
