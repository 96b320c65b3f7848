//! Stopping a process from outside and letting it go on as if nothing had happened.
//!
//! What stays true: whatever was done to the stopped process is undone before it runs on. Its
//! registers are put back while it stands in a stop from which the kernel itself decides about
//! interrupted system calls, so that these restart, or return `EINTR` to a signal that came
//! meanwhile, exactly as without us.

use crate::error::FreezeError;
use crate::procfs::{self, Status};
use crate::trace::{Listed, Regs, Stop, TraceError, Tracee};
use std::cell::Cell;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// `PTRACE_EVENT_STOP`.
const EVENT_STOP: i32 = 128;

/// A process that this *thread* traces. All calls must come from the thread that stopped it.
/// Dropping lets the process run on.
pub struct Frozen {
    pub(crate) tracee: Tracee,
    attached: Option<Listed>,
    /// What to put back before it runs on.
    pub(crate) borrowed: Option<Borrowed>,
    since: Instant,
    /// How long it stood still, once it does not any more; shared with the twin's report.
    pub(crate) stood: Rc<Cell<Option<Duration>>>,
    _this_thread: PhantomData<*const ()>,
}

/// State of the process that was changed for the time of the freeze.
pub(crate) struct Borrowed {
    pub regs: Regs,
    pub sigmask: u64,
}

impl From<TraceError> for FreezeError {
    fn from(e: TraceError) -> FreezeError {
        match e {
            TraceError::Gone => FreezeError::Gone,
            TraceError::Os { what, source } => FreezeError::Os { what, source },
        }
    }
}

impl Frozen {
    /// Seizes `pid` and stops it at once.
    pub fn stop(pid: libc::pid_t) -> Result<Frozen, FreezeError> {
        let mut frozen = Frozen {
            tracee: Tracee(pid),
            attached: None,
            borrowed: None,
            since: Instant::now(),
            stood: Rc::default(),
            _this_thread: PhantomData,
        };
        frozen.stop_again()?;
        Ok(frozen)
    }

    /// Process number.
    pub fn pid(&self) -> libc::pid_t {
        self.tracee.0
    }

    /// Lets it go on; [`Frozen::stop_again`] stops it again. In between it is not traced, so that
    /// its signals reach it as ever.
    pub fn go_on(&mut self) -> Result<(), FreezeError> {
        if self.attached.is_none() {
            return Ok(());
        }
        self.give_back()?;
        self.attached = None;
        self.tracee.detach(0)?;
        self.stood.set(Some(self.since.elapsed()));
        Ok(())
    }

    /// Stops it again after [`Frozen::go_on`].
    pub fn stop_again(&mut self) -> Result<(), FreezeError> {
        if self.attached.is_some() {
            return Ok(());
        }
        self.check_threads()?;
        self.since = Instant::now();
        self.stood = Rc::default();
        self.tracee.seize(libc::PTRACE_O_TRACESYSGOOD).map_err(|e| self.explain(e))?;
        self.attached = Some(Listed::new(self.tracee.0));
        self.tracee.interrupt()?;
        self.wait_for_stop()?;
        self.check_threads()
    }

    /// Detaches; the process runs on.
    pub fn release(mut self) -> Result<(), FreezeError> {
        self.go_on()
    }

    /// Waits for the stop that was asked for. A signal that comes first is passed on, and the stop
    /// asked for again: any trap of the process takes back an earlier request.
    fn wait_for_stop(&self) -> Result<(), FreezeError> {
        loop {
            match self.tracee.wait()? {
                Stop::Event(EVENT_STOP, _) => return Ok(()),
                Stop::Signal(signal) => {
                    self.tracee.interrupt()?;
                    self.tracee.resume(signal)?;
                }
                Stop::Event(..) | Stop::Syscall => {
                    self.tracee.interrupt()?;
                    self.tracee.resume(0)?;
                }
            }
        }
    }

    /// Puts back what was borrowed, in a stop from which the kernel restarts system calls.
    fn give_back(&mut self) -> Result<(), FreezeError> {
        let Some(borrowed) = self.borrowed.take() else { return Ok(()) };
        self.tracee.set_options(libc::PTRACE_O_TRACESYSGOOD)?;
        self.tracee.interrupt()?;
        self.tracee.resume(0)?;
        self.wait_for_stop()?;
        self.tracee.set_regs(&borrowed.regs)?;
        self.tracee.set_sigmask(borrowed.sigmask)?;
        Ok(())
    }

    fn check_threads(&self) -> Result<(), FreezeError> {
        match procfs::numbers(self.tracee.0, "task") {
            Ok(tasks) if tasks.len() > 1 => Err(FreezeError::Threads(tasks.len())),
            Ok(_) => Ok(()),
            Err(_) => Err(FreezeError::Gone),
        }
    }

    fn explain(&self, e: TraceError) -> FreezeError {
        let TraceError::Os { what, source } = e else { return FreezeError::Gone };
        if source.raw_os_error() != Some(libc::EPERM) {
            return FreezeError::Os { what, source };
        }
        let Ok(status) = Status::read(self.tracee.0) else { return FreezeError::Gone };
        if status.field("State").starts_with(['Z', 'X']) {
            FreezeError::Gone
        } else if status.number("TracerPid", 10).is_ok_and(|tracer| tracer != 0) {
            FreezeError::Traced
        } else {
            FreezeError::NotPermitted
        }
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        // A process that is gone needs nothing; another failure leaves it to the kernel, which
        // detaches when this thread ends.
        let _ = self.go_on();
    }
}
