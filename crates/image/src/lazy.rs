//! A process that runs before all of its memory is there: what it touches is brought in at once,
//! the rest evenly within a time limit, or as fast as it goes when someone wants to freeze it.
//!
//! Everything is done by one thread, so that what the program does to its mappings meanwhile is
//! known before the next page is filled. If content turns out to be damaged the process is killed:
//! it must not go on with zeros in place of it. For the same reason a small process, the keeper,
//! holds the means of filling too: if ours dies, the one being filled waits for its pages until the
//! kernel kills it, instead of finding zeros.

use crate::blocks::{Blocks, Wanted};
use crate::error::RestoreError;
use crate::format::Extent;
use crate::image::Image;
use crate::keeper::Keeper;
use crate::missing::{Copied, Event, Uffd};
use crate::moves::Moves;
use crate::restore::RestoreOptions;
use crate::state::{Backing, Region, region};
use crate::trace::{TraceError, Tracee};
use crate::{PAGE_BYTES, hot};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

/// How long to wait for a report that must come.
const REPORT_WAIT: Duration = Duration::from_millis(100);

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

#[derive(Debug)]
struct Shared {
    progress: Mutex<Progress>,
    changed: Condvar,
    /// Rung when there is haste.
    bell: OwnedFd,
}

#[derive(Debug, Default)]
struct Progress {
    filled: Filled,
    hot: bool,
    haste: bool,
    over: bool,
    failure: Option<RestoreError>,
}

/// Processes that are being filled.
static FILLING: Mutex<Vec<(libc::pid_t, Arc<Shared>)>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
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
        let begun = Instant::now();
        let process = pidfd(pid)?;
        let uffd = Uffd::new(fd)?;
        for &(start, end) in ranges {
            uffd.register(start, end)?;
        }
        let keeper = Keeper::start(process.as_raw_fd(), uffd.fd())?;
        // SAFETY: numbers only; the result is checked.
        let bell = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if bell < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let bell = unsafe { OwnedFd::from_raw_fd(bell) };
        let (progress, changed) = (Mutex::default(), Condvar::new());
        let shared = Arc::new(Shared { progress, changed, bell });
        let filler = Filler {
            targets: vec![Target::new(uffd, image.wants.blocks.len())],
            wanted: wanted_within(image, ranges),
            hot: hot::blocks(image),
            image: Arc::clone(image),
            blocks: Blocks::default(),
            shared: Arc::clone(&shared),
            process,
            begun,
            limit,
            faults: 0,
        };
        lock(&FILLING).push((pid, Arc::clone(&shared)));
        let run = move || filler.run(pid, keeper);
        if let Err(e) = thread::Builder::new().name("eyrie-fill".into()).spawn(run) {
            lock(&FILLING).retain(|(p, _)| *p != pid);
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
    /// Set once it has begun.
    pub filling: Option<Filling>,
    /// Why it was not possible.
    pub why_not: Option<String>,
}

impl Lazy {
    /// `family` tells that there are other processes too.
    pub fn new(image: &Arc<Image>, options: &RestoreOptions, family: bool) -> Lazy {
        let variable = || std::env::var("EYRIE_IMAGE_LAZY").ok()?.parse().ok();
        let limit = options.lazy.or_else(|| variable().map(Duration::from_millis));
        let refused = limit.is_some() && family;
        let why_not = refused.then(|| String::from("it has child processes"));
        let limit = limit.filter(|_| !family);
        Lazy { image: Arc::clone(image), limit, filling: None, why_not }
    }

    /// Begins to fill the process, whose regions are mapped and which is stopped. Returns the
    /// ranges that are taken care of; if it is not possible, none are.
    pub fn begin(&mut self, tracee: Tracee) -> Vec<(u64, u64)> {
        let Some(limit) = self.limit else { return Vec::new() };
        let ranges = ranges(&self.image);
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

/// Regions that can be filled late: private memory with content and without a file. Not the huge
/// pages of hugetlbfs: userfaultfd fills each of these only as a whole.
fn ranges(image: &Image) -> Vec<(u64, u64)> {
    let holds = |r: &&Region| {
        let after = image.extents.partition_point(|e| e.start < r.start);
        let content = image.extents.get(after).is_some_and(|e| e.start < r.end);
        let unfit = region::SHARED | region::HUGE_2M | region::HUGE_1G;
        r.backing == Backing::Anon {} && r.flags & unfit == 0 && content
    };
    image.state.regions.iter().filter(holds).map(|r| (r.start, r.end)).collect()
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
        TraceError::Os { source, .. } => source,
    };
    let site = crate::restore::site(tracee.0).map_err(|e| other(e.to_string()))?;
    let mut regs = tracee.regs().map_err(traced)?;
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    let call = |nr: libc::c_long, args: &[u64]| {
        tracee.syscall(site, &regs, nr, args, &mut None).map_err(traced)
    };
    let made = call(libc::SYS_userfaultfd, &[flags])?;
    let taken = match made {
        0.. => {
            let taken = take(tracee.0, made);
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

fn pidfd(pid: libc::pid_t) -> io::Result<OwnedFd> {
    // SAFETY: numbers only; the result is checked.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Takes over descriptor `fd` of the process `pid`.
pub(crate) fn take(pid: libc::pid_t, fd: i64) -> io::Result<OwnedFd> {
    let process = pidfd(pid)?;
    // SAFETY: numbers only; the result is checked.
    let taken = unsafe { libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), fd, 0) };
    if taken < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(taken as i32) })
}

/// For each wanted block, whether part of it belongs in the ranges.
fn wanted_within(image: &Image, ranges: &[(u64, u64)]) -> Vec<bool> {
    let blocks = image.wants.blocks.iter();
    let any = |w: &Wanted| image.wants.pieces_of(w).iter().any(|p| within(ranges, p.address));
    blocks.map(any).collect()
}

/// A process being filled: the restored one, or one that it has forked meanwhile.
struct Target {
    uffd: Uffd,
    moves: Moves,
    /// For each wanted block, whether it is in.
    filled: Vec<bool>,
    next: usize,
    dead: bool,
}

impl Target {
    fn new(uffd: Uffd, blocks: usize) -> Target {
        Target { uffd, moves: Moves::default(), filled: vec![false; blocks], next: 0, dead: false }
    }
}

/// The thread that does it.
struct Filler {
    image: Arc<Image>,
    targets: Vec<Target>,
    wanted: Vec<bool>,
    hot: Vec<usize>,
    blocks: Blocks,
    shared: Arc<Shared>,
    process: OwnedFd,
    begun: Instant,
    limit: Duration,
    faults: u64,
}

impl Filler {
    fn run(mut self, pid: libc::pid_t, keeper: Keeper) {
        let result = self.fill_all();
        if result.is_err() {
            let (process, info) = (self.process.as_raw_fd(), std::ptr::null::<libc::siginfo_t>());
            // SAFETY: numbers and no information; the descriptor stands for this very process.
            unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, process, libc::SIGKILL, info, 0);
            }
        }
        drop(keeper);
        self.targets.clear();
        lock(&FILLING).retain(|(p, _)| *p != pid);
        let mut progress = lock(&self.shared.progress);
        progress.filled.all = self.begun.elapsed();
        progress.filled.faults = self.faults;
        progress.failure = result.err();
        progress.over = true;
        self.shared.changed.notify_all();
    }

    fn fill_all(&mut self) -> Result<(), RestoreError> {
        for block in std::mem::take(&mut self.hot) {
            self.fill(0, block)?;
        }
        {
            let mut progress = lock(&self.shared.progress);
            progress.hot = true;
            progress.filled.hot = self.begun.elapsed();
            self.shared.changed.notify_all();
        }
        let total = self.wanted.iter().filter(|w| **w).count().max(1) as u32;
        let mut done = 0;
        // A process that was forked has never had a chance to be filled slowly.
        while let Some(target) = (0..self.targets.len()).rev().find(|&t| self.is_unfilled(t)) {
            if target == 0 {
                done += 1;
                self.pause_until(self.begun + self.limit * done / total)?;
            }
            let next = self.targets[target].next;
            if next < self.wanted.len() {
                self.fill(target, next)?;
                self.targets[target].next += 1;
            }
            self.events(Duration::ZERO)?;
        }
        Ok(())
    }

    fn is_unfilled(&mut self, target: usize) -> bool {
        let target = &mut self.targets[target];
        while target.next < self.wanted.len()
            && (!self.wanted[target.next] || target.filled[target.next])
        {
            target.next += 1;
        }
        !target.dead && target.next < self.wanted.len()
    }

    /// Serves faults until it is time to go on.
    fn pause_until(&mut self, time: Instant) -> Result<(), RestoreError> {
        loop {
            let left = time.saturating_duration_since(Instant::now());
            let others = self.targets.iter().skip(1).any(|t| !t.dead && t.next < self.wanted.len());
            let gone = self.targets.iter().all(|t| t.dead);
            if left.is_zero() || others || gone || lock(&self.shared.progress).haste {
                return Ok(());
            }
            self.events(left)?;
        }
    }

    /// Brings a block in. What has content there by now is left alone.
    fn fill(&mut self, target: usize, block: usize) -> Result<(), RestoreError> {
        if self.targets[target].filled[block] || self.targets[target].dead || !self.wanted[block] {
            return Ok(());
        }
        let image = Arc::clone(&self.image);
        let wanted = &image.wants.blocks[block];
        let mut blocks = std::mem::take(&mut self.blocks);
        let pages = blocks.pages(&image.parts[wanted.part], wanted.block)?;
        let complete = loop {
            let complete = self.copy_pieces(target, &image, block, pages)?;
            if complete || self.targets[target].dead {
                break complete;
            }
            // The mappings are being changed; that is reported at any moment.
            self.events(REPORT_WAIT)?;
        };
        self.blocks = blocks;
        self.targets[target].filled[block] = complete;
        Ok(())
    }

    /// Copies to where the pieces of a block belong by now. False if that is changing.
    fn copy_pieces(
        &mut self,
        target: usize,
        image: &Image,
        block: usize,
        pages: &[u8],
    ) -> Result<bool, RestoreError> {
        let target = &mut self.targets[target];
        for piece in image.wants.pieces_of(&image.wants.blocks[block]) {
            let end = piece.address + piece.bytes as u64;
            for (origin, bytes, at) in target.moves.now(piece.address, end) {
                let offset = piece.offset + (origin - piece.address) as usize;
                match copy(&target.uffd, at, &pages[offset..offset + bytes as usize])? {
                    Copied::Changing => return Ok(false),
                    Copied::Dead => {
                        target.dead = true;
                        return Ok(false);
                    }
                    _ => {}
                }
            }
        }
        Ok(true)
    }

    /// Waits for reports, at most so long, and acts upon them.
    fn events(&mut self, wait: Duration) -> Result<(), RestoreError> {
        let entry = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polled: Vec<libc::pollfd> =
            self.targets.iter().filter(|t| !t.dead).map(|t| entry(t.uffd.fd())).collect();
        polled.push(entry(self.process.as_raw_fd()));
        polled.push(entry(self.shared.bell.as_raw_fd()));
        let millis = wait.as_micros().div_ceil(1000).min(1000) as i32;
        // SAFETY: the list is live and as long as said.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, millis) };
        if polled[polled.len() - 2].revents != 0 {
            self.targets[0].dead = true;
        }
        if polled[polled.len() - 1].revents != 0 {
            let mut count = 0u64;
            // SAFETY: reads eight bytes to a live integer.
            unsafe { libc::read(self.shared.bell.as_raw_fd(), (&raw mut count).cast(), 8) };
        }
        let ready = |t: &Target| polled.iter().any(|p| p.fd == t.uffd.fd() && p.revents != 0);
        let ready: Vec<usize> = (0..self.targets.len())
            .filter(|&t| !self.targets[t].dead && ready(&self.targets[t]))
            .collect();
        for target in ready {
            for event in self.targets[target].uffd.events().map_err(failed)? {
                self.act(target, event)?;
            }
        }
        Ok(())
    }

    fn act(&mut self, target: usize, event: Event) -> Result<(), RestoreError> {
        match event {
            Event::Fault(page) => return self.serve(target, page),
            Event::Moved { from, to, bytes } => self.targets[target].moves.moved(from, to, bytes),
            Event::Gone { start, end } => self.targets[target].moves.gone(start, end),
            Event::Fork(uffd) => {
                let parent = &self.targets[target];
                let (moves, filled) = (parent.moves.clone(), parent.filled.clone());
                self.targets.push(Target { uffd, moves, filled, next: 0, dead: false });
            }
        }
        Ok(())
    }

    /// Brings in the page that the process waits for.
    fn serve(&mut self, target: usize, page: u64) -> Result<(), RestoreError> {
        self.faults += 1;
        let origin = self.targets[target].moves.origin(page);
        match origin.and_then(|origin| block_at(&self.image, origin)) {
            Some(block) if !self.targets[target].filled[block] => self.fill(target, block)?,
            Some(_) => {}
            None => {
                let target = &mut self.targets[target];
                target.dead |= target.uffd.zero(page).map_err(failed)? == Copied::Dead;
            }
        }
        self.targets[target].uffd.wake(page);
        Ok(())
    }
}

fn failed(source: io::Error) -> RestoreError {
    RestoreError::Os { what: "fill the restored process's memory", source }
}

/// Copies what has no content yet. Only `All`, `Changing` and `Dead` are returned.
fn copy(uffd: &Uffd, at: u64, pages: &[u8]) -> Result<Copied, RestoreError> {
    let (mut done, mut single) = (0, false);
    while done < pages.len() {
        let end = if single { done + PAGE_BYTES as usize } else { pages.len() };
        match uffd.copy(at + done as u64, &pages[done..end]).map_err(failed)? {
            Copied::All => (done, single) = (end, false),
            // No content is lost: it is there, or the next attempt tells more.
            Copied::Until(0) => done += PAGE_BYTES as usize,
            Copied::Until(bytes) => done += bytes as usize,
            // At the end of a mapping, or of what is still mapped.
            Copied::Split(0) if single => (done, single) = (end, false),
            Copied::Split(bytes) => (done, single) = (done + bytes as usize, true),
            other => return Ok(other),
        }
    }
    Ok(Copied::All)
}

/// The wanted block that holds the content of an address.
pub(crate) fn block_at(image: &Image, address: u64) -> Option<usize> {
    let after = image.extents.partition_point(|e| e.start <= address);
    let extent: &Extent = image.extents.get(after.checked_sub(1)?)?;
    let page = (address - extent.start) / PAGE_BYTES;
    if page >= extent.pages {
        return None;
    }
    let part = extent.home as usize;
    let block = image.parts[part].block_of(extent.first + page);
    let blocks = &image.wants.blocks;
    blocks.binary_search_by_key(&(part, block), |w| (w.part, w.block)).ok()
}
