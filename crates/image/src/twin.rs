//! The frozen twin: a copy-on-write copy of a stopped process that never runs. The process goes on
//! while the twin is read at leisure, then it is killed.
//!
//! The twin is a child of the process's own parent: the process never learns of it. It dies with
//! its tracer whatever happens, and holds no descriptor, so that no pipe stays open on its account.

use crate::agent::Agent;
use crate::append;
use crate::capture::{self, Snapshot};
use crate::check;
use crate::descriptors::Survey;
use crate::error::CaptureError;
use crate::fault;
use crate::format::Extent;
use crate::freeze::Frozen;
use crate::memory;
use crate::orphans::Orphans;
use crate::procfs::{self, Mapping};
use crate::pull::{Kind, Puller};
use crate::regions::{Content, Regions};
use crate::scan::Pagemap;
use crate::sink::StreamSink;
use crate::state::{Backing, ORPHAN_BASE, Region, Run, State, region};
use crate::trace::{Listed, Stop, TraceError, Tracee};
use crate::tree;
use crate::write::{Contents, ImageWriter};
use crate::{ImageReport, PAGE_BYTES};
use std::cell::{Cell, RefCell};
use std::io::{self, Write};
use std::marker::PhantomData;
use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

const OPTIONS: i32 =
    libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;

/// Largest mapping whose page table is read entry by entry while the process stands still.
const MAX_SLOW_SEARCH_BYTES: u64 = 16 << 20;

/// A frozen copy of a process. Owned by the thread that made it; killed and reaped when dropped.
pub struct Twin {
    /// Gone once its memory has been read.
    process: Option<Process>,
    pid: libc::pid_t,
    /// The process that it is a copy of.
    original: libc::pid_t,
    snapshot: Option<Snapshot>,
    agent: Agent,
    saved: Vec<Saved>,
    /// Mappings that it has not inherited.
    dont_fork: Vec<Mapping>,
    /// Twins of its children.
    children: Vec<Twin>,
    /// All processes of its family and their twins.
    family: Rc<RefCell<Vec<libc::pid_t>>>,
    made: Duration,
    born: Instant,
    stood: Rc<Cell<Option<Duration>>>,
    _this_thread: PhantomData<*const ()>,
}

/// Content that is not the twin's own, read from the frozen process.
pub(crate) struct Saved {
    /// First address.
    pub start: u64,
    /// Whole pages.
    pub content: Vec<u8>,
}

/// The twin's process, killed and reaped when dropped.
struct Process(Tracee, #[allow(dead_code, reason = "held for its drop")] Listed);

impl Process {
    fn new(pid: libc::pid_t) -> Process {
        Process(Tracee(pid), Listed::new(pid))
    }

    /// Has the agent's process make another, which stands still; `born` gets its number.
    fn fork(
        agent: &Agent,
        flags: i32,
        born: &mut Option<libc::pid_t>,
    ) -> Result<Process, CaptureError> {
        let result = agent.fork(flags, born);
        let process = born.map(Process::new);
        if matches!(result, Err(CaptureError::Gone)) && process.is_none() {
            reap_unannounced();
        }
        result?;
        let process = process.ok_or(CaptureError::Gone)?;
        fault::point(fault::TWIN_BORN)?;
        match process.0.wait() {
            Ok(Stop::Event(..) | Stop::Signal(_)) => Ok(process),
            Ok(Stop::Syscall) | Err(TraceError::Gone) => Err(CaptureError::TwinGone),
            Err(e) => Err(e.into()),
        }
    }

    /// Makes a copy of a process that is not our child: its parent, or it itself, would learn of a
    /// child that is not its own. So it makes a process that shares its memory, that makes the
    /// copy, and is killed and collected at once; the copy goes to who takes orphans.
    fn fork_orphan(agent: &Agent) -> Result<Process, CaptureError> {
        let shared = libc::CLONE_VM | libc::CLONE_FS | libc::CLONE_FILES;
        let mut number = None;
        let between = Process::fork(agent, shared, &mut number);
        // It is killed and collected, by us, at the end of this line.
        let twin = between.and_then(|b| Process::fork(&agent.of_twin(b.0), 0, &mut None));
        if let Some(number) = number {
            let options = (libc::__WALL | libc::WNOHANG) as u64;
            agent.call(libc::SYS_wait4, &[number as u64, 0, options, 0])?;
        }
        twin
    }
}

/// A process killed in the middle of the clone may leave a twin whose number was never told. It is
/// a child of ours that this thread traces and does not know.
fn reap_unannounced() {
    // SAFETY: no arguments.
    let own_thread = unsafe { libc::gettid() };
    let Ok(entries) = std::fs::read_dir("/proc") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|n| n.parse::<libc::pid_t>().ok()) else {
            continue;
        };
        let Ok(status) = procfs::Status::read(pid) else { continue };
        // The child of a process that was killed too may have gone to another parent.
        let ours = status.number("TracerPid", 10).is_ok_and(|t| t == own_thread as u64);
        if ours && !Listed::has(pid) {
            drop(Process::new(pid));
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let pid = self.0.0;
        // SAFETY: the twin is our traced child and not reaped before this, so the number is its
        // own.
        unsafe { libc::kill(pid, libc::SIGKILL) };
        reap(pid);
    }
}

/// Collects a process that has ended, if it can be collected already or is none of ours.
pub(crate) fn try_reap(pid: libc::pid_t) -> bool {
    let mut status = 0;
    // SAFETY: asks about this one child and writes to a live integer.
    let r = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL | libc::WNOHANG) };
    r != 0 && !(r == pid && libc::WIFSTOPPED(status))
}

/// Waits until a killed child is gone, through any stops that it may still report.
pub(crate) fn reap(pid: libc::pid_t) {
    loop {
        let mut status = 0;
        // SAFETY: waits for this one child and writes to a live integer.
        let r = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
        let interrupted =
            r == -1 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
        let stopped = r == pid && libc::WIFSTOPPED(status);
        if !interrupted && !stopped {
            return;
        }
    }
}

impl Frozen {
    /// Makes a copy-on-write twin and reads what only the frozen process itself can tell.
    /// Afterwards the process may be released.
    pub fn twin(&mut self) -> Result<Twin, CaptureError> {
        // What /proc shows of a dying process is empty or wrong; that it dies is the better reason.
        tree::check_family(self)?;
        let survey = Survey::of(&self.pids());
        let twin = survey.and_then(|mut survey| self.make_twin(&mut survey));
        twin.map_err(|e| match (self.tracee.regs(), e) {
            // It stands there, so it is the other one that is gone.
            (Ok(_), CaptureError::Gone) => CaptureError::TwinGone,
            (Ok(_), e) => e,
            (Err(_), _) => CaptureError::Gone,
        })
    }

    fn make_twin(&mut self, survey: &mut Survey) -> Result<Twin, CaptureError> {
        let begun = Instant::now();
        let (mut snapshot, agent) = capture::freeze_state(self, survey)?;
        agent.finish()?;
        fault::point(fault::BEFORE_TWIN)?;
        self.tracee.set_options(OPTIONS)?;
        let ours = snapshot.stat.field(4) == u64::from(std::process::id());
        // Copies of huge pages might not be had when the process writes to them.
        let alone = Alone::new(&agent, &snapshot.maps)?;
        let process = match ours {
            true => Process::fork(&agent, libc::CLONE_PARENT, &mut None),
            false => Process::fork_orphan(&agent),
        };
        alone.end()?;
        let process = process?;
        let twin = process.0;
        survey.family.borrow_mut().push(twin.0);
        self.tracee.set_options(libc::PTRACE_O_TRACESYSGOOD)?;
        let inherited = procfs::parse_maps(&procfs::read(twin.0, "maps")?)?;
        fault::point(fault::TWIN_TOLD)?;
        let pid = self.tracee.0;
        let (mut saved, mut dont_fork) = not_inherited(pid, &snapshot.maps, twin.0, &inherited)?;
        if dont_fork.iter().any(|m| m.vm_flags.is_empty()) {
            let maps = procfs::parse_maps(&procfs::read(pid, "smaps")?)?;
            let kept = |m: &Mapping| dont_fork.iter().any(|d| d.start == m.start);
            dont_fork = maps.into_iter().filter(kept).collect();
        }
        saved.append(&mut snapshot.orphans.read(pid, &agent.of_twin(twin))?);
        let children = self.children.iter_mut();
        let children = children.map(|child| {
            let number = child.pid();
            child.make_twin(survey).map_err(|why| tree::of_child(number, why))
        });
        Ok(Twin {
            children: children.collect::<Result<_, _>>()?,
            family: Rc::clone(&survey.family),
            process: Some(process),
            pid: twin.0,
            original: self.tracee.0,
            snapshot: Some(snapshot),
            agent: agent.of_twin(twin),
            saved,
            dont_fork,
            made: begun.elapsed(),
            born: Instant::now(),
            stood: Rc::clone(&self.stood),
            _this_thread: PhantomData,
        })
    }
}

/// Private mappings of huge pages, kept from being inherited until [`Alone::end`] or its drop.
struct Alone<'a> {
    agent: &'a Agent,
    ranges: Vec<[u64; 2]>,
}

impl<'a> Alone<'a> {
    fn new(agent: &'a Agent, maps: &[Mapping]) -> Result<Alone<'a>, CaptureError> {
        let mut alone = Alone { agent, ranges: Vec::new() };
        for m in maps.iter().filter(|m| !m.shared && m.has(b"ht") && !m.has(b"dc")) {
            let range = [m.start, m.end - m.start];
            alone.ranges.push(range);
            let args = [range[0], range[1], libc::MADV_DONTFORK as u64];
            if agent.call(libc::SYS_madvise, &args)? < 0 {
                let what = "huge pages that the kernel hands down".into();
                return Err(CaptureError::Mapping { start: m.start, what });
            }
        }
        Ok(alone)
    }

    fn end(mut self) -> Result<(), CaptureError> {
        self.undo()
    }

    fn undo(&mut self) -> Result<(), CaptureError> {
        for [start, bytes] in std::mem::take(&mut self.ranges) {
            let args = [start, bytes, libc::MADV_DOFORK as u64];
            self.agent.call(libc::SYS_madvise, &args)?;
        }
        Ok(())
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        // The error that brought us here is the one to report.
        let _ = self.undo();
    }
}

/// Reads from the frozen process the content of private mappings that its twin does not have
/// (`MADV_DONTFORK`) or has empty (`MADV_WIPEONFORK`).
fn not_inherited(
    pid: libc::pid_t,
    maps: &[Mapping],
    twin: libc::pid_t,
    inherited: &[Mapping],
) -> Result<(Vec<Saved>, Vec<Mapping>), CaptureError> {
    let (mut saved, mut dont_fork) = (Vec::new(), Vec::new());
    let (mut own, mut copy) = (Pagemap::open(pid)?, Pagemap::open(twin)?);
    for m in maps.iter().filter(|m| !m.is_special() && !m.is_vsyscall()) {
        let has = inherited.binary_search_by_key(&m.start, |i| i.start).is_ok();
        if !has {
            dont_fork.push(m.clone());
        }
        if m.shared {
            continue;
        }
        if has && !own.is_fast() && m.end - m.start > MAX_SLOW_SEARCH_BYTES {
            continue;
        }
        let mut first = Vec::new();
        own.own_pages(m.start, m.end, 1, &mut first)?;
        let Some(page) = first.first() else { continue };
        if has {
            let mut copied = Vec::new();
            copy.own_pages(page.start, page.start + PAGE_BYTES, 1, &mut copied)?;
            if !copied.is_empty() {
                continue;
            }
        }
        let mut runs = Vec::new();
        own.own_pages(m.start, m.end, u64::MAX, &mut runs)?;
        for run in runs {
            let mut content = vec![0; (run.pages * PAGE_BYTES) as usize];
            memory::read_exact(pid, run.start, &mut content).map_err(|e| match e {
                CaptureError::Gone => e,
                _ => CaptureError::Mapping {
                    start: run.start,
                    what: "not readable and not inherited on fork".into(),
                },
            })?;
            saved.push(Saved { start: run.start, content });
        }
    }
    Ok((saved, dont_fork))
}

impl Twin {
    /// Process number of the twin.
    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Pulls the twin's memory and writes the image `path` atomically and durably, with `meta` in
    /// it. The images of its children, if it has any, are written before: `path` with `.1`, `.2`
    /// ... appended. After any error no file is left behind.
    pub fn write_image(mut self, path: &Path, meta: &[u8]) -> Result<ImageReport, CaptureError> {
        self.close_descriptors()?;
        let children = self.write_children(path)?;
        let written = children.len();
        self.write_own(path, meta, &children).inspect_err(|_| {
            // The error is what counts.
            (0..written).for_each(|n| drop(tree::remove_image(&tree::child_path(path, n))));
        })
    }

    /// Has it and the twins of its children close what they have open, so that nobody waits for the
    /// end of a pipe on their account.
    fn close_descriptors(&self) -> Result<(), CaptureError> {
        let closed = self.agent.call(libc::SYS_close_range, &[0, u64::from(u32::MAX), 0]);
        closed.map_err(|e| match &self.process {
            Some(process) if process.0.regs().is_err() => CaptureError::TwinGone,
            _ => e,
        })?;
        self.children.iter().try_for_each(Twin::close_descriptors)
    }

    /// Pulls the twin's memory and sends it on at once, as a stream that [`crate::receive`] turns
    /// into an image. A failure shows there as a stream that ends early. Only of a process without
    /// children.
    pub fn write_stream(
        mut self,
        to: impl Write + Send,
        meta: &[u8],
    ) -> Result<ImageReport, CaptureError> {
        if !self.children.is_empty() {
            let what = "has child processes, and one stream holds one process";
            return Err(CaptureError::Unsupported(what.into()));
        }
        self.close_descriptors()?;
        let result = self.write(|| Ok(ImageWriter::to(Box::new(StreamSink::new(to)?))), meta);
        self.blame_death(result)
    }

    fn write_children(&mut self, path: &Path) -> Result<Vec<ImageReport>, CaptureError> {
        let mut reports = Vec::new();
        for (n, child) in std::mem::take(&mut self.children).into_iter().enumerate() {
            let pid = child.original;
            match child.write_image(&tree::child_path(path, n), b"") {
                Ok(report) => reports.push(report),
                Err(why) => {
                    (0..n).for_each(|n| drop(tree::remove_image(&tree::child_path(path, n))));
                    return Err(tree::of_child(pid, why));
                }
            }
        }
        Ok(reports)
    }

    fn write_own(
        &mut self,
        path: &Path,
        meta: &[u8],
        children: &[ImageReport],
    ) -> Result<ImageReport, CaptureError> {
        let snapshot = self.snapshot.as_mut().ok_or(CaptureError::TwinGone)?;
        for (child, report) in snapshot.kin.children.iter_mut().zip(children) {
            child.identity = report.identity;
        }
        let result = self.write(|| ImageWriter::create(path), meta);
        let result = result.map(|own| {
            let all = |of: fn(&ImageReport) -> u64| of(&own) + children.iter().map(of).sum::<u64>();
            let (bytes, pages) = (all(|r| r.bytes), all(|r| r.pages));
            let write = own.write + children.iter().map(|r| r.write).sum();
            ImageReport { bytes, pages, write, ..own }
        });
        self.blame_death(result)
    }

    /// That the twin has died is the better reason.
    fn blame_death<T>(&self, result: Result<T, CaptureError>) -> Result<T, CaptureError> {
        result.map_err(|e| match &self.process {
            Some(process) if process.0.regs().is_err() => CaptureError::TwinGone,
            _ => e,
        })
    }

    fn write<'a>(
        &mut self,
        begin: impl FnOnce() -> Result<ImageWriter<'a>, CaptureError>,
        meta: &[u8],
    ) -> Result<ImageReport, CaptureError> {
        let begun = Instant::now();
        let twin = self.pid;
        let mut snapshot = self.snapshot.take().ok_or(CaptureError::TwinGone)?;
        let orphans = std::mem::take(&mut snapshot.orphans);
        let maps = snapshot.maps.clone();
        let mut state = capture::twin_state(self.original, snapshot, &self.agent, twin)?;
        append::mark_shared(&self.family.borrow(), &mut state.descriptions);
        fault::point(fault::TWIN_ASKED)?;
        let regions = regions(twin, &maps, &self.dont_fork, orphans)?;
        fault::point(fault::REGIONS_KNOWN)?;
        let writer = begin()?;
        let mut puller = Puller::new(twin, &writer)?;
        pull(&mut puller, &regions, &self.saved)?;
        let (extents, guards) = (puller.extents, puller.guards);
        let pull = self.born.elapsed();
        self.process = None;
        fault::point(fault::MEMORY_PULLED)?;
        refuse_lost(&regions, &extents)?;
        state.guards = guards;
        state.files = regions.files;
        state.orphans = regions.orphans.into_list();
        state.regions = regions.list.into_iter().map(|(region, _)| region).collect();
        let pages = writer.pages();
        finish(&state, &extents, &[pages])?;
        let contents = Contents { state: &state, extents: &extents, ancestors: &[], meta };
        let written = writer.commit(&contents)?;
        Ok(ImageReport {
            bytes: written.bytes,
            identity: written.identity,
            pages,
            freeze: self.stood.get().unwrap_or_default(),
            twin: self.made,
            pull,
            write: begun.elapsed(),
        })
    }
}

/// On old kernels large mappings are not searched for content that the twin did not inherit; one
/// that is empty because of that must not pass for an image.
fn refuse_lost(regions: &Regions, extents: &[Extent]) -> Result<(), CaptureError> {
    for (r, content) in &regions.list {
        let suspect = r.flags & region::WIPE_ON_FORK != 0
            && *content == Content::Own
            && r.end - r.start > MAX_SLOW_SEARCH_BYTES
            && !extents.iter().any(|e| (r.start..r.end).contains(&e.start));
        if suspect {
            let what = "large and wiped on fork".into();
            return Err(CaptureError::Mapping { start: r.start, what });
        }
    }
    Ok(())
}

/// What would be refused on opening must not be written.
fn finish(state: &State, extents: &[Extent], homes: &[u64]) -> Result<(), CaptureError> {
    check::check(state, extents, homes)
        .map_err(|what| CaptureError::Unsupported(format!("is not as expected: {what}")))
}

/// The regions of a process, by the mappings of its twin, and what only its own mappings tell.
fn regions(
    twin: libc::pid_t,
    own: &[Mapping],
    dont_fork: &[Mapping],
    orphans: Orphans,
) -> Result<Regions, CaptureError> {
    let mut maps = procfs::parse_maps(&procfs::read(twin, "smaps")?)?;
    for m in &mut maps {
        let Ok(i) = own.binary_search_by_key(&m.start, |o| o.start) else { continue };
        // A twin does not inherit locks.
        m.vm_flags.extend(own[i].vm_flags.iter().filter(|f| [b"lo", b"lf"].contains(f)));
    }
    maps.extend_from_slice(dont_fork);
    maps.sort_by_key(|m| m.start);
    let mut regions = Regions { orphans, ..Regions::default() };
    maps.iter().try_for_each(|m| regions.add(m))?;
    Ok(regions)
}

fn pull<'a>(
    puller: &mut Puller<'a>,
    regions: &Regions,
    saved: &'a [Saved],
) -> Result<(), CaptureError> {
    for (region, content) in &regions.list {
        let kept = |s: &&Saved| (region.start..region.end).contains(&s.start);
        for s in saved.iter().filter(kept) {
            puller.take_saved(s.start, &s.content);
        }
        if saved.iter().any(|s| kept(&s)) {
            continue;
        }
        let legible = region.prot & libc::PROT_READ as u32 != 0;
        match content {
            Content::Nothing => {}
            Content::All => {
                let pages = (region.end - region.start) / PAGE_BYTES;
                puller.take(&Run { start: region.start, pages }, Kind::Lost, legible);
            }
            Content::Own => {
                puller.take_own(region.start, region.end, kind(region), legible)?;
            }
        }
    }
    // Objects lie behind all regions.
    for s in saved.iter().filter(|s| s.start >= ORPHAN_BASE) {
        puller.take_saved(s.start, &s.content);
    }
    puller.pull()
}

fn kind(region: &Region) -> Kind {
    if region.backing == (Backing::Anon {}) { Kind::Anon } else { Kind::File }
}
