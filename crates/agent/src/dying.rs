//! Processes that a signal has ended and that are not gone: the kernel frees their memory, which
//! takes 0.1 ms a MiB, before it tells of their end.
//!
//! Kept true: a process is told to have ended before it is gone only if none of its threads ever
//! returns to the program (`reap::killed`). Its number, its descriptors and its children are its
//! own until then: what it left behind is looked for, its rank starts anew, and this node ends or
//! is left only when it was collected.

use super::state::ending::{First, Process, Start, Watch};
use super::{Agent, Msg};
use eyrie_control::Meta;
use eyrie_control::node::Determinants;
use eyrie_ledger::segment::{self};
use eyrie_process::reap;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::unix::AsyncFd;

/// Between two looks at what is about to end, and how many there are at most at threads.
pub(super) const PAUSE: Duration = Duration::from_millis(1);
const LOOKS: u32 = 20;
impl Agent {
    /// Has the end of a process that was just started, as `from` says, seen at once.
    pub(super) fn watch(
        &self,
        rank: u32,
        start: u64,
        first: &First<'_>,
        from: &Meta,
    ) -> Option<Watch> {
        if from.generation > 0 {
            // Its image has the word registered, by its first thread most likely.
            let word = &self.segment.rank(rank).alive;
            let owner = first.pid as u32 | libc::FUTEX_WAITERS;
            let _ = word.compare_exchange(0, owner, Ordering::SeqCst, Ordering::SeqCst);
        }
        let tell = self.tell.clone();
        let marked = move || drop(tell.send(Msg::Ending { rank, start, looks: 0 }));
        let watch = Watch::start(&self.segment, rank, first, marked);
        watch.inspect_err(|error| tracing::warn!(rank, %error, "its end is seen late")).ok()
    }

    /// The end of a rank's process is marked.
    pub(super) fn process_ends(&mut self, rank: u32, start: u64, looks: u32) {
        let Some(proc) = self.proc(rank, start) else { return };
        let (pid, pidfd) = (proc.pid, Rc::clone(&proc.pidfd));
        match reap::killed(pid) {
            Ok(signal) => {
                self.await_gone(rank, pid, pidfd);
                let death = eyrie_control::Death::Signal(signal);
                let cause = self.cause(rank, death);
                self.ended(rank, start, pid, death, cause);
            }
            Err(true) if looks < LOOKS => {
                self.tell_later(Msg::Ending { rank, start, looks: looks + 1 });
            }
            // How it ends by itself, or that only a thread has ended, its pidfd tells.
            Err(_) => self.program_ends(rank, start, looks),
        }
    }

    /// The same of a program that the rank's first process, which goes on, had started: if it was
    /// killed in MPI, the rank was. (If the signal was not seen, a shell is given the time to end
    /// by itself, and tell why.)
    fn program_ends(&mut self, rank: u32, start: u64, looks: u32) {
        let Some(pid) = self.proc(rank, start).map(|proc| proc.pid) else { return };
        let ctl = self.segment.rank(rank);
        let program = ctl.pid.load(Ordering::Acquire) as libc::pid_t;
        let state = ctl.state.load(Ordering::Acquire);
        let in_mpi = [segment::STATE_RUNNING, segment::STATE_JOINING].contains(&state);
        if !in_mpi || program == pid || program == 0 || reap::born(program).is_some() {
            return;
        }
        if looks < LOOKS {
            return self.tell_later(Msg::Ending { rank, start, looks: looks + 1 });
        }
        tracing::info!(rank, program, "it was killed in MPI, and what had started it goes on");
        // SAFETY: our own child, not collected yet.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }

    /// Programs that were killed in `MPI_Init`, before their end could be marked.
    pub(super) fn look_at_programs(&mut self) {
        for rank in 0..self.size() {
            let Some(proc) = &self.ranks[rank as usize].proc else { continue };
            let start = proc.start;
            self.program_ends(rank, start, 0);
        }
    }

    /// Takes a message of its own after a pause.
    pub(super) fn tell_later(&self, message: Msg) {
        let tell = self.tell.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(PAUSE).await;
            let _ = tell.send(message);
        });
    }

    fn await_gone(&mut self, rank: u32, pid: libc::pid_t, pidfd: Rc<AsyncFd<OwnedFd>>) {
        let (tell, end) = (self.tell.clone(), Rc::clone(&pidfd));
        tokio::task::spawn_local(async move {
            if let Err(error) = end.readable().await.map(drop) {
                tracing::warn!(rank, pid, %error, "its end cannot be waited for");
            }
            let _ = tell.send(Msg::Gone { rank, pid });
        });
        let process = Process { pid, pidfd, gone: Arc::default(), start: None };
        self.processes.ending.processes.insert(rank, process);
    }

    /// The process of a rank that had ended is gone.
    pub(super) fn process_gone(&mut self, rank: u32, pid: libc::pid_t) {
        let processes = &mut self.processes.ending.processes;
        let Some(process) = processes.get(&rank).filter(|p| p.pid == pid) else { return };
        if let Ok(None) = reap::collect(process.pidfd.get_ref()) {
            return self.tell_later(Msg::Gone { rank, pid });
        }
        let Some(process) = processes.remove(&rank) else { return };
        process.gone.store(true, Ordering::SeqCst);
        if let Some(Start { start, from, moved }) = process.start {
            self.start(rank, start, &from, moved.as_ref());
        }
        self.tell_vacated();
        if self.processes.ending.is_empty() && std::mem::take(&mut self.processes.ending.finish) {
            self.finish();
        }
    }

    /// Whether a start waits for the end of the rank's last process.
    pub(super) fn starts_later(
        &mut self,
        rank: u32,
        start: u64,
        from: &Meta,
        moved: Option<&Determinants>,
    ) -> bool {
        let Some(process) = self.processes.ending.processes.get_mut(&rank) else { return false };
        process.start = Some(Start { start, from: from.clone(), moved: moved.cloned() });
        true
    }
}
