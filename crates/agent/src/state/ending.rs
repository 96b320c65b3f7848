//! Processes that are ending: who sees the mark of their end, and what waits until they are gone.
//!
//! Kept true: a watching thread ends with its `Watch`. What an end leads to is left to `dying`.

use eyrie_control::Meta;
use eyrie_control::node::Determinants;
use eyrie_ledger::segment::{self, Segment};
use eyrie_process::futex;
use eyrie_process::reap;
use rustix::process::{Signal, pidfd_send_signal};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Longest sleep of a watching thread; only a backstop.
pub(crate) const SLEEP: Duration = Duration::from_secs(60);

pub(crate) const STACK_BYTES: usize = 64 * 1024;

/// A thread that sees the mark of a rank's end in the segment (`RankCtl::alive`).
pub(crate) struct Watch {
    segment: Arc<Segment>,
    rank: u32,
    over: Arc<AtomicBool>,
    killed: Arc<AtomicI32>,
}

/// The first process of a rank. The program that is in MPI may be one that it has started.
pub(crate) struct First<'a> {
    pub pid: libc::pid_t,
    pub pidfd: BorrowedFd<'a>,
}

impl Watch {
    /// Calls `marked` at each end of `rank` that is marked.
    pub fn start(
        segment: &Arc<Segment>,
        rank: u32,
        first: &First<'_>,
        marked: impl Fn() + Send + 'static,
    ) -> io::Result<Watch> {
        let (over, killed) = (Arc::default(), Arc::default());
        let watch = Watch { segment: Arc::clone(segment), rank, over, killed };
        let (segment, over) = (Arc::clone(segment), Arc::clone(&watch.over));
        let killed = Arc::clone(&watch.killed);
        let (pid, pidfd) = (first.pid, first.pidfd.try_clone_to_owned()?);
        let wait = move || {
            let word = &segment.rank(rank).alive;
            while !over.load(Ordering::SeqCst) {
                let now = word.load(Ordering::SeqCst);
                // Again for each: a rank may run several programs, one after the other.
                if now & libc::FUTEX_OWNER_DIED != 0 {
                    if let Some(signal) = end_in_mpi(&segment, rank, pid) {
                        // Before a shell can be told, and goes on.
                        killed.store(signal, Ordering::SeqCst);
                        let _ = pidfd_send_signal(&pidfd, Signal::KILL);
                    }
                    marked();
                }
                futex::wait(word, now, SLEEP);
            }
        };
        let thread = std::thread::Builder::new().name(String::from("eyrie-alive"));
        thread.stack_size(STACK_BYTES).spawn(wait)?;
        Ok(watch)
    }

    /// The signal that killed a program in MPI that the first process had started.
    pub fn killed(&self) -> Option<i32> {
        Some(self.killed.load(Ordering::SeqCst)).filter(|signal| *signal > 0)
    }
}

/// The signal that ends the program of a rank, if that is in MPI and not the rank's first process.
/// A program that is on its way out by itself (`_exit`) has left MPI as one that called `exit` has.
fn end_in_mpi(segment: &Segment, rank: u32, first: libc::pid_t) -> Option<i32> {
    let ctl = segment.rank(rank);
    let pid = ctl.pid.load(Ordering::Acquire) as libc::pid_t;
    let signal = reap::ending(pid)?;
    if signal == 0 {
        let (from, to) = (segment::STATE_RUNNING, segment::STATE_LEFT);
        let _ = ctl.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire);
    }
    let state = ctl.state.load(Ordering::Acquire);
    let in_mpi = [segment::STATE_RUNNING, segment::STATE_JOINING].contains(&state);
    (signal > 0 && in_mpi && pid != first).then_some(signal)
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        let word = &self.segment.rank(self.rank).alive;
        // Whoever is about to sleep does not.
        word.fetch_or(libc::FUTEX_OWNER_DIED, Ordering::SeqCst);
        futex::wake(word);
    }
}

/// A start that waits until the last process of its rank is gone.
pub(crate) struct Start {
    pub(crate) start: u64,
    pub(crate) from: Meta,
    pub(crate) moved: Option<Determinants>,
}

/// A process that has ended.
pub(crate) struct Process {
    pub(crate) pid: libc::pid_t,
    pub(crate) pidfd: Rc<AsyncFd<OwnedFd>>,
    pub(crate) gone: Arc<AtomicBool>,
    pub(crate) start: Option<Start>,
}

/// All of them, by rank.
#[derive(Default)]
pub(crate) struct Ending {
    pub(crate) processes: BTreeMap<u32, Process>,
    /// This node is to end then.
    pub(crate) finish: bool,
}

impl Ending {
    pub fn is_empty(&self) -> bool {
        self.processes.is_empty()
    }

    /// Becomes true when the last process of a rank is gone, if it is not yet.
    pub fn of(&self, rank: u32) -> Option<Arc<AtomicBool>> {
        self.processes.get(&rank).map(|p| Arc::clone(&p.gone))
    }

    /// Starts that wait are given up: ranks and their numbers.
    pub fn give_up_starts(&mut self) -> Vec<(u32, u64)> {
        let processes = self.processes.iter_mut();
        processes.filter_map(|(rank, p)| Some((*rank, p.start.take()?.start))).collect()
    }

    /// Whether this node is to wait with its end.
    pub fn puts_off_end(&mut self) -> bool {
        self.finish = !self.processes.is_empty();
        self.finish
    }
}
