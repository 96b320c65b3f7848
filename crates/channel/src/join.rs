//! Who is a rank.
//!
//! The environment that `eyrie run` gives is inherited by whatever the rank starts, so it only says
//! which rank a process may become. It does if it calls `MPI_Init` while no other process of the
//! rank is in MPI, that is between init and finalize: then it is the rank's next program, with a
//! *world* of its own. The worlds of a rank are numbered. All have the same streams, one after the
//! other: an entry bears the number of the receiver's world that it is for, and a receiver passes
//! over those of earlier worlds, and waits with those of later ones. Whom a program speaks to is in
//! the world of the same number, but for programs that ranks have started (`Endpoint::address`).
//!
//! A process that calls `MPI_Init` while another one of the rank is in MPI is a job of its own,
//! with one rank. So is one that was there before another one began and has ended meanwhile (`./a &
//! ./b`), unless that was its child: which of the two is the rank does not hang on how long the
//! first one takes. In a replay it is the one that was it when that was recorded.
//!
//! Kept true: at most one process is the rank at any time (the control block's state is taken by
//! one atomic step); no image is taken between that and the end of init but at its beginning, where
//! the control block says all.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::{Duration, Instant};

use eyrie_ledger::beside::{Note, ProgramId};
use eyrie_ledger::door::before;
use eyrie_ledger::entry::{WORLD_MASK, WORLD_SHIFT};
use eyrie_ledger::segment::{
    LIB_IN, NAME_PREFIX, RankCtl, STATE_FINALIZED, STATE_JOINING, STATE_LEFT, STATE_RUNNING,
    STATE_STARTED, Segment, SegmentError,
};

use crate::endpoint::Endpoint;
use crate::presence::ring_daemon;

/// Most ancestors that are asked for the segment.
const MOST_ANCESTORS: usize = 256;
/// Within what time the node ends a rank whose program was killed.
const END_LIMIT: Duration = Duration::from_secs(120);
const PAUSE: Duration = Duration::from_millis(5);
/// So many pauses a program that is a job of its own waits until others of the kind were noted.
const NOTE_PAUSES: u32 = 200;

/// Why the library cannot join its job.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("environment variable {0} is not a number below its limit")]
    Environment(&'static str),
    #[error("cannot reach the job's segment (descriptor {fd}, daemon {daemon}): {source}")]
    Segment { fd: i32, daemon: u32, source: SegmentError },
    #[error(transparent)]
    Own(#[from] SegmentError),
    #[error("{0}")]
    Launched(crate::launcher::Launched),
    #[error("the job is ending")]
    Over,
    #[error("process {0} of this rank died in MPI, and its node did not end what it left")]
    Left(u32),
    #[error("rank {0} has run too many programs")]
    Programs(u32),
    #[error("rank {0}: another of its programs was first when this was recorded, and has not come")]
    Turn(u32),
}

/// What the environment says.
pub(crate) struct Named {
    pub rank: u32,
    fd: i32,
    daemon: u32,
    job: Option<String>,
}

impl Named {
    pub fn from_env() -> Result<Option<Named>, OpenError> {
        let number = |name: &'static str| match std::env::var(name) {
            Ok(text) => text.parse::<u32>().map(Some).map_err(|_| OpenError::Environment(name)),
            Err(_) => Ok(None),
        };
        let (Some(rank), Some(fd)) = (number("EYRIE_RANK")?, number("EYRIE_SEGMENT_FD")?) else {
            return Ok(None);
        };
        let daemon = number("EYRIE_NODE_PID")?.unwrap_or(0);
        Ok(Some(Named { rank, fd: fd as i32, daemon, job: std::env::var("EYRIE_JOB").ok() }))
    }

    /// The job's segment on the node where the rank is. It is an open descriptor of this process,
    /// unless a wrapper (a shell, an interpreter, an earlier program) closed or re-used the number:
    /// then an ancestor has it. The node's daemon is one, whose number may be another one than it
    /// was when the rank was started. `last`: nobody will ask again in this process.
    pub fn segment(&self, last: bool) -> Result<Segment, OpenError> {
        // SAFETY: only asks whether the number is an open descriptor.
        if unsafe { libc::fcntl(self.fd, libc::F_GETFD) } >= 0
            && self.is_ours(Path::new(&format!("/proc/self/fd/{}", self.fd)), true)
        {
            // SAFETY: the descriptor is open; it was put there by the daemon for us.
            if let Ok(seg) = Segment::open(unsafe { BorrowedFd::borrow_raw(self.fd) }) {
                if last {
                    // SAFETY: it is the segment's descriptor, handed down for this use only.
                    drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
                }
                return Ok(seg);
            }
        }
        let ancestors = std::iter::successors(parent(std::process::id()), |pid| parent(*pid));
        let mut named = ancestors.take(MOST_ANCESTORS).flat_map(|pid| self.descriptors(pid));
        let found = named.find_map(|path| {
            let segment = Segment::open(open(&path).ok()?.as_fd()).ok()?;
            let here = segment.rank(self.rank.min(segment.geometry().ranks - 1)).home.load(Acquire);
            (here == segment.node()).then_some(segment)
        });
        if let Some(found) = found {
            return Ok(found);
        }
        let path = PathBuf::from(format!("/proc/{}/fd/{}", self.daemon, self.fd));
        let opened = open(&path).map_err(SegmentError::Os).and_then(|file| {
            if !self.is_ours(&path, false) {
                return Err(SegmentError::Magic);
            }
            Segment::open(file.as_fd())
        });
        opened.map_err(|source| OpenError::Segment { fd: self.fd, daemon: self.daemon, source })
    }

    /// Descriptors of a process that may be the segment.
    fn descriptors(&self, pid: u32) -> Vec<PathBuf> {
        let folder = fs::read_dir(format!("/proc/{pid}/fd"));
        let all = folder.into_iter().flatten().flatten().map(|entry| entry.path());
        all.filter(|path| self.is_ours(path, false)).collect()
    }

    /// Whether a descriptor bears the name of the job's segment; `else_` if that cannot be seen.
    fn is_ours(&self, link: &Path, else_: bool) -> bool {
        let Ok(name) = fs::read_link(link) else { return else_ };
        let name = name.to_string_lossy();
        let name = name.strip_suffix(" (deleted)").unwrap_or(&name);
        match &self.job {
            Some(job) => name.ends_with(&format!("{NAME_PREFIX}{job}")),
            None => name.contains(NAME_PREFIX),
        }
    }
}

fn open(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().read(true).write(true).open(path)
}

/// The process above this one, if there is one that can be seen.
fn parent(pid: u32) -> Option<u32> {
    stat(pid)?.1.filter(|parent| *parent > 0)
}

/// State and parent of a process, if there is one.
fn stat(pid: u32) -> Option<(char, Option<u32>)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything.
    let mut words = stat.rsplit_once(')')?.1.split_whitespace();
    Some((words.next()?.chars().next()?, words.next()?.parse().ok()))
}

/// Whether a process runs, or stands still.
fn is_alive(pid: u32) -> bool {
    match stat(pid) {
        Some((state, _)) => !"ZXx".contains(state),
        // SAFETY: asks only; no signal is sent.
        None => unsafe { libc::kill(pid as libc::pid_t, 0) == 0 },
    }
}

/// What a process that calls `MPI_Init` is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Claim {
    /// The rank, and whether another program was before it.
    Rank { follows: bool },
    /// A job of its own, as this process of the rank is in MPI.
    Alone { beside: u32 },
}

/// Where a rank is, for a process that wants to be it.
enum Seat {
    /// Nobody is; the program would be the one of this number.
    Free {
        world: u32,
    },
    /// This process is it.
    Taken {
        by: u32,
    },
    /// The process that was it died in MPI.
    Dead,
    Over,
}

impl Seat {
    fn of(ctl: &RankCtl, state: u32) -> Seat {
        let owner = ctl.pid.load(Acquire);
        let next = ctl.world.load(Acquire).saturating_add(1);
        match state {
            STATE_STARTED => Seat::Free { world: 0 },
            STATE_FINALIZED => Seat::Free { world: next },
            // A program that executed another one, or one that has called `exit`.
            STATE_RUNNING | STATE_JOINING | STATE_LEFT if owner == std::process::id() => {
                Seat::Free { world: next }
            }
            STATE_RUNNING | STATE_JOINING | STATE_LEFT if is_alive(owner) => {
                Seat::Taken { by: owner }
            }
            STATE_LEFT => Seat::Free { world: next },
            STATE_RUNNING | STATE_JOINING => Seat::Dead,
            _ => Seat::Over,
        }
    }
}

/// The program of the rank that this process could become when it was loaded: its number and one
/// more; 0 while that is not known, and `NONE` if another one was in MPI.
static LOADED: AtomicU32 = AtomicU32::new(0);
const NONE: u32 = u32::MAX;

/// This process is a job by itself.
static UNWATCHED: AtomicBool = AtomicBool::new(false);

/// Whether other programs of the rank have come between since this one was loaded, which it has not
/// waited for.
fn is_beside(world: u32) -> bool {
    let loaded = LOADED.load(Relaxed);
    loaded != 0 && loaded != world + 1 && !has_waited()
}

/// Whether this process had children that have ended.
fn has_waited() -> bool {
    // SAFETY: it consists of numbers, and is filled. By number: the C library's is one of ours.
    let (done, usage) = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        (libc::syscall(libc::SYS_getrusage, libc::RUSAGE_CHILDREN, &raw mut usage), usage)
    };
    done != 0 || usage.ru_minflt > 0
}

/// Whose turn it is, by what is recorded of the rank.
enum Turn {
    Own,
    /// This program comes later.
    Later,
    /// It was not the rank.
    Never,
}

/// What a program is called, and how.
pub fn identity() -> [u8; IDENTITY_BYTES] {
    let mut identity = [0; IDENTITY_BYTES];
    for (place, part) in
        identity.chunks_exact_mut(NAME_BYTES).zip(program("self").unwrap_or_default())
    {
        place.copy_from_slice(&part.to_le_bytes());
    }
    identity
}

/// The same of any process, if it can be seen.
fn program(pid: &str) -> Option<ProgramId> {
    let exe = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let name = exe.file_name().map_or(&b""[..], |name| name.as_bytes());
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Some([hash(name), hash(&words)])
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Of the two halves of `identity` the first one; also the length of the second.
const NAME_BYTES: usize = 4;
pub const IDENTITY_BYTES: usize = 2 * NAME_BYTES;

fn turn(seg: &Segment, rank: u32, world: u32, own: &[u8; IDENTITY_BYTES]) -> Turn {
    let Some(was) = before(seg, rank, world) else { return Turn::Own };
    let is_named = |was: &[u8]| was.get(..NAME_BYTES) == Some(&own[..NAME_BYTES]);
    let is_same = |was: &[u8]| was.get(..IDENTITY_BYTES) == Some(&own[..]);
    if was.len() < IDENTITY_BYTES || is_same(&was) {
        return Turn::Own;
    }
    let later = (world + 1..).map_while(|world| before(seg, rank, world)).collect::<Vec<_>>();
    if later.iter().any(|was| is_same(was)) {
        Turn::Later
    } else if is_named(&was) {
        // With other operands: they may be the number of a process, or a folder's name.
        Turn::Own
    } else if later.iter().any(|was| is_named(was)) {
        Turn::Later
    } else {
        Turn::Never
    }
}

/// Makes this process the rank, if nobody is.
fn claim(seg: &Segment, rank: u32) -> Result<Claim, OpenError> {
    let ctl = seg.rank(rank);
    let own = std::process::id();
    let end = Instant::now() + END_LIMIT;
    let who = identity();
    loop {
        let state = ctl.state.load(Acquire);
        let owner = ctl.pid.load(Acquire);
        let free = match Seat::of(ctl, state) {
            Seat::Taken { by } => return Ok(Claim::Alone { beside: by }),
            Seat::Over => return Err(OpenError::Over),
            Seat::Dead => false,
            Seat::Free { world } if is_beside(world) => {
                return Ok(Claim::Alone { beside: owner });
            }
            Seat::Free { world } => match turn(seg, rank, world, &who) {
                Turn::Own => true,
                Turn::Never => return Ok(Claim::Alone { beside: owner }),
                Turn::Later => {
                    if Instant::now() > end {
                        return Err(OpenError::Turn(rank));
                    }
                    std::thread::sleep(PAUSE);
                    continue;
                }
            },
        };
        if free {
            if ctl.state.compare_exchange(state, STATE_JOINING, AcqRel, Acquire).is_ok() {
                ctl.pid.store(own, Release);
                return Ok(Claim::Rank { follows: state != STATE_STARTED });
            }
            continue;
        }
        // It was killed, so the rank has died, and this process with it.
        if Instant::now() > end {
            return Err(OpenError::Left(owner));
        }
        ring_daemon(seg.header());
        std::thread::sleep(PAUSE);
    }
}

/// What a process is, before it calls `MPI_Init`.
pub enum Before {
    /// Nobody of whom anything is recorded.
    Nobody,
    /// It may become a rank, for the first time.
    First,
    /// It may become a rank again, which was told this before.
    Again(Vec<u8>),
}

impl Before {
    /// Of this process, by what its environment says.
    pub fn of_this_process() -> Before {
        let Ok(Some(named)) = Named::from_env() else { return Before::Nobody };
        let Ok(seg) = named.segment(false) else { return Before::Nobody };
        let recording = seg.header().recording();
        if named.rank >= seg.geometry().ranks {
            return Before::Nobody;
        }
        let ctl = seg.rank(named.rank);
        let Seat::Free { world } = Seat::of(ctl, ctl.state.load(Acquire)) else {
            LOADED.store(NONE, Relaxed);
            return Before::Nobody;
        };
        LOADED.store(world + 1, Relaxed);
        if !(recording.clock() && recording.libc()) {
            return Before::Nobody;
        }
        match before(&seg, named.rank, world) {
            None => Before::First,
            Some(was) => {
                // What another program was told is not for this one.
                let own = was.get(..NAME_BYTES) == Some(&identity()[..NAME_BYTES]);
                if own { Before::Again(was) } else { Before::Nobody }
            }
        }
    }
}

impl Endpoint {
    /// Joins the job described by the environment, or makes a job of one rank.
    pub fn from_env() -> Result<Self, OpenError> {
        let Some(named) = Named::from_env()? else {
            let others = crate::launcher::of(|name| std::env::var(name).ok());
            return others.map_or_else(Self::single, |found| Err(OpenError::Launched(found)));
        };
        let seg = named.segment(true)?;
        let rank = named.rank;
        if rank >= seg.geometry().ranks {
            return Err(OpenError::Environment("EYRIE_RANK"));
        }
        let follows = match claim(&seg, rank)? {
            Claim::Rank { follows } => follows,
            Claim::Alone { beside } => {
                note_alone(&seg, rank, beside);
                if seg.rank(rank).told_alone.swap(1, Relaxed) == 0 {
                    say_alone(rank, beside);
                }
                return Self::single();
            }
        };
        let seg: &'static Segment = Box::leak(Box::new(seg));
        let ctl = seg.rank(rank);
        // No image from here on: what this process knows of the streams and what the control block
        // says of them part.
        ctl.lib.store(LIB_IN, Release);
        if follows {
            let world = ctl.world.load(Acquire) + 1;
            if world > WORLD_MASK >> WORLD_SHIFT {
                return Err(OpenError::Programs(rank));
            }
            ctl.world.store(world, Release);
        }
        let mut joined = Self::join(seg, rank);
        // It parks here if it is to.
        joined.arrive();
        Ok(joined)
    }

    /// Whether there is no daemon which tells why this process ends its job.
    pub fn is_unwatched(&self) -> bool {
        UNWATCHED.load(Relaxed)
    }

    /// A job of one rank, in memory of this process.
    fn single() -> Result<Self, OpenError> {
        UNWATCHED.store(true, Relaxed);
        Ok(Self::join(Box::leak(Box::new(Segment::create_alone()?)), 0))
    }
}

/// Lets the daemon know of the two programs: on another rank the other one may have come first.
fn note_alone(seg: &Segment, rank: u32, beside: u32) {
    let Some((own, other)) = program("self").zip(program(&beside.to_string())) else { return };
    let name = fs::read_to_string("/proc/self/comm").unwrap_or_default();
    let note = Note { rank: other, alone: own, name: name.trim_end().into() };
    let at = &seg.rank(rank).beside;
    for _ in 0..NOTE_PAUSES {
        if at.is_read() && at.leave(&note) {
            return ring_daemon(seg.header());
        }
        ring_daemon(seg.header());
        std::thread::sleep(PAUSE);
    }
}

/// A program finds itself in another job than its user may think. Nothing in the line is different
/// when the rank repeats it.
fn say_alone(rank: u32, beside: u32) {
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let (own, other) = (name("self"), name(&beside.to_string()));
    let why = match other.trim_end() {
        "" => String::from("beside another program that was this rank"),
        other => format!("while {other} of this rank is in MPI"),
    };
    eprintln!(
        "eyrie: rank {rank}: {} called MPI_Init {why}: it is a job of its own, with one rank (so \
         is any other; said once)",
        own.trim_end(),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use eyrie_ledger::segment::{FT_LOGGED, Geometry};

    fn segment() -> Segment {
        Segment::create("t", Geometry::new(2, 1 << 20), FT_LOGGED, 2).unwrap().1
    }

    /// A process that lives and is not this one.
    fn other() -> u32 {
        std::os::unix::process::parent_id()
    }

    #[test]
    fn who_comes_first_is_the_rank_and_who_comes_meanwhile_is_none() {
        let seg = segment();
        let ctl = seg.rank(1);
        assert_eq!(claim(&seg, 1).unwrap(), Claim::Rank { follows: false });
        for state in [STATE_JOINING, STATE_RUNNING, STATE_LEFT] {
            ctl.pid.store(other(), Relaxed);
            ctl.state.store(state, Relaxed);
            assert_eq!(claim(&seg, 1).unwrap(), Claim::Alone { beside: other() });
            assert_eq!(ctl.state.load(Relaxed), state);
        }
    }

    /// Records that a program was the rank as its first one.
    fn was(seg: &'static Segment, own: [u8; IDENTITY_BYTES]) {
        let find = |room: &mut [u8]| {
            room[..IDENTITY_BYTES].copy_from_slice(&own);
            IDENTITY_BYTES
        };
        eyrie_ledger::door::Door::new(seg, 1).tell(eyrie_ledger::door::What::Before, find).unwrap();
    }

    #[test]
    fn who_was_the_rank_is_it_again() {
        let new = || -> &'static Segment { Box::leak(Box::new(segment())) };
        let (own, seg) = (identity(), new());
        assert_eq!(claim(seg, 1).unwrap(), Claim::Rank { follows: false });
        // With other operands it may be the same.
        let mut named = own;
        named[NAME_BYTES] ^= 1;
        for recorded in [own, named] {
            let seg = new();
            was(seg, recorded);
            assert_eq!(claim(seg, 1).unwrap(), Claim::Rank { follows: false });
        }
        let seg = new();
        was(seg, [0; IDENTITY_BYTES]);
        assert!(matches!(claim(seg, 1).unwrap(), Claim::Alone { .. }));
        assert_eq!(seg.rank(1).state.load(Relaxed), STATE_STARTED);
    }

    #[test]
    fn a_rank_that_is_free_again_is_taken_by_the_next() {
        let seg = segment();
        let ctl = seg.rank(1);
        ctl.pid.store(other(), Relaxed);
        ctl.state.store(STATE_FINALIZED, Relaxed);
        assert_eq!(claim(&seg, 1).unwrap(), Claim::Rank { follows: true });
        // By exec, in the middle of it.
        ctl.state.store(STATE_RUNNING, Relaxed);
        assert_eq!(claim(&seg, 1).unwrap(), Claim::Rank { follows: true });
        // The number of no process: the kernel has none so large.
        ctl.pid.store(1 << 30, Relaxed);
        ctl.state.store(STATE_LEFT, Relaxed);
        assert_eq!(claim(&seg, 1).unwrap(), Claim::Rank { follows: true });
        ctl.state.store(eyrie_ledger::segment::STATE_ABORTED, Relaxed);
        assert!(matches!(claim(&seg, 1), Err(OpenError::Over)));
    }
}
