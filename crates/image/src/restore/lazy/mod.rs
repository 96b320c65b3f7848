//! A process that runs before all of its memory is there: what it touches is brought in at once,
//! the rest evenly within a time limit, or as fast as it goes when someone wants to freeze it.
//!
//! Everything is done by one thread, so that what the program does to its mappings meanwhile is
//! known before the next page is filled. If content turns out to be damaged the process is killed:
//! it must not go on with zeros in place of it. For the same reason a small process, the keeper,
//! holds the means of filling too: if ours dies, the one being filled waits for its pages until the
//! kernel kills it, instead of finding zeros.

pub(crate) mod account;
pub(crate) mod filling;
pub(crate) mod moves;
pub(crate) mod urgent;

use crate::PAGE_BYTES;
use crate::error::RestoreError;
use crate::kernel::holder::DescriptorHolder;
use crate::kernel::missing_pages::Uffd;
use crate::kernel::ptrace::{TraceError, Tracee};
use crate::kernel::remote_descriptors;
use crate::restore::lazy::filling::Filler;
use crate::restore::options::RestoreOptions;
use eyrie_image_format::read::image::Image;
use eyrie_image_format::state::{Backing, Region, region};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// What filling a process took.
#[derive(Debug, Clone, Copy, Default)]
#[non_exhaustive]
pub struct Filled {
    /// Until the pages were in that it is likely to need first.
    pub hot: Duration,
    /// Until all were in.
    pub all: Duration,
    /// Times that it waited for a page.
    pub faults: u64,
}

/// The filling of a process that runs already. It goes on by itself, also when this is dropped.
#[derive(Debug)]
pub struct Filling {
    pid: libc::pid_t,
    shared: Arc<Shared>,
}

/// What the thread that fills and those who wait for it have in common.
#[derive(Debug)]
pub(crate) struct Shared {
    pub progress: Mutex<Progress>,
    pub changed: Condvar,
    /// Rung when there is haste.
    pub bell: OwnedFd,
}

/// How far it has come.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pub filled: Filled,
    /// What is needed first is in.
    pub hot: bool,
    /// Someone waits for the end.
    pub haste: bool,
    pub over: bool,
    /// All of its memory came.
    pub whole: bool,
    pub failure: Option<RestoreError>,
}

/// Processes that are being filled.
static FILLING: Mutex<Vec<(libc::pid_t, Arc<Shared>)>> = Mutex::new(Vec::new());

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

/// Takes a process off the list.
pub(crate) fn not_filling(pid: libc::pid_t) {
    lock(&FILLING).retain(|(p, _)| *p != pid);
}

/// If the process is being filled, waits until that is over, which is made to be soon.
pub(crate) fn complete(pid: libc::pid_t) {
    let shared = lock(&FILLING).iter().find(|(p, _)| *p == pid).map(|(_, s)| Arc::clone(s));
    if let Some(shared) = shared {
        shared.hurry();
        drop(shared.wait(|progress| progress.over));
    }
}

impl Shared {
    fn wait(&self, until: impl Fn(&Progress) -> bool) -> MutexGuard<'_, Progress> {
        let progress = lock(&self.progress);
        let done = self.changed.wait_while(progress, |progress| !until(progress));
        done.unwrap_or_else(|e| e.into_inner())
    }

    fn hurry(&self) {
        lock(&self.progress).haste = true;
        let one = 1u64;
        // SAFETY: writes eight bytes from a live integer; a full counter has been rung already.
        unsafe { libc::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8) };
    }
}

impl Filling {
    /// Process that is filled.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Whether all its memory is in, or it has died.
    pub fn is_over(&self) -> bool {
        lock(&self.shared.progress).over
    }

    /// Whether all its memory is in.
    pub fn is_whole(&self) -> bool {
        lock(&self.shared.progress).whole
    }

    /// Waits until it is over; hurries it if `now`. An error means that the process was killed.
    pub fn wait(self, now: bool) -> Result<Filled, RestoreError> {
        if now {
            self.shared.hurry();
        }
        let mut progress = self.shared.wait(|progress| progress.over);
        progress.failure.take().map_or(Ok(progress.filled), Err)
    }

    /// Begins to fill the ranges of the stopped process `pid` through `fd`, and returns when what
    /// it is likely to need first is in.
    pub(crate) fn begin(
        image: &Arc<Image>,
        pid: libc::pid_t,
        fd: OwnedFd,
        ranges: &[(u64, u64)],
        limit: Duration,
    ) -> io::Result<Filling> {
        let process = remote_descriptors::process(pid, 0)?;
        let uffd = Uffd::new(fd)?;
        for &(start, end) in ranges {
            uffd.register(start, end)?;
        }
        let holder = DescriptorHolder::start(process.as_raw_fd(), uffd.fd())?;
        // SAFETY: numbers only; the result is checked.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let bell = unsafe { OwnedFd::from_raw_fd(bell) };
        let (progress, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { progress, changed, bell });
        let filler = Filler::new(image, uffd, (pid, process), &shared, ranges, limit);
        lock(&FILLING).push((pid, Arc::clone(&shared)));
        let run = move || filler.run(holder);
        if let Err(e) = thread::Builder::new().name("eyrie-fill".into()).spawn(run) {
            not_filling(pid);
            return Err(e);
        }
        drop(shared.wait(|progress| progress.hot || progress.over));
        Ok(Filling { pid, shared })
    }
}

/// The wish to restore a process lazily, and what became of it.
pub(crate) struct Lazy {
    image: Arc<Image>,
    limit: Option<Duration>,
    /// Bytes below which it is not worth it.
    least: u64,
    /// Set once it has begun.
    pub filling: Option<Filling>,
    /// Why it was not possible.
    pub why_not: Option<String>,
}

impl Lazy {
    /// Within which time all memory is to be in, if not before the process runs.
    pub fn wish(options: &RestoreOptions) -> Option<Duration> {
        options.lazy.or_else(variable)
    }

    /// `family` tells that there are other processes too.
    pub fn new(image: &Arc<Image>, options: &RestoreOptions, family: bool) -> Lazy {
        let limit = Lazy::wish(options);
        let refused = limit.is_some() && family;
        let why_not = refused.then(|| String::from("it has child processes"));
        let limit = limit.filter(|_| !family);
        let least = if variable().is_some() { 0 } else { options.lazy_from };
        let image = Arc::clone(image);
        Lazy { image, limit, least, filling: None, why_not }
    }

    /// Begins to fill the process, whose regions are mapped and which is stopped. Returns the
    /// ranges that are taken care of; if it is not possible, none are.
    pub fn begin(&mut self, tracee: Tracee) -> Vec<(u64, u64)> {
        let Some(limit) = self.limit else { return Vec::new() };
        let ranges = ranges(&self.image);
        if held(&self.image, &ranges) < self.least {
            return Vec::new();
        }
        let begun = descriptor(tracee)
            .and_then(|fd| Filling::begin(&self.image, tracee.0, fd, &ranges, limit));
        match begun {
            Ok(filling) => self.filling = Some(filling),
            Err(error) => {
                self.why_not = Some(format!("userfaultfd cannot be used: {error}"));
                return Vec::new();
            }
        }
        ranges
    }
}

impl Drop for Lazy {
    fn drop(&mut self) {
        // Of a process that could not be restored, and is dead.
        if let Some(filling) = self.filling.take() {
            let _ = filling.wait(true);
        }
    }
}

/// What the environment asks for.
fn variable() -> Option<Duration> {
    let millis = std::env::var("EYRIE_IMAGE_LAZY").ok()?.parse().ok()?;
    Some(Duration::from_millis(millis))
}

/// Regions that can be filled late: private memory with content and without a file. Not the huge
/// pages of hugetlbfs, which userfaultfd fills only as a whole, nor what a copy of the process does
/// not have.
pub(crate) fn ranges(image: &Image) -> Vec<(u64, u64)> {
    let holds = |r: &&Region| {
        let content = !image.extents_in(r.start, r.end).is_empty();
        let unfit = region::SHARED | region::HUGE_2M | region::HUGE_1G | region::WIPE_ON_FORK;
        r.backing == Backing::Anon {} && r.flags & unfit == 0 && content
    };
    image.state.regions.iter().filter(holds).map(|r| (r.start, r.end)).collect()
}

/// Whether a process may be filled late as far as the kernel says: one of ours may do what we may.
pub(crate) fn is_permitted() -> bool {
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: numbers only; the result is checked.
    remote_descriptors::made(unsafe { libc::syscall(libc::SYS_userfaultfd, flags) }).is_ok()
}

/// Bytes that an image holds of these ranges.
fn held(image: &Image, ranges: &[(u64, u64)]) -> u64 {
    let extents = ranges.iter().flat_map(|&(start, end)| image.extents_in(start, end));
    extents.map(|extent| extent.pages * PAGE_BYTES).sum()
}

/// Whether an address is in one of the ranges, which are in order.
pub(crate) fn within(ranges: &[(u64, u64)], address: u64) -> bool {
    let after = ranges.partition_point(|r| r.0 <= address);
    after > 0 && address < ranges[after - 1].1
}

/// Has the stopped process make a userfaultfd, and takes it from there.
fn descriptor(tracee: Tracee) -> io::Result<OwnedFd> {
    let other = |e: String| io::Error::other(e);
    let traced = |e: TraceError| match e {
        TraceError::Gone => io::Error::from_raw_os_error(libc::ESRCH),
        TraceError::Late { .. } => io::ErrorKind::TimedOut.into(),
        TraceError::Os { source, .. } => source,
    };
    let site = crate::restore::steps::site(tracee.0).map_err(|e| other(e.to_string()))?;
    let mut regs = tracee.regs().map_err(traced)?;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    let call = |nr: libc::c_long, args: &[u64]| {
        tracee.syscall(site, &regs, nr, args, &mut None).map_err(traced)
    };
    let made = call(libc::SYS_userfaultfd, &[flags])?;
    let taken = match made {
        0.. => {
            let taken = remote_descriptors::take(tracee.0, made as u64);
            call(libc::SYS_close, &[made as u64])?;
            taken
        }
        _ => Err(io::Error::from_raw_os_error((-made) as i32)),
    };
    // It was stopped on its way out of a call, which must not be taken for an interrupted one.
    regs.orig_rax = u64::MAX;
    tracee.set_regs(&regs).map_err(traced)?;
    taken
}
