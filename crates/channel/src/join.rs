//! Who is a rank.
//!
//! The environment that `eyrie run` gives is inherited by whatever the rank starts, so it only says
//! which rank a process may become. It does if it calls `MPI_Init` while no other process of the
//! rank is in MPI, that is between init and finalize: then it is the rank's next program, with a
//! *world* of its own. The worlds of a rank are numbered. All have the same streams, one after the
//! other: an entry bears the number of the world it was sent in, and a receiver passes over those
//! of earlier worlds, and waits with those of later ones. A process that calls `MPI_Init` while
//! another one of the rank is in MPI is a job of its own, with one rank.
//!
//! Kept true: at most one process is the rank at any time (the control block's state is taken by
//! one atomic step); no image is taken between that and the end of init but at its beginning, where
//! the control block says all.

use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::time::{Duration, Instant};

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

/// Why the library cannot join its job.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("environment variable {0} is not a number below its limit")]
    Environment(&'static str),
    #[error("cannot reach the job's segment (descriptor {fd}, daemon {daemon}): {source}")]
    Segment { fd: i32, daemon: u32, source: SegmentError },
    #[error(transparent)]
    Own(#[from] SegmentError),
    #[error("the job is ending")]
    Over,
    #[error("process {0} of this rank died in MPI, and its node did not end what it left")]
    Left(u32),
    #[error("rank {0} has run too many programs")]
    Programs(u32),
}

/// What the environment says.
struct Named {
    rank: u32,
    fd: i32,
    daemon: u32,
    job: Option<String>,
}

impl Named {
    fn from_env() -> Result<Option<Named>, OpenError> {
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
    /// was when the rank was started.
    fn segment(&self) -> Result<Segment, OpenError> {
        // SAFETY: only asks whether the number is an open descriptor.
        if unsafe { libc::fcntl(self.fd, libc::F_GETFD) } >= 0
            && self.is_ours(Path::new(&format!("/proc/self/fd/{}", self.fd)), true)
        {
            // SAFETY: the descriptor is open; it was put there by the daemon for us.
            if let Ok(seg) = Segment::open(unsafe { BorrowedFd::borrow_raw(self.fd) }) {
                // SAFETY: it is the segment's descriptor, handed down for this use only.
                drop(unsafe { OwnedFd::from_raw_fd(self.fd) });
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

/// Makes this process the rank, if nobody is.
fn claim(seg: &Segment, ctl: &RankCtl) -> Result<Claim, OpenError> {
    let own = std::process::id();
    let end = Instant::now() + END_LIMIT;
    loop {
        let state = ctl.state.load(Acquire);
        let owner = ctl.pid.load(Acquire);
        let free = match state {
            STATE_STARTED | STATE_FINALIZED => true,
            // A program that executed another one, or one that has called `exit`.
            STATE_RUNNING | STATE_JOINING | STATE_LEFT if owner == own => true,
            STATE_RUNNING | STATE_JOINING | STATE_LEFT if is_alive(owner) => {
                return Ok(Claim::Alone { beside: owner });
            }
            STATE_LEFT => true,
            STATE_RUNNING | STATE_JOINING => false,
            _ => return Err(OpenError::Over),
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

impl Endpoint {
    /// Joins the job described by the environment, or makes a job of one rank.
    pub fn from_env() -> Result<Self, OpenError> {
        let Some(named) = Named::from_env()? else { return Self::single() };
        let seg = named.segment()?;
        let rank = named.rank;
        if rank >= seg.geometry().ranks {
            return Err(OpenError::Environment("EYRIE_RANK"));
        }
        let follows = match claim(&seg, seg.rank(rank))? {
            Claim::Rank { follows } => follows,
            Claim::Alone { beside } => {
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

    /// A job of one rank, in memory of this process.
    fn single() -> Result<Self, OpenError> {
        Ok(Self::join(Box::leak(Box::new(Segment::create_alone()?)), 0))
    }
}

/// A program finds itself in another job than its user may think. Nothing in the line is different
/// when the rank repeats it.
fn say_alone(rank: u32, beside: u32) {
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let (own, other) = (name("self"), name(&beside.to_string()));
    eprintln!(
        "eyrie: rank {rank}: {} called MPI_Init while {} of this rank is in MPI: it is a job of \
         its own, with one rank (so is any other; said once)",
        own.trim_end(),
        other.trim_end(),
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
        assert_eq!(claim(&seg, ctl).unwrap(), Claim::Rank { follows: false });
        for state in [STATE_JOINING, STATE_RUNNING, STATE_LEFT] {
            ctl.pid.store(other(), Relaxed);
            ctl.state.store(state, Relaxed);
            assert_eq!(claim(&seg, ctl).unwrap(), Claim::Alone { beside: other() });
            assert_eq!(ctl.state.load(Relaxed), state);
        }
    }

    #[test]
    fn a_rank_that_is_free_again_is_taken_by_the_next() {
        let seg = segment();
        let ctl = seg.rank(1);
        ctl.pid.store(other(), Relaxed);
        ctl.state.store(STATE_FINALIZED, Relaxed);
        assert_eq!(claim(&seg, ctl).unwrap(), Claim::Rank { follows: true });
        // By exec, in the middle of it.
        ctl.state.store(STATE_RUNNING, Relaxed);
        assert_eq!(claim(&seg, ctl).unwrap(), Claim::Rank { follows: true });
        // The number of no process: the kernel has none so large.
        ctl.pid.store(1 << 30, Relaxed);
        ctl.state.store(STATE_LEFT, Relaxed);
        assert_eq!(claim(&seg, ctl).unwrap(), Claim::Rank { follows: true });
        ctl.state.store(eyrie_ledger::segment::STATE_ABORTED, Relaxed);
        assert!(matches!(claim(&seg, ctl), Err(OpenError::Over)));
    }
}
