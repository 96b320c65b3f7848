//! A process ended: what it left behind, and which image its successor can start from.
//!
//! Kept true: all output of the dead process is passed on before its end is told; images are only
//! looked for when no checkpoint thread touches the old process any more, and they are checked in a
//! thread, never on the main loop, while the old process goes; one is told to be there when that
//! and what it left behind are gone; a search that another one replaced, or whose rank is being
//! started, kills and removes nothing any more.

use super::death_cause;
use super::dying::PAUSE;
use super::remote_images::{Elsewhere, Wait};
use super::state::restart::{Over, Replay, Search};
use super::{Agent, Msg, faults};
use eyrie_control::node::{Choice, FromNode, RankLook};
use eyrie_control::{Death, Said};
use eyrie_exchange::image_check::check_image;
use eyrie_exchange::image_files::image_path;
use eyrie_image::Filling;
use eyrie_ledger::segment;
use eyrie_process::reap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

impl Agent {
    pub(super) fn process_ended(&mut self, rank: u32, start: u64) {
        let Some(proc) = self.proc(rank, start) else { return };
        let pid = proc.pid;
        // Of a process that was collected nothing is told any more.
        let seen = reap::peek(proc.pidfd.get_ref()).ok().flatten();
        let cause = seen.and_then(|death| self.cause(rank, death));
        let Some(proc) = self.proc(rank, start) else { return };
        let death = match reap::collect(proc.pidfd.get_ref()) {
            Ok(Some(death)) => death,
            Ok(None) => {
                return self.tell_later(Msg::Exited { rank, start });
            }
            Err(error) => {
                tracing::error!(rank, pid, %error, "exit status is lost; taken for a kill");
                Death::Signal(libc::SIGKILL)
            }
        };
        self.ended(rank, start, pid, death, cause);
    }

    /// Why the process of a rank died, as far as the kernel tells.
    pub(super) fn cause(&self, rank: u32, death: Death) -> Option<String> {
        let proc = self.ranks[rank as usize].proc.as_ref()?;
        // What a shell says of the program that it waited for.
        let death = self.death_behind(rank, proc.pid, death, &self.said(rank));
        let dumped = reap::left_core(proc.pidfd.get_ref());
        death_cause::of(&proc.before, proc.pid, death, dumped)
    }

    /// No line of the program is run any more by the process of a rank.
    pub(super) fn ended(
        &mut self,
        rank: u32,
        start: u64,
        pid: libc::pid_t,
        death: Death,
        cause: Option<String>,
    ) {
        self.drain(rank);
        let (said, progress) = (self.said(rank), self.progress(rank));
        let death = self.death_behind(rank, pid, death, &said);
        // A rank that has ended stays able to say what it received: a sender that is restored
        // later asks for that.
        if !matches!(death, Death::Exit(_)) {
            self.links().into_iter().for_each(|l| l.detach(rank));
        }
        let r = self.rank(rank);
        r.proc = None;
        r.deaths += 1;
        r.restart.replay = Replay::No;
        r.capture.tracker.iter_mut().for_each(|t| t.restart());
        (r.capture.hold, r.stand.slowed) = (None, None);
        r.restart.half_filled =
            r.restart.filling.take().is_some_and(|filling| is_in_part(filling, rank, pid));
        if r.capture.generation.is_none() {
            // Children it left in its group. (A twin, when there is one, is in that group too.)
            // SAFETY: the group bears the number of a process that was ours; a number that is
            // free again names no group of others, as group numbers stay taken while used.
            unsafe { libc::kill(-pid, libc::SIGKILL) };
        }
        self.tend_standing(rank);
        if rank == 0 {
            self.streams.end_feed();
        }
        self.look_beside(rank);
        let (sent, (targets, more_targets)) = (self.sent(rank), self.targets(rank));
        let look = Box::new(RankLook { sent, targets, more_targets, ..self.rank_look(rank) });
        self.tell_if_none_called(matches!(death, Death::Exit(_)));
        self.let_out(FromNode::Ended { rank, start, death, cause, said, progress, look });
        self.tell_vacated();
    }

    /// What ended a program in MPI that the rank's first process had started: the signal was seen,
    /// or a shell that waited for the program tells it by its exit code.
    fn death_behind(&self, rank: u32, pid: libc::pid_t, death: Death, said: &Said) -> Death {
        const SHELL_SIGNAL_BASE: i32 = 128;
        let ctl = self.segment.rank(rank);
        let left = ctl.state.load(Ordering::Acquire) == segment::STATE_LEFT;
        let in_mpi = *said == Said::Running && !left;
        let caller = ctl.pid.load(Ordering::Acquire) as libc::pid_t;
        if !in_mpi || caller == pid || caller == 0 {
            return death;
        }
        let proc = self.ranks[rank as usize].proc.as_ref();
        let seen = proc.and_then(|proc| proc.watch.as_ref()?.killed());
        match (seen, death) {
            (Some(signal), _) => Death::Signal(signal),
            (None, Death::Exit(code @ 129..=192)) => Death::Signal(code - SHELL_SIGNAL_BASE),
            // It went on, and says nothing of it.
            (None, Death::Exit(_)) if reap::born(caller).is_none() => Death::Signal(libc::SIGKILL),
            (None, own) => own,
        }
    }

    /// What the control block of a rank says.
    pub(super) fn said(&self, rank: u32) -> Said {
        let ctl = self.segment.rank(rank);
        match ctl.state.load(Ordering::Acquire) {
            segment::STATE_RUNNING | segment::STATE_LEFT | segment::STATE_JOINING => Said::Running,
            segment::STATE_ABORTED => Said::Aborted {
                code: ctl.exit_code.load(Ordering::Acquire) as i32,
                text: ctl.text(),
            },
            segment::STATE_DIVERGED => Said::Diverged { text: ctl.text() },
            _ => Said::Nothing,
        }
    }

    /// A mark that moves when the rank gets on in messages.
    fn progress(&self, rank: u32) -> u64 {
        let ctl = self.segment.rank(rank);
        let counters = [&ctl.msgs_sent, &ctl.msgs_received, &ctl.det_tail];
        counters.iter().fold(0u64, |n, c| n.wrapping_add(c.load(Ordering::Acquire)))
    }

    /// Finds the newest good image of these, in a thread.
    pub(super) fn find(&mut self, rank: u32, search: Search) {
        self.rank(rank).restart.end_search();
        let cut = self.cuts.holds(rank);
        if cut
            || self.rank(rank).capture.freezing.is_some()
            || self.rank(rank).stand.standing.is_some()
        {
            // Nobody needs an image of what is dead, nor waits until that is stored.
            self.rank(rank).capture.call_off();
            self.rank(rank).restart.find_later = Some(search);
            return self.tend_standing(rank);
        }
        let Search { attempt, generations, fetch } = search;
        let found = |choice| FromNode::Found { rank, attempt, choice };
        let going = self.processes.ending.of(rank);
        let left = !reap::kill_left(&self.place.id, rank, || true).is_empty() || going.is_some();
        match generations.first() {
            None => return self.say(found(Choice::Nothing)),
            Some(0) if !left => return self.say(found(Choice::Beginning)),
            Some(_) => {}
        }
        let (tell, size) = (self.tell.clone(), self.size());
        let (job, images) = (self.place.id.clone(), self.place.images.clone());
        let network = self.network.as_ref().map(|n| (n.own.clone(), Arc::clone(&n.members)));
        let remote = fetch.zip(network);
        let archive_gone = self.spec.controller_limit();
        let restorer = self.place.prefix.restorer.is_some();
        let ignored = self.spec.placement.ignore_features.clone();
        let late = !self.rank(rank).restart.half_filled;
        let patience = Duration::from_millis(self.spec.timing.intervals.retries.fetch_ms);
        let over = Over::default();
        self.rank(rank).restart.search = Some(Arc::clone(&over));
        let search = move || {
            let is_over = || over.load(Ordering::SeqCst);
            let tell = |choice| drop(tell.send(Msg::Found { rank, attempt, choice }));
            // Images are looked at meanwhile.
            let found = |choice| match clear(&job, rank, going.as_deref(), is_over) {
                _ if is_over() => {}
                0 => tell(choice),
                left => tell(Choice::Left(left as u64)),
            };
            let check = |generation| {
                let choice = check_image(&images, &job, rank, generation, size);
                faults::fit(choice, &image_path(&images, rank, generation), restorer, &ignored)
            };
            if let (Some((fetch, (own, members))), [generation @ 1..=u32::MAX]) =
                (remote, &generations[..])
            {
                let images = images.clone();
                let over = Arc::clone(&over);
                let wait = Wait::First { late };
                let store =
                    Elsewhere { own, members, images, rank, patience, archive_gone, over, wait };
                let choice = store.obtain(&fetch, *generation, &job, || check(*generation));
                // Whoever was to give it may be gone: then another order follows.
                return choice.into_iter().for_each(found);
            }
            for generation in generations {
                match check(generation) {
                    choice @ Choice::Refused { .. } => tell(choice),
                    choice => return found(choice),
                }
            }
            found(Choice::Nothing);
        };
        let name = String::from("eyrie-check");
        if let Err(error) = std::thread::Builder::new().name(name).spawn(search) {
            let text = format!("cannot start a thread to check images: {error}");
            self.say(FromNode::Failed { text });
        }
    }
}

/// Waits until the last process of a rank is gone, and nothing that it left is there. How many
/// processes do not go.
fn clear(job: &str, rank: u32, gone: Option<&AtomicBool>, is_over: impl Fn() -> bool) -> usize {
    // Its children are children of this process only then.
    while gone.is_some_and(|gone| !gone.load(Ordering::SeqCst)) && !is_over() {
        std::thread::sleep(PAUSE);
    }
    reap::clear_left(job, rank, || !is_over())
}

/// Whether a process died before all of its memory was there.
fn is_in_part(filling: Filling, rank: u32, pid: libc::pid_t) -> bool {
    let whole = filling.is_whole();
    if filling.is_over()
        && let Err(error) = filling.wait(false)
    {
        tracing::warn!(rank, pid, %error, "it was ended, as its memory did not come");
    }
    !whole
}
