//! A job on its node: the state behind the daemon, and how the monitor's actions are carried out.
//!
//! Kept true: everything here runs on the daemon's main thread and never blocks; threads and tasks
//! talk to it by `Msg`; the rules are in `monitor`, `scheduler` and `retention`, not here.

mod checkpoints;
mod death;
mod output;
mod report;
mod saving;
mod start;
mod verify;

use crate::checkpoint::Report;
use crate::futex::Bell;
use crate::input::Input;
use crate::loans::Loans;
use crate::meta::Meta;
use crate::monitor::{self, Action, Monitor};
use crate::outlet::Outlet;
use crate::output::Tape;
use crate::retention::Retention;
use crate::scheduler::Scheduler;
use crate::spawn::Prefix;
use eyrie_control::{EventKind, Ft, JobSpec, NodeMsg};
use eyrie_image::{Pool, Tracker};
use eyrie_ledger::segment::{self, Geometry, Segment, SegmentError};
pub use output::{end_input, take_input};
use report::EventLog;
use std::cell::RefCell;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

/// Time for an orderly end after the first signal.
const GRACE: Duration = Duration::from_secs(10);

/// What threads and tasks tell the main loop.
pub enum Msg {
    /// The process of `rank` ended.
    Exited {
        rank: u32,
        epoch: u64,
    },
    /// A rank wants to be looked at.
    Bell,
    /// From a checkpoint thread.
    Checkpoint {
        rank: u32,
        generation: u32,
        epoch: u64,
        report: Report,
    },
    /// An image was checked: `None` stands for the program's beginning.
    Candidate {
        rank: u32,
        deaths: u64,
        choice: death::Choice,
    },
    /// The log of a rank that has ended was written for `eyrie replay`.
    Saved {
        rank: u32,
    },
    GraceOver,
    Stop {
        signal: i32,
    },
    ConsoleGone,
}

/// The process of a rank.
struct Proc {
    pid: libc::pid_t,
    pidfd: Rc<AsyncFd<OwnedFd>>,
    epoch: u64,
    pipes: [Rc<AsyncFd<OwnedFd>>; 2],
    tasks: Vec<JoinHandle<()>>,
    /// Its output is no longer listened to: it differed.
    mute: bool,
}

impl Drop for Proc {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// A checkpoint as `eyrie status` shows it.
struct Latest {
    generation: u32,
    at: Instant,
    bytes: u64,
    unchanged_bytes: u64,
    tracking: String,
    mode: &'static str,
    why: String,
    took: Duration,
    frozen: Duration,
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
    /// Ended by itself.
    gone: bool,
    tapes: [Tape; 2],
    retention: Retention,
    latest: Option<Latest>,
    /// What is known of its last image; away while a checkpoint is taken.
    tracker: Option<Box<Tracker>>,
    reason: Option<String>,
    /// Failed checkpoints in a row.
    failures: u32,
    /// Generation under way.
    capturing: Option<u32>,
    /// The checkpoint thread may still touch the process and its control block.
    freezing: bool,
    /// Recovery waits for the checkpoint thread to let go.
    recover_later: bool,
    recoveries: u64,
    deaths: u64,
    injected_at: Option<Instant>,
    died_at: Option<Instant>,
    replay: Replay,
    /// Its log as it is written, or was, for `eyrie replay`.
    saving: saving::Saving,
}

/// A client that waits for checkpoints.
struct Ask {
    outlet: Outlet,
    /// Rank, and the generation its answer must be newer than.
    left: Vec<(u32, u32)>,
}

/// What the daemon was started with besides the job's description.
pub struct Place {
    pub id: String,
    pub folder: PathBuf,
    pub prefix: Prefix,
}

/// One job.
pub struct Job {
    this: Weak<RefCell<Job>>,
    tell: mpsc::UnboundedSender<Msg>,
    console: Outlet,
    place: Place,
    spec: JobSpec,
    argv: Vec<OsString>,
    segment: Arc<Segment>,
    segment_fd: OwnedFd,
    _bell: Bell,
    ranks: Vec<Rank>,
    monitor: Monitor,
    scheduler: Scheduler,
    /// Where ranks lend and borrow pages of their images.
    pool: Option<Arc<Pool>>,
    loans: Loans,
    input: Input,
    input_credit: u64,
    input_wake: Rc<Notify>,
    events: EventLog,
    asks: Vec<Ask>,
    unprotected: Option<String>,
    verify: Option<verify::Verify>,
    begun: Instant,
    begun_wall: SystemTime,
    epoch: u64,
    recoveries: u64,
    rollbacks: u64,
    pub malformed: u64,
    exit_code: Option<i32>,
    over: Rc<Notify>,
}

/// Why a job cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum BeginError {
    #[error("job segment: {0}")]
    Segment(#[from] SegmentError),
    #[error("{0}: {1}")]
    File(PathBuf, std::io::Error),
    #[error("thread: {0}")]
    Thread(std::io::Error),
}

/// Handle by which tasks reach the job.
pub type Shared = Rc<RefCell<Job>>;

impl Job {
    /// Makes the segment and the books of a job; `start_all` starts its ranks.
    pub fn begin(
        place: Place,
        spec: JobSpec,
        console: Outlet,
        tell: mpsc::UnboundedSender<Msg>,
    ) -> Result<Shared, BeginError> {
        let (segment_fd, segment) = make_segment(&place.id, &spec)?;
        let bell = listen(&segment, &tell)?;
        let images = place.folder.join(crate::home::IMAGES);
        std::fs::create_dir(&images).map_err(|e| BeginError::File(images, e))?;
        let stdin = place.folder.join(crate::home::STDIN);
        let input = Input::create(&stdin).map_err(|e| BeginError::File(stdin, e))?;
        let events = EventLog::create(&place.folder.join(crate::home::EVENTS));
        let limit = match spec.ft {
            Ft::Verify => verify::HISTORY_BYTES,
            _ => crate::output::HISTORY_BYTES,
        };
        let every = if spec.ft == Ft::Logged { spec.checkpoint_every_ms } else { 0 };
        let job = Rc::new_cyclic(|this| {
            RefCell::new(Job {
                this: this.clone(),
                tell,
                console,
                argv: spec.argv.iter().map(|a| OsString::from_vec(a.clone())).collect(),
                segment,
                segment_fd,
                _bell: bell,
                ranks: (0..spec.size).map(|_| Rank::new(spec.size, limit)).collect(),
                monitor: Monitor::new(spec.size, spec.ft != Ft::Verify),
                scheduler: Scheduler::new(spec.size, every, spec.checkpoint_first_ms, 0),
                pool: checkpoints::pool(spec.dedup),
                loans: Loans::default(),
                input,
                input_credit: 0,
                input_wake: Rc::new(Notify::new()),
                events,
                asks: Vec::new(),
                unprotected: None,
                verify: (spec.ft == Ft::Verify).then(verify::Verify::default),
                begun: Instant::now(),
                begun_wall: SystemTime::now(),
                epoch: 0,
                recoveries: 0,
                rollbacks: 0,
                malformed: 0,
                exit_code: None,
                over: Rc::new(Notify::new()),
                place,
                spec,
            })
        });
        Ok(job)
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
        &mut self.ranks[rank as usize]
    }

    /// A line for the user.
    fn say(&self, text: impl Into<String>) {
        let text = text.into();
        tracing::info!("{text}");
        self.console.send(&NodeMsg::Say(text));
    }

    /// Takes one message.
    pub fn take(&mut self, message: Msg) {
        match message {
            Msg::Exited { rank, epoch } => self.process_ended(rank, epoch),
            Msg::Bell => self.look(),
            Msg::Checkpoint { rank, generation, epoch, report } => {
                self.checkpoint_report(rank, generation, epoch, report);
            }
            Msg::Candidate { rank, deaths, choice } => self.candidate(rank, deaths, choice),
            Msg::Saved { rank } => self.log_saved(rank),
            Msg::GraceOver => self.step(monitor::Input::GraceOver),
            Msg::Stop { signal } => self.stop(signal),
            Msg::ConsoleGone => self.step(monitor::Input::ConsoleGone),
        }
        self.schedule();
    }

    /// The user asks the job to end (or to pass on a signal that does not end it).
    pub fn stop(&mut self, signal: i32) {
        if [libc::SIGUSR1, libc::SIGUSR2].contains(&signal) {
            self.signal_all(signal);
        } else {
            self.step(monitor::Input::Stop { signal });
        }
    }

    /// Gives the monitor an input and carries out what it says.
    fn step(&mut self, input: monitor::Input) {
        for action in self.monitor.step(input) {
            match action {
                Action::Recover { rank } => self.recover(rank),
                Action::RestartAll => self.restart_all(),
                Action::SignalAll(signal) => self.signal_all(signal),
                Action::KillAll => self.kill_all(),
                Action::ArmGrace => self.arm_grace(),
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

    /// The processes of the ranks.
    fn processes(&self) -> Vec<libc::pid_t> {
        self.ranks.iter().filter_map(|r| Some(r.proc.as_ref()?.pid)).collect()
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

    fn kill_all(&self) {
        self.signal_all(libc::SIGKILL);
    }

    fn end(&mut self, code: i32) {
        for rank in 0..self.size() {
            self.flush_output(rank);
        }
        let Some(code) = self.verify_next(code) else { return };
        let mut event = self.event(EventKind::Ended);
        event.count = u64::try_from(code).ok();
        self.log_event(event);
        self.exit_code = Some(code);
        self.over.notify_one();
    }

    /// All ranks go back to the beginning: new segment, no images, output up to here is not
    /// printed again.
    fn restart_all(&mut self) {
        self.rollbacks += 1;
        self.forget_loans();
        for rank in 0..self.size() {
            self.forget_images(rank);
            let r = self.rank(rank);
            r.retention.restart();
            r.latest = None;
            r.tracker = None;
            r.gone = false;
            r.recover_later = false;
            r.freezing = false;
            r.capturing = None;
            r.replay = Replay::No;
            r.saving = saving::Saving::No;
            r.tapes.iter_mut().for_each(|t| t.give_up());
        }
        let now = self.now_ms();
        let every = self.spec.checkpoint_every_ms;
        let first = self.spec.checkpoint_first_ms;
        self.scheduler = Scheduler::new(self.size(), every, first, now);
        let event = self.event(EventKind::RolledBack);
        self.log_event(event);
        match self.renew_segment() {
            Ok(()) => self.start_all(),
            Err(error) => {
                let text = format!("cannot start again: {error}");
                self.step(monitor::Input::Fatal { text, code: 1 });
            }
        }
    }

    fn renew_segment(&mut self) -> Result<(), BeginError> {
        let (fd, segment) = make_segment(&self.place.id, &self.spec)?;
        self._bell = listen(&segment, &self.tell)?;
        (self.segment, self.segment_fd) = (segment, fd);
        Ok(())
    }

    /// Starts every rank from the program's beginning.
    pub fn start_all(&mut self) {
        for rank in 0..self.size() {
            if !self.monitor.may_start(rank) {
                return;
            }
            let meta = Meta::start(&self.place.id, rank, self.size());
            if let Err(error) = self.launch(rank, &meta, None) {
                let program = String::from_utf8_lossy(&self.spec.program).into_owned();
                let text = format!("cannot start '{program}' as rank {rank}: {error}");
                return self.step(monitor::Input::Fatal { text, code: 126 });
            }
        }
    }
}

impl Rank {
    fn new(ranks: u32, history: usize) -> Rank {
        Rank {
            proc: None,
            gone: false,
            tapes: [Tape::new(history), Tape::new(history)],
            retention: Retention::new(ranks),
            latest: None,
            tracker: None,
            reason: None,
            failures: 0,
            capturing: None,
            freezing: false,
            recover_later: false,
            recoveries: 0,
            deaths: 0,
            injected_at: None,
            died_at: None,
            replay: Replay::No,
            saving: saving::Saving::No,
        }
    }
}

fn make_segment(id: &str, spec: &JobSpec) -> Result<(OwnedFd, Arc<Segment>), BeginError> {
    let ft = match spec.ft {
        Ft::Logged => segment::FT_LOGGED,
        Ft::None => 0,
        // Payload through the log (FT_PROTECT), so that the chain covers it and not its address.
        Ft::Verify => segment::FT_DETERMINANTS | segment::FT_HASH | segment::FT_PROTECT,
    };
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let geometry = Geometry::new(spec.size, spec.log_limit_bytes);
    let (fd, segment) = Segment::create(id, geometry, ft, cores)?;
    Ok((crate::spawn::high(fd), Arc::new(segment)))
}

fn listen(segment: &Arc<Segment>, tell: &mpsc::UnboundedSender<Msg>) -> Result<Bell, BeginError> {
    let tell = tell.clone();
    let heard = move || drop(tell.send(Msg::Bell));
    Bell::listen(Arc::clone(segment), heard).map_err(BeginError::Thread)
}
