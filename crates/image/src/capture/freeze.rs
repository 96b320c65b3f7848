//! Stopping a process from outside and letting it go on as if nothing had happened.
//!
//! All threads are stopped in one pass, which is repeated until no new one turns up.
//!
//! What stays true: whatever was done to the stopped process is undone before it runs on. Its
//! registers are put back while it stands in a stop from which the kernel itself decides about
//! interrupted system calls, so that these restart, or return `EINTR` to a signal that came
//! meanwhile, exactly as without us.

use crate::capture::twin_process::end_twin;
use crate::error::FreezeError;
use crate::kernel::interrupted_calls;
use crate::kernel::memory;
use crate::kernel::procfs::{self, Stat, Status};
use crate::kernel::ptrace::{Listed, Stop, TraceError, Tracee, is_traced_by_us};
use crate::kernel::remote_calls::Borrowed;
use crate::kernel::starting;
use crate::kernel::stops::{reap, try_reap};
use crate::kernel::thread_reaper::ThreadReaper;
use crate::resources::files::watch::Watch;
use crate::resources::given_streams::GivenStreams;
use crate::resources::sockets::between_images::{Between, ProcessTree};
use crate::restore::lazy;
use eyrie_image_format::support::fault;
use eyrie_image_format::write::sink::Tap;
use std::cell::Cell;
use std::collections::HashSet;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// `PTRACE_EVENT_STOP`.
const EVENT_STOP: i32 = 128;

/// Most threads that a process may have to be stopped.
const MAX_THREADS: usize = 1024;
/// How long the threads that were found in one pass have to come to a stop.
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// How long all threads of a process and of its descendants have together where it is only not
/// their turn, on a busy machine, and how often it is looked whether that is so.
const TURN_LIMIT: Duration = Duration::from_secs(60);
const TURN_LOOK: Duration = Duration::from_millis(100);
/// How long attaching to a thread may take while its process executes another program.
const SEIZE_LIMIT: Duration = Duration::from_secs(10);
/// How often it is looked for new threads at least before they are too many. By time alone it could
/// not be told from a machine so busy that one pass takes longer than [`STOP_LIMIT`].
const PASSES: u32 = 16;
/// How long those that have not stopped are waited for when all is called off.
const RELEASE_LIMIT: Duration = Duration::from_millis(100);
/// How long the others stand while one comes back from a system call that was made in its name.
const BACK_LIMIT: Duration = Duration::from_secs(2);

/// A process that this *thread* traces. All calls must come from the thread that stopped it.
/// Dropping lets the process run on.
pub struct Frozen {
    /// Its first thread.
    pub(crate) tracee: Tracee,
    attached: Vec<Attached>,
    /// What to put back before it runs on.
    pub(crate) borrowed: Vec<Borrowed>,
    /// Memory that an agent has borrowed: where, and what was there.
    pub(crate) scratch: Option<(u64, Vec<u8>)>,
    since: Instant,
    /// Its children, stopped like itself.
    pub(crate) children: Vec<Frozen>,
    /// Children that have ended and were not waited for yet.
    pub(crate) ended: Vec<libc::pid_t>,
    /// Inodes of sockets that are in no image.
    pub(crate) left_out: Vec<u64>,
    /// What was found when it and others stood still.
    pub(crate) between: Arc<Between>,
    /// The streams that its first process was given.
    pub(crate) given: GivenStreams,
    /// Its first thread ended while it was traced.
    first_ended: bool,
    /// How long it stood still, once it does not any more; shared with the twin's report.
    pub(crate) stood: Rc<Cell<Option<Duration>>>,
    /// Processors that it was given, if these are not all that this process may use.
    pub(crate) bound: Option<Vec<u8>>,
    /// Takes its next image as well.
    pub(crate) tap: Option<Box<dyn Tap>>,
    /// Once this is true, its next image is not wanted any more.
    pub(crate) called_off: Option<Arc<AtomicBool>>,
    /// Has seen which files it writes to.
    pub(crate) watch: Option<Arc<Watch>>,
    /// How long it may stand still while nothing is stored for that, if this was said.
    pub(crate) limit: Option<Duration>,
    _this_thread: PhantomData<*const ()>,
}

/// A traced thread.
struct Attached {
    tracee: Tracee,
    /// Whether the stop that was asked for has come.
    stopped: bool,
    /// Whether it stood still already because of `SIGSTOP` or the like.
    held: bool,
    #[allow(dead_code, reason = "held for its drop")]
    listed: Listed,
}

impl Frozen {
    /// Seizes `pid` and stops all its threads at once, then its child processes, and theirs. A
    /// thread that sleeps in the kernel and cannot be woken makes this fail after some seconds
    /// ([`FreezeError::Stuck`]); such a thread stays traced until the calling thread ends, the
    /// others are let go. However busy the machine, it fails after a minute
    /// ([`FreezeError::Late`]), and they are let go.
    pub fn stop(pid: libc::pid_t) -> Result<Frozen, FreezeError> {
        let mut frozen = Frozen::new(pid);
        frozen.stop_again()?;
        Ok(frozen)
    }

    /// The same without its children.
    pub(crate) fn alone(pid: libc::pid_t) -> Result<Frozen, FreezeError> {
        Frozen::alone_until(pid, last_turn())
    }

    /// The same by `last` at the latest.
    pub(crate) fn alone_until(pid: libc::pid_t, last: Instant) -> Result<Frozen, FreezeError> {
        let mut frozen = Frozen::new(pid);
        // What was stopped before a failure is let go when it is dropped.
        frozen.stop_threads(last)?;
        Ok(frozen)
    }

    fn new(pid: libc::pid_t) -> Frozen {
        Frozen {
            tracee: Tracee(pid),
            attached: Vec::new(),
            borrowed: Vec::new(),
            scratch: None,
            since: Instant::now(),
            children: Vec::new(),
            ended: Vec::new(),
            left_out: Vec::new(),
            between: Arc::default(),
            given: GivenStreams::default(),
            first_ended: false,
            stood: Rc::default(),
            bound: None,
            tap: None,
            called_off: None,
            watch: None,
            limit: None,
            _this_thread: PhantomData,
        }
    }

    /// Leaves the socket with this inode out of images, as if it was not open: for what a restored
    /// process makes anew by itself.
    pub fn leave_out(&mut self, socket: u64) {
        self.left_out.push(socket);
    }

    /// What is to be known of it when it is looked at together with others ([`Between::look`]).
    pub fn process_tree(&self) -> ProcessTree {
        ProcessTree { pids: self.pids(), left_out: self.left_out.clone() }
    }

    /// It stands still together with others whose images are to come back with its own:
    /// connections to them are as they were found then.
    pub fn stands_with(&mut self, between: &Arc<Between>) {
        self.between = Arc::clone(between);
    }

    /// Says which standard streams it was given: these are streams of whoever restores it, also
    /// where the program has moved them to other descriptors.
    pub fn was_given(&mut self, streams: GivenStreams) {
        self.given = streams;
    }

    /// Says which processors it was given when it was started, as a mask. For a restore where
    /// others are given ([`crate::RestoreOptions::processors`]).
    pub fn is_bound_to(&mut self, mask: &[u8]) {
        self.bound = Some(mask.to_vec());
        self.children.iter_mut().for_each(|child| child.is_bound_to(mask));
    }

    /// For an image without a [`crate::Tracker`]: has seen which files it writes to, and makes.
    pub fn was_watched(&mut self, watch: Arc<Watch>) {
        self.watch = Some(watch);
    }

    /// Has its next image, not those of its children, go to a tap as well, while it is written. The
    /// file is not forced to the disk then.
    pub fn tap(&mut self, tap: Box<dyn Tap>) {
        self.tap = Some(tap);
    }

    /// Has its next image be given up once `called_off` is true, as long as memory is stored for
    /// that while it stands still: with an error, [`CaptureError::CalledOff`]. It is looked at
    /// between blocks of memory.
    ///
    /// [`CaptureError::CalledOff`]: crate::CaptureError::CalledOff
    pub fn until(&mut self, called_off: Arc<AtomicBool>) {
        self.called_off = Some(called_off);
    }

    /// How long it may stand still, with its children, for shared memory that goes straight into
    /// its next image while nothing of that is stored: then there is no image, but
    /// [`CaptureError::Slow`]. Without a word of this it is a minute; [`Duration::MAX`] is no
    /// limit, and there is none in [`Mode::Sync`]. As long as something is stored it is waited for.
    /// Looked at between blocks, too.
    ///
    /// [`CaptureError::Slow`]: crate::CaptureError::Slow
    /// [`Mode::Sync`]: crate::Mode::Sync
    pub fn stand_at_most(&mut self, limit: Duration) {
        self.limit = Some(limit);
    }

    /// Process number.
    pub fn pid(&self) -> libc::pid_t {
        self.tracee.0
    }

    /// Numbers of all processes that stand still: its own, then those of its descendants.
    pub fn pids(&self) -> Vec<libc::pid_t> {
        let below = self.children.iter().flat_map(Frozen::pids);
        std::iter::once(self.pid()).chain(below).collect()
    }

    /// Numbers of all those that have ended and were not waited for, by itself or its descendants.
    pub(crate) fn all_ended(&self) -> Vec<libc::pid_t> {
        let below = self.children.iter().flat_map(Frozen::all_ended);
        self.ended.iter().copied().chain(below).collect()
    }

    /// Whether it has ended. A dead process cannot be collected by others while we trace it, so the
    /// number is its own.
    pub fn has_ended(&self) -> bool {
        self.tracee.has_ended()
    }

    /// Whether it stood still already because of `SIGSTOP` or the like.
    pub(crate) fn group_stopped(&self) -> bool {
        self.attached.iter().any(|thread| thread.held)
    }

    /// Its threads, the first one first.
    pub(crate) fn threads(&self) -> Vec<Tracee> {
        self.attached.iter().map(|thread| thread.tracee).collect()
    }

    /// Lets it go on; [`Frozen::stop_again`] stops it again. In between it is not traced, so that
    /// its signals reach it as ever.
    pub fn go_on(&mut self) -> Result<(), FreezeError> {
        for mut child in self.children.drain(..) {
            // Its end is its parent's affair; another failure leaves it to the kernel, which
            // detaches when this thread ends.
            let _ = child.go_on();
        }
        self.ended.clear();
        if self.attached.is_empty() {
            self.collect_first();
            return Ok(());
        }
        // Of its descriptors none is borrowed any more.
        starting::settle();
        let (late, mut result) = self.give_back();
        let is_late = |thread: &Attached| late.iter().any(|b| b.tracee == thread.tracee);
        let end = Instant::now() + RELEASE_LIMIT;
        let mut waited_for = Vec::new();
        // The others before the first: of a process that was killed in the meantime the first
        // thread's end is only told when the others are collected.
        while let Some(thread) = self.attached.pop() {
            if is_late(&thread) {
                waited_for.push(thread);
                continue;
            }
            result = result.and(self.let_thread_go(thread, end));
        }
        result = result.and(self.wait_for_late(late, waited_for));
        self.scratch = None;
        self.collect_first();
        self.stood.set(Some(self.since.elapsed()));
        Ok(result?)
    }

    fn let_thread_go(&mut self, thread: Attached, end: Instant) -> Result<(), TraceError> {
        let first = thread.tracee == self.tracee;
        let detached = thread.detach(self.tracee, end);
        self.first_ended |= first && matches!(detached, Err(TraceError::Gone));
        detached
    }

    /// Waits for threads that the kernel has not let out of a system call that was made in their
    /// name. All others run meanwhile. There is no limit: let go of now, such a thread would go on
    /// as whatever the call has made of it. Who is killed is waited for no longer.
    fn wait_for_late(
        &mut self,
        late: Vec<Borrowed>,
        threads: Vec<Attached>,
    ) -> Result<(), TraceError> {
        let mut result = Ok(());
        for thread in threads {
            let Some(borrowed) = late.iter().find(|b| b.tracee == thread.tracee) else { continue };
            let home = loop {
                match wait_for_stop(thread.tracee, Instant::now() + TURN_LOOK) {
                    Ok(None) => {}
                    Ok(Some(_)) => break borrowed.put_back(),
                    Err(e) => break Err(e),
                }
            };
            if let Some((at, saved)) = self.scratch.take().filter(|_| home.is_ok()) {
                // The call may have answered there since. Its failure is that of the process.
                let _ = memory::write_exact(self.tracee.0, at, &saved);
            }
            let gone = self.let_thread_go(thread, Instant::now() + RELEASE_LIMIT);
            result = result.and(home).and(gone);
        }
        result
    }

    /// Tells the parent of a process that ended under our trace. A child of our own is left to be
    /// collected by its parent: that is us.
    fn collect_first(&mut self) {
        let pid = self.tracee.0;
        let own = u64::from(std::process::id());
        if !std::mem::take(&mut self.first_ended) {
            return;
        }
        let end = Instant::now() + RELEASE_LIMIT;
        self.let_successor_go(end);
        if Stat::read(pid).is_ok_and(|stat| stat.field(4) == own) {
            return;
        }
        // Its other threads, if they are let go and live on, are waited for by the kernel.
        while !try_reap(pid) && Instant::now() < end {
            std::thread::yield_now();
        }
    }

    /// A thread that executes another program ends all others and takes the number of the first,
    /// under which nobody has let it go.
    fn let_successor_go(&self, end: Instant) {
        let first = self.tracee;
        let is_left = || procfs::numbers(first.0, "task").is_ok_and(|tasks| tasks.len() > 1);
        // Until it has that number it is one of several.
        while !is_ours(first) && is_left() && Instant::now() < end {
            std::thread::yield_now();
        }
        if is_ours(first) && matches!(wait_for_stop(first, end), Ok(Some(_))) {
            let _ = first.detach(0);
        }
    }

    /// Stops it again after [`Frozen::go_on`].
    pub fn stop_again(&mut self) -> Result<(), FreezeError> {
        if !self.attached.is_empty() {
            return Ok(());
        }
        lazy::complete(self.tracee.0);
        self.since = Instant::now();
        self.stood = Rc::default();
        let last = last_turn();
        let stopped = self.stop_threads(last).and_then(|()| self.stop_children(last));
        let result = stopped.and_then(|()| Ok(fault::point(fault::STOPPED)?));
        if result.is_err() {
            // The reason why it could not be stopped is what counts.
            let _ = self.go_on();
        }
        result
    }

    /// Detaches; the process runs on.
    pub fn release(mut self) -> Result<(), FreezeError> {
        self.go_on()
    }

    /// Stops all threads that there are, until there are no new ones: then none runs that could
    /// start another. `last`: when it is given up however busy the machine.
    fn stop_threads(&mut self, last: Instant) -> Result<(), FreezeError> {
        let begun = Instant::now();
        for pass in 1.. {
            let end = (Instant::now() + fault::limit(STOP_LIMIT)).min(last);
            let mut tasks =
                procfs::numbers(self.tracee.0, "task").map_err(|_| FreezeError::Gone)?;
            if tasks.len() > MAX_THREADS {
                return Err(FreezeError::Threads { found: tasks.len(), limit: MAX_THREADS });
            }
            tasks.sort_by_key(|&tid| tid as libc::pid_t != self.tracee.0);
            let known = self.attached.len();
            self.attach_all(&tasks)?;
            if self.attached.len() == known {
                break;
            }
            self.take_stops(known, end, last)?;
            if let Some(stuck) = self.attached.iter().find(|thread| !thread.stopped) {
                let tid = stuck.tracee.0;
                let late = Err(FreezeError::Late { tid, limit: begun.elapsed() });
                return if is_blocked(tid) { Err(FreezeError::Stuck(tid)) } else { late };
            }
            if pass >= PASSES && begun.elapsed() >= STOP_LIMIT {
                return Err(FreezeError::Restless);
            }
        }
        match self.attached.first() {
            Some(first) if first.tracee == self.tracee => Ok(()),
            // A thread that stands still tells that the process is not about to end.
            Some(other) if other.tracee.regs().is_ok() => Err(FreezeError::FirstThreadEnded),
            _ => Err(FreezeError::Gone),
        }
    }

    /// Waits for the stops of the threads that were attached to, but for the first `known`. The
    /// first thread comes last: of its end one hears when the others were collected.
    fn take_stops(&mut self, known: usize, end: Instant, last: Instant) -> Result<(), FreezeError> {
        let mut result = Ok(());
        let mut there = Vec::new();
        for mut thread in self.attached.split_off(known).into_iter().rev() {
            let stopped = wait_for_turn_and_stop(thread.tracee, end, last);
            if matches!(stopped, Err(TraceError::Gone)) {
                self.first_ended |= thread.tracee == self.tracee;
                thread.forget(self.tracee);
                continue;
            }
            result = result.and(stopped.map(|stopped| {
                thread.stopped = stopped.is_some();
                thread.held = stopped == Some(true);
            }));
            there.push(thread);
        }
        self.attached.extend(there.into_iter().rev());
        Ok(result?)
    }

    /// Attaches those of the threads that are not yet.
    fn attach_all(&mut self, tasks: &[u32]) -> Result<(), FreezeError> {
        let known: HashSet<Tracee> = self.attached.iter().map(|thread| thread.tracee).collect();
        let tasks = tasks.iter().map(|&tid| Tracee(tid as libc::pid_t));
        let new: Vec<Tracee> = tasks.filter(|tracee| !known.contains(tracee)).collect();
        let first = self.tracee;
        let others = known.iter().filter(|&&tracee| tracee != first).map(|tracee| tracee.0);
        // One alone has nobody to wait for.
        let some = !new.is_empty() && known.len() + new.len() > 1;
        let reaper = some.then(|| ThreadReaper::of(others.collect()));
        for tracee in new {
            self.attach(tracee)?;
            if let Some(reaper) = reaper.as_ref().filter(|_| tracee != first) {
                reaper.add(tracee.0);
            }
        }
        Ok(())
    }

    /// Seizes a thread, unless it has ended, and asks it to stop.
    fn attach(&mut self, tracee: Tracee) -> Result<(), FreezeError> {
        let end = Instant::now() + fault::limit(SEIZE_LIMIT);
        match tracee.seize(libc::PTRACE_O_TRACESYSGOOD, end).map_err(|e| explain(tracee, e)) {
            Ok(()) => {}
            // It executed another program as it was let go, under another number.
            Err(FreezeError::Gone) if is_ours(tracee) => {}
            Err(FreezeError::Gone) => return Ok(()),
            Err(e) => return Err(e),
        }
        let listed = Listed::thread(tracee.0, self.tracee.0);
        self.attached.push(Attached { tracee, stopped: false, held: false, listed });
        fault::point(fault::SEIZED)?;
        match tracee.interrupt() {
            // Its end will be seen by the one who waits for its stop.
            Ok(()) | Err(TraceError::Gone) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    /// Puts back what was borrowed, in a stop from which the kernel restarts system calls. Returns
    /// what could not be put back yet.
    fn give_back(&mut self) -> (Vec<Borrowed>, Result<(), TraceError>) {
        let mut result = Ok(());
        let borrowed = std::mem::take(&mut self.borrowed);
        let touched: HashSet<Tracee> = borrowed.iter().map(|b| b.tracee).collect();
        let untouched = |thread: &&Attached| thread.stopped && !touched.contains(&thread.tracee);
        for thread in self.attached.iter().filter(untouched) {
            result = result.and(hide_stop(thread.tracee));
        }
        for tracee in borrowed.iter().map(|b| b.tracee) {
            // One that does not stand yet comes to that stop by itself; of one that has ended we
            // hear when that is waited for.
            let _ = tracee.interrupt().and_then(|()| tracee.resume(0));
        }
        let end = Instant::now() + BACK_LIMIT;
        let mut late = Vec::new();
        // As they were set going, but the first thread.
        for borrowed in borrowed.into_iter().rev() {
            match wait_for_stop(borrowed.tracee, end) {
                Ok(Some(_)) => result = result.and(borrowed.put_back()),
                Ok(None) => late.push(borrowed),
                Err(e) => result = result.and(Err(e)),
            }
        }
        (late, result)
    }
}

/// When a process is not tried to be stopped any more.
fn last_turn() -> Instant {
    Instant::now() + fault::limit(TURN_LIMIT)
}

/// Whether a thread waits in the kernel for something that cannot be interrupted: only this it
/// cannot leave by itself when it is its turn.
fn is_blocked(tid: libc::pid_t) -> bool {
    Status::read(tid).is_ok_and(|status| status.field("State").starts_with('D'))
}

/// Keeps from a thread, whose registers nobody has read yet, that it was stopped.
fn hide_stop(tracee: Tracee) -> Result<(), TraceError> {
    let before = tracee.regs()?;
    let mut regs = before;
    interrupted_calls::not_by_us(&mut regs);
    if regs.rax != before.rax { tracee.set_regs(&regs) } else { Ok(()) }
}

impl Attached {
    /// Lets it go; if it was killed meanwhile, it is collected, unless it is the first thread.
    fn detach(self, first: Tracee, end: Instant) -> Result<(), TraceError> {
        if !self.stopped {
            match wait_for_stop(self.tracee, end) {
                Ok(Some(_)) => {}
                // The kernel lets it go when this thread ends; until then it is known as traced.
                Ok(None) => {
                    std::mem::forget(self.listed);
                    return Ok(());
                }
                Err(e) => {
                    self.forget(first);
                    return Err(e);
                }
            }
        }
        let result = self.tracee.detach(0);
        if matches!(result, Err(TraceError::Gone)) {
            self.forget(first);
        }
        result
    }

    /// Collects a thread that has ended or was killed, so that the end of its process is told. The
    /// first thread's status is its parent's to collect.
    fn forget(self, first: Tracee) {
        if self.tracee != first {
            reap(self.tracee.0);
        }
    }
}

/// Waits for the stop that was asked for, until `end`, and longer if the thread is not blocked but
/// was not given a processor by then.
fn wait_for_turn_and_stop(
    tracee: Tracee,
    mut end: Instant,
    last: Instant,
) -> Result<Option<bool>, TraceError> {
    loop {
        let stopped = wait_for_stop(tracee, end)?;
        if stopped.is_some() || Instant::now() >= last || is_blocked(tracee.0) {
            return Ok(stopped);
        }
        end = (Instant::now() + TURN_LOOK).min(last);
    }
}

/// Waits for the stop that was asked for, until `end`. Tells whether the thread stood still anyway,
/// by a stopping signal; `None` if it does not stop. A signal that comes first is passed on, and
/// the stop asked for again: any trap takes back an earlier request.
fn wait_for_stop(tracee: Tracee, end: Instant) -> Result<Option<bool>, TraceError> {
    while let Some(stop) = tracee.wait_until(end)? {
        let signal = match stop {
            Stop::Event(EVENT_STOP, signal) => return Ok(Some(signal != libc::SIGTRAP)),
            Stop::Signal(signal) => signal,
            Stop::Event(libc::PTRACE_EVENT_CLONE, _) => {
                // Of a twin that was given up before it was made.
                tracee.event_message().into_iter().for_each(|pid| end_twin(pid as libc::pid_t));
                0
            }
            Stop::Event(..) | Stop::Syscall => 0,
        };
        tracee.interrupt()?;
        tracee.resume(signal)?;
    }
    Ok(None)
}

/// Why a thread could not be seized.
fn explain(tracee: Tracee, e: TraceError) -> FreezeError {
    let (what, source) = match e {
        TraceError::Os { what, source } => (what, source),
        other => return other.into(),
    };
    if source.raw_os_error() != Some(libc::EPERM) {
        return FreezeError::Os { what, source };
    }
    let Ok(status) = Status::read(tracee.0) else { return FreezeError::Gone };
    if status.field("State").starts_with(['Z', 'X']) {
        FreezeError::Gone
    } else if status.number("TracerPid", 10).is_ok_and(|tracer| tracer > 0) {
        // One that we attached to before, and whose end we have seen coming.
        let ends = is_traced_by_us(tracee.0) && !Listed::has(tracee.0);
        if ends { FreezeError::Gone } else { FreezeError::Traced }
    } else {
        FreezeError::NotPermitted
    }
}

/// Whether a thread that lives is traced by this one, which does not know of that.
fn is_ours(tracee: Tracee) -> bool {
    !Listed::has(tracee.0) && !tracee.has_ended() && is_traced_by_us(tracee.0)
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A process that is gone needs nothing; another failure leaves it to the kernel, which
        // detaches when this thread ends.
        let _ = self.go_on();
    }
}
