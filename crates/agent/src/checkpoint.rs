//! One checkpoint of one rank, in a thread of its own (a freeze is bound to its thread).
//!
//! Kept true: the rank is only captured where its private and the shared state agree; it always
//! goes on afterwards, whatever failed; what lies outside its memory (log positions, bytes in
//! pipes) is read while it stands still.

use crate::held_rank::HeldRank;
use eyrie_control::Freeze;
use eyrie_control::meta::Meta;
use eyrie_exchange::image_files;
use eyrie_image::{
    Ahead, Between, CaptureError, FreezeError, Frozen, GivenStreams, ImageReport, LeftBehind, Mode,
    ProcessTree, Snapshot, Tap, Tracker,
};
use eyrie_ledger::acked;
use eyrie_ledger::door;
use eyrie_ledger::segment::{self, RankCtl, Segment};
use eyrie_process::cpu_meter::{CpuMeter, Spent};
use eyrie_process::futex;
use eyrie_process::reap;
use eyrie_process::stop_points;
use eyrie_protocol::image_references::File;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How often a rank on its way to a safe point is looked at if the bell does not ring.
const PARK_LOOK: Duration = Duration::from_millis(2);
/// How long a rank stands still while the daemon is asked what it has of its pipes, and, where
/// several stop together, until all others stand: each of them has a minute for it.
const ANSWER_LIMIT: Duration = Duration::from_secs(120);
/// Most that is copied of a rank which stands until its image is written: its death is only seen
/// then.
const MOST_STANDING_BYTES: u64 = 16 << 20;

/// Which rank, and where its image goes.
pub struct Order {
    pub segment: Arc<Segment>,
    pub job: String,
    pub rank: u32,
    pub pid: libc::pid_t,
    /// Longest wait for it to come to a safe point.
    pub safe_point: Duration,
    pub generation: u32,
    pub path: PathBuf,
    pub freeze: Freeze,
    /// It is stopped when what its image needs was kept, unless that is called off.
    pub hold: Option<Arc<HeldRank>>,
    /// There is no image while processes live that the rank has left behind.
    pub alone: bool,
    /// It hardly runs: if little is copied it stands until that is written, and writes nothing
    /// meanwhile.
    pub hardly_runs: bool,
    /// Some of its memory may be stored before it is stopped, until this is true.
    pub ahead: Option<Arc<AtomicBool>>,
    /// Memory of it is stored while it stands still, if that has to be, until this is true.
    pub called_off: Arc<AtomicBool>,
    /// Processors that it was bound to, as a mask.
    pub bound: Option<Vec<u8>>,
    /// The standard streams that it was given.
    pub given: GivenStreams,
    /// What is known of the rank's last image.
    pub tracker: Box<Tracker>,
    /// Who takes the image while it is written, if somebody can.
    pub tap: Option<Box<dyn Tap>>,
}

impl Order {
    fn mode(&self) -> Mode {
        match self.freeze {
            Freeze::Auto => Mode::from_env(),
            Freeze::Copy => Mode::Copy,
            Freeze::Twin => Mode::Twin,
            Freeze::Sync => Mode::Sync,
        }
    }
}

/// Begins to bring an image elsewhere, before the rank is stopped for it.
pub type Pouring = Box<dyn FnOnce() -> Option<Box<dyn Tap>> + Send>;

/// What only the daemon's main thread knows: the rank's position in its pipes.
#[derive(Debug, Clone, Copy)]
pub struct Pipes {
    pub output: [u64; 2],
    pub input: u64,
}

/// A rank that stands still.
pub struct Stands {
    pub family: ProcessTree,
    pub answer: mpsc::Sender<Option<GoOn>>,
}

/// It may go on as soon as its own memory is kept.
pub struct GoOn {
    pub pipes: Pipes,
    /// What was found between it and others, if they all stood still.
    pub between: Arc<Between>,
}

impl GoOn {
    /// By itself.
    pub fn alone(pipes: Pipes) -> GoOn {
        GoOn { pipes, between: Arc::default() }
    }
}

/// Why there is no checkpoint.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    #[error(transparent)]
    Freeze(#[from] FreezeError),
    #[error(transparent)]
    Capture(#[from] CaptureError),
    #[error("it stayed inside the MPI library for {} s", .0.as_secs_f64())]
    Busy(Duration),
    #[error(
        "MPI_Init was called by process {0}, which is neither the process that eyrie started nor \
         one of its descendants: let the wrapper wait for the program, or start it with exec"
    )]
    Wrapped(u32),
    #[error(
        "it has child processes, which know each other by number, and none could get its number \
         again: {0}; or let a wrapper start the program with exec"
    )]
    Family(String),
    #[error(
        "it has left {0} behind, which nobody waits for, so that no checkpoint can bring it back: \
         let the program wait for what it starts, or have such processes left out (--orphans \
         leave), which are killed before the rank comes back"
    )]
    Orphans(LeftBehind),
    #[error(
        "it stood still for {} s, and not all others that stop together with it did, or the \
         daemon did not answer: it goes on without a checkpoint",
        ANSWER_LIMIT.as_secs()
    )]
    Unanswered,
    #[error("the process died meanwhile")]
    Dead,
    #[error("cannot start a thread: {0}")]
    Thread(std::io::Error),
    #[error("{0}")]
    Meta(#[from] eyrie_control::meta::MetaError),
}

impl CheckpointError {
    /// Whether a later attempt would fail for the same reason.
    pub fn is_lasting(&self) -> bool {
        match self {
            CheckpointError::Freeze(error) => error.is_lasting(),
            CheckpointError::Capture(error) => error.is_lasting(),
            CheckpointError::Wrapped(_) | CheckpointError::Family(_) => true,
            CheckpointError::Busy(_)
            | CheckpointError::Orphans(_)
            | CheckpointError::Unanswered
            | CheckpointError::Dead
            | CheckpointError::Thread(_)
            | CheckpointError::Meta(_) => false,
        }
    }

    /// The rank died; its recovery is on the way and needs no report.
    pub fn is_death(&self) -> bool {
        matches!(
            self,
            CheckpointError::Dead
                | CheckpointError::Freeze(FreezeError::Gone)
                | CheckpointError::Capture(CaptureError::Gone)
        )
    }
}

/// A complete checkpoint.
#[derive(Debug)]
pub struct Taken {
    pub meta: Meta,
    pub report: ImageReport,
    pub frozen: Duration,
    pub took: Duration,
    /// While the rank ran.
    pub spent: Spent,
    /// Generations whose image files this one needs.
    pub needs: Vec<u32>,
    /// The files of other ranks that it needs.
    pub borrows: Vec<File>,
    /// How changed pages are found, and why so if it is not the best way.
    pub tracking: String,
}

/// What the thread tells the main thread, in this order.
pub enum Report {
    /// The rank stands still, until there is an answer (`None`: it is dead).
    Standing(Stands),
    /// The rank runs again, or is dead: it is not touched from here any more. Or it `stands` still,
    /// and who held it before has it again.
    LetGo { stands: bool },
    /// With what is known of the last image now.
    Over(Box<Result<Taken, CheckpointError>>, Box<Tracker>),
}

/// Starts the checkpoint.
pub fn start(order: Order, tell: impl Fn(Report) + Send + 'static) -> Result<(), CheckpointError> {
    let name = String::from("eyrie-ckpt");
    let run = move || drop(run(order, None, tell));
    std::thread::Builder::new().name(name).spawn(run).map_err(CheckpointError::Thread)?;
    Ok(())
}

/// Takes the checkpoint in this thread, which holds the rank's process already, or is to stop it.
/// Gives the process back, still standing, if it is to be held on.
pub fn run(mut order: Order, frozen: Option<Frozen>, tell: impl Fn(Report)) -> Option<Frozen> {
    let mut tracker = std::mem::take(&mut order.tracker);
    let mut held = None;
    let result = take(&mut order, frozen, &mut tracker, &mut held, &tell);
    if result.is_err() {
        let _ = eyrie_image::remove_image(&order.path);
    }
    if held.is_none() {
        tracker.prepare();
    }
    tell(Report::Over(Box::new(result), tracker));
    held
}

/// Storing ahead takes with it, if it is given up, what brings the image to another node.
fn warn_of_lost_tap(lost: bool, order: &Order) {
    if lost {
        let (rank, generation) = (order.rank, order.generation);
        tracing::warn!(rank, generation, "an image is not brought to a node while it is written");
    }
}

fn take(
    order: &mut Order,
    frozen: Option<Frozen>,
    tracker: &mut Tracker,
    held: &mut Option<Frozen>,
    tell: &impl Fn(Report),
) -> Result<Taken, CheckpointError> {
    let begin = Instant::now();
    let mut meter = CpuMeter::default();
    meter.begin();
    let mut tap = order.tap.take();
    // Else nobody would hold it on.
    order.hardly_runs &= frozen.is_some();
    let order = &*order;
    let ctl = order.segment.rank(order.rank);
    let had_tap = tap.is_some();
    let hurry = order.ahead.as_ref().filter(|_| frozen.is_none());
    let ahead = hurry.and_then(|hurry| {
        Ahead::begin(order.pid, &order.path, tracker, order.mode(), &mut tap, hurry)
    });
    let tapped = tap.is_some() || had_tap && ahead.is_some();
    warn_of_lost_tap(had_tap && !tapped, order);
    meter.end();
    let frozen = stopped(frozen, order);
    let begun = Begun { ahead, tap };
    let captured = frozen.and_then(|frozen| keep_frozen(frozen, order, begun, tracker, tell));
    // Whatever happened, nobody may stay parked.
    ctl.freeze_req.store(0, Ordering::Release);
    futex::wake(&ctl.freeze_req);
    let stands = captured.as_ref().is_ok_and(|captured| captured.stands.is_some());
    if !stands {
        tell(Report::LetGo { stands });
    }
    let Captured { shot, meta, stands, stopped, mut stood } = captured?;
    if stands.is_none() {
        meter.begin();
    }
    let written = match shot {
        Kept::Snapshot(shot) => meta
            .encode()
            .map_err(CheckpointError::from)
            .and_then(|meta| Ok(shot.write_image(&meta, tracker)?)),
        Kept::Written(report) => Ok(report),
    };
    if let Some(stands) = stands {
        stood += stopped.elapsed();
        *held = Some(stands);
        tell(Report::LetGo { stands: true });
    }
    let mut report = written?;
    meter.end();
    let took = begin.elapsed();
    // What others have must stay what it is.
    if tracker.is_scattered() && !tapped {
        consolidate(order, tracker, &mut report);
    }
    let files: BTreeSet<File> = report.ancestors.iter().filter_map(|name| file_of(name)).collect();
    let own = |file: &File| file.0 == order.rank;
    let (own, borrows): (Vec<File>, Vec<File>) = files.into_iter().partition(own);
    let needs = own.into_iter().map(|(_, generation)| generation).collect();
    let mut tracking = tracker.method().name().to_string();
    if let Some(why) = tracker.obstacle() {
        tracking.push_str(&format!(" ({why})"));
    }
    let spent = meter.spent();
    Ok(Taken { meta, report, frozen: stood, took, spent, needs, borrows, tracking })
}

/// The rank, standing still.
fn stopped(frozen: Option<Frozen>, order: &Order) -> Result<Frozen, CheckpointError> {
    // Without its image it would not run either, or hardly.
    let anyway = frozen.is_some() || order.hold.is_some();
    let mut frozen = match frozen {
        Some(frozen) => frozen,
        None => Frozen::stop(order.pid)?,
    };
    if anyway {
        frozen.stand_at_most(Duration::MAX);
    }
    Ok(frozen)
}

/// Puts what changed in a chain of images into the newest of them, or all of it. If that fails, the
/// chain stays.
fn consolidate(order: &Order, tracker: &mut Tracker, report: &mut ImageReport) {
    stop_points::reach("tidy-1");
    match tracker.tidy() {
        Ok(Some(whole)) => {
            stop_points::reach("tidy-2");
            report.bytes += whole.bytes;
            let is_childs = |name: &OsString| {
                image_files::parse_os(name)
                    .is_some_and(|named| named.part == image_files::Part::Child)
            };
            report.ancestors.retain(is_childs);
            report.ancestors.extend(whole.ancestors);
        }
        Ok(None) => {}
        Err(error) => {
            let (rank, generation) = (order.rank, order.generation);
            tracing::warn!(rank, generation, %error, "a chain of images is not consolidated");
        }
    }
}

/// What there is of an image before its rank is stopped.
struct Begun {
    ahead: Option<Ahead>,
    tap: Option<Box<dyn Tap>>,
}

/// What was kept of a rank.
struct Captured {
    shot: Kept,
    meta: Meta,
    /// It stands until that is written.
    stands: Option<Frozen>,
    stopped: Instant,
    stood: Duration,
}

enum Kept {
    Snapshot(Box<Snapshot>),
    /// Written while it stood still.
    Written(ImageReport),
}

impl Kept {
    fn is_little(&self) -> bool {
        let bytes = match self {
            Kept::Snapshot(shot) => shot.copied_bytes(),
            Kept::Written(_) => None,
        };
        bytes.is_some_and(|bytes| bytes <= MOST_STANDING_BYTES)
    }
}

/// What there is about the processes of a rank, which stand still, that no image could bring back.
/// `caller`: the one that called `MPI_Init`.
fn obstacle(order: &Order, caller: Option<u32>, family: &[libc::pid_t]) -> Option<CheckpointError> {
    if let Some(caller) = caller.filter(|&pid| !family.contains(&(pid as libc::pid_t))) {
        return Some(CheckpointError::Wrapped(caller));
    }
    if family.len() > 1 && !eyrie_image::may_choose_numbers() {
        let why = eyrie_image::may_have_own_pids().err();
        let off = || {
            String::from(
                "this user may not choose numbers of processes, and a namespace \
                                   of the job's own is switched off (--own-pids no)",
            )
        };
        return Some(CheckpointError::Family(why.unwrap_or_else(off)));
    }
    // As long as it stands there are no new ones.
    let left = order.alone.then(|| reap::orphans_of(&order.job, order.rank, family));
    left.filter(|left| !left.is_empty()).map(CheckpointError::Orphans)
}

fn keep_frozen(
    mut frozen: Frozen,
    order: &Order,
    begun: Begun,
    tracker: &mut Tracker,
    tell: &impl Fn(Report),
) -> Result<Captured, CheckpointError> {
    let ctl = order.segment.rank(order.rank);
    let mut stopped = Instant::now();
    if ctl.lib.load(Ordering::Acquire) == segment::LIB_IN {
        stopped = bring_to_safe_point(&mut frozen, order, ctl)?;
    }
    tell_of_place(&mut frozen, order, ctl);
    let state = ctl.state.load(Ordering::Acquire);
    let caller = ctl.pid.load(Ordering::Acquire);
    let family = frozen.pids();
    let called = is_called(state);
    if let Some(why) = obstacle(order, called.then_some(caller), &family) {
        frozen.release()?;
        return Err(why);
    }
    let GoOn { pipes, between } = match ask(&frozen, tell) {
        Ok(go_on) => go_on,
        Err(why) => {
            // Of a dead process that may fail.
            let _ = frozen.release();
            return Err(why);
        }
    };
    frozen.stands_with(&between);
    let meta = describe(order, ctl, (state, caller), pipes);
    let before = begun.ahead.as_ref().map_or(Duration::ZERO, Ahead::stood);
    let shot = keep(&mut frozen, order, begun, tracker, &meta);
    if order.hardly_runs && shot.as_ref().is_ok_and(Kept::is_little) {
        return Ok(Captured { shot: shot?, meta, stands: Some(frozen), stopped, stood: before });
    }
    let stood = before + stopped.elapsed();
    if shot.is_ok() {
        order.hold.iter().for_each(|hold| hold.stop(&family));
    }
    let (released, shot) = (frozen.release(), shot?);
    match released {
        // What was kept is whole even if the rank was killed a moment later.
        Ok(()) | Err(FreezeError::Gone) => {
            Ok(Captured { shot, meta, stands: None, stopped, stood })
        }
        Err(error) => Err(error.into()),
    }
}

/// Whether a program of the rank has called `MPI_Init`, and not `MPI_Finalize`.
fn is_called(state: u32) -> bool {
    [segment::STATE_RUNNING, segment::STATE_LEFT].contains(&state)
}

/// What an image says of its rank besides the process.
fn describe(order: &Order, ctl: &RankCtl, (state, caller): (u32, u32), pipes: Pipes) -> Meta {
    let called = is_called(state);
    let ranks = order.segment.geometry().ranks;
    let need = |s| order.segment.channel(s, order.rank).need.load(Ordering::Acquire);
    let front = |s| order.segment.channel(s, order.rank).front.load(Ordering::Acquire);
    Meta {
        format: eyrie_control::meta::META_FORMAT,
        job: order.job.clone(),
        rank: order.rank,
        generation: order.generation,
        incarnation: ctl.incarnation.load(Ordering::Acquire),
        state,
        lib: ctl.lib.load(Ordering::Acquire),
        caller: (called && caller != order.pid as u32).then_some(caller),
        det_pos: ctl.det_pos.load(Ordering::Acquire),
        run: open_run(&order.segment, order.rank),
        need: (0..ranks).map(need).collect(),
        front: (0..ranks).map(front).collect(),
        acked: acked(&order.segment, order.rank),
        output: pipes.output,
        input: pipes.input,
        world: ctl.world.load(Ordering::Acquire),
        told_alone: ctl.told_alone.load(Ordering::Acquire),
        next: if called { Vec::new() } else { handed_on(&order.segment, order.rank) },
        sent: sent(&order.segment, order.rank),
    }
}

/// Says that the rank stands still, and waits until it may go on as soon as it is kept.
fn ask(frozen: &Frozen, tell: &impl Fn(Report)) -> Result<GoOn, CheckpointError> {
    let (answer, answered) = mpsc::channel();
    tell(Report::Standing(Stands { family: frozen.process_tree(), answer }));
    match answered.recv_timeout(ANSWER_LIMIT) {
        Ok(Some(go_on)) => Ok(go_on),
        Err(mpsc::RecvTimeoutError::Timeout) => Err(CheckpointError::Unanswered),
        // It is dead or the daemon is ending.
        Ok(None) | Err(mpsc::RecvTimeoutError::Disconnected) => Err(CheckpointError::Dead),
    }
}

/// The run of calls that a rank would make longer next, if there is one.
fn open_run(segment: &Segment, rank: u32) -> u64 {
    let ctl = segment.rank(rank);
    let at = ctl.det_pos.load(Ordering::Acquire);
    let word = segment.det(rank, at).load(Ordering::Acquire);
    let last = at + 1 == ctl.det_tail.load(Ordering::Acquire) && door::is_run(word);
    let made = last && ctl.replaying.load(Ordering::Acquire) == 0;
    if made { word } else { 0 }
}

/// How much a rank has sent to whom.
fn sent(segment: &Segment, rank: u32) -> Vec<(u32, [u64; 2])> {
    let to = |to| {
        let ctl = segment.channel(rank, to);
        (to, [&ctl.tx_pos, &ctl.tx_msgs].map(|word| word.load(Ordering::Acquire)))
    };
    (0..segment.geometry().ranks).map(to).filter(|(_, sent)| *sent != [0; 2]).collect()
}

/// Where the next program of a rank goes on in its streams.
fn handed_on(segment: &Segment, rank: u32) -> Vec<[u64; 6]> {
    let of = |other| {
        let (from, to) = (segment.channel(other, rank), segment.channel(rank, other));
        let words = [&from.rx_pos, &from.rx_seq];
        let words = words.into_iter().chain([&to.tx_pos, &to.tx_seq, &to.tx_chain, &to.tx_msgs]);
        let mut next = [0; 6];
        next.iter_mut().zip(words).for_each(|(n, word)| *n = word.load(Ordering::Acquire));
        next
    };
    (0..segment.geometry().ranks).map(of).collect()
}

/// Says what of the process belongs to its place here, and is another at the next.
fn tell_of_place(frozen: &mut Frozen, order: &Order, ctl: &RankCtl) {
    if let Some(mask) = &order.bound {
        frozen.is_bound_to(mask);
    }
    frozen.was_given(order.given);
    let sockets = ctl.wire_inodes.iter().chain([&ctl.early_inode]);
    let open = sockets.map(|inode| inode.load(Ordering::Acquire)).filter(|inode| *inode != 0);
    open.for_each(|inode| frozen.leave_out(u64::from(inode)));
}

/// Synchronous messages that the rank has acknowledged, of those that it may still look at.
fn acked(segment: &Segment, rank: u32) -> Vec<(u32, u64)> {
    let sources = 0..segment.geometry().ranks;
    let of = |source| {
        let channel = segment.channel(source, rank);
        let (need, front) = (&channel.need, &channel.front);
        let (need, front) = (need.load(Ordering::Acquire), front.load(Ordering::Acquire));
        let acked = acked::between(segment, source, rank, need, front);
        acked.into_iter().map(move |at| (source, at))
    };
    sources.flat_map(of).collect()
}

/// Keeps what the image needs of a rank that stands still, or writes it at once.
fn keep(
    frozen: &mut Frozen,
    order: &Order,
    begun: Begun,
    tracker: &mut Tracker,
    meta: &Meta,
) -> Result<Kept, CheckpointError> {
    begun.tap.into_iter().for_each(|tap| frozen.tap(tap));
    frozen.until(Arc::clone(&order.called_off));
    let shot = frozen.snapshot_after(begun.ahead, &order.path, tracker, order.mode())?;
    if shot.choice().mode == Mode::Sync {
        return Ok(Kept::Written(shot.write_image(&meta.encode()?, tracker)?));
    }
    Ok(Kept::Snapshot(Box::new(shot)))
}

/// Lets a rank that was caught inside the library run to a place where it may be frozen.
fn bring_to_safe_point(
    frozen: &mut Frozen,
    order: &Order,
    ctl: &RankCtl,
) -> Result<Instant, CheckpointError> {
    let end = Instant::now() + order.safe_point;
    ctl.freeze_req.store(1, Ordering::Release);
    loop {
        frozen.go_on()?;
        let bell = &order.segment.header().bell;
        while ctl.lib.load(Ordering::Acquire) == segment::LIB_IN {
            if Instant::now() > end {
                // Dropping `frozen` lets it go.
                return Err(CheckpointError::Busy(order.safe_point));
            }
            if frozen.has_ended() {
                return Err(CheckpointError::Dead);
            }
            let seen = bell.load(Ordering::Acquire);
            if ctl.lib.load(Ordering::Acquire) == segment::LIB_IN {
                futex::wait(bell, seen, PARK_LOOK);
            }
        }
        frozen.stop_again()?;
        let stopped = Instant::now();
        if ctl.lib.load(Ordering::Acquire) != segment::LIB_IN {
            return Ok(stopped);
        }
    }
}

/// The rank and generation that an earlier file belongs to.
fn file_of(name: &OsStr) -> Option<File> {
    image_files::parse_os(name).map(|named| (named.rank, named.generation))
}
