//! The frozen twin: a copy-on-write copy of a stopped process that never runs. The process goes on
//! while the twin is read at leisure, then it is killed.
//!
//! The twin is a child of the process's own parent: the process never learns of it. It dies with
//! its tracer whatever happens, and holds no descriptor, so that no pipe stays open on its account.

use crate::capture::cost::Mode;
use crate::capture::freeze::Frozen;
use crate::capture::snapshot::Snapshot;
use crate::capture::tracker::{Tracker, Tracking};
use crate::capture::twin_process::Process;
use crate::error::CaptureError;
use crate::kernel::memory;
use crate::kernel::pagemap::{Pagemap, Part};
use crate::kernel::procfs::{self, Mapping};
use crate::kernel::remote_calls::Agent;
use crate::resources::regions::{Content, Regions};
use crate::{ImageReport, PAGE_BYTES};
use eyrie_image_format::bytes::layout::Extent;
use eyrie_image_format::state::region;
use eyrie_image_format::support::fault;
use std::io::Write;
use std::path::Path;

const OPTIONS: i32 =
    libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;

/// Largest mapping whose page table is read entry by entry while the process stands still.
const MAX_SLOW_SEARCH_BYTES: u64 = 16 << 20;

/// A frozen copy of a process. Owned by the thread that made it; killed and reaped when dropped.
pub struct Twin(Snapshot);

/// Content that is not the twin's own, read from the frozen process.
pub(crate) struct Saved {
    /// First address.
    pub start: u64,
    /// Whole pages.
    pub content: Vec<u8>,
}

impl Frozen {
    /// Makes a copy-on-write twin and reads what only the frozen process itself can tell.
    /// Afterwards the process may be released, unless [`Twin::must_stand`]. Its image will be full;
    /// [`Frozen::snapshot`] does more.
    pub fn twin(&mut self) -> Result<Twin, CaptureError> {
        self.snapshot_at(None, &mut Tracker::new(Tracking::Off), Mode::Twin, None).map(Twin)
    }
}

/// Makes a twin of a frozen process, in whose name `agent` makes calls. `ours`: the process is
/// a child of ours.
pub(crate) fn make(
    frozen: &mut Frozen,
    agent: &Agent,
    maps: &[Mapping],
    ours: bool,
) -> Result<Process, CaptureError> {
    frozen.tracee.set_options(OPTIONS)?;
    // Copies of huge pages might not be had when the process writes to them.
    let alone = Alone::new(agent, maps)?;
    let process = match ours {
        true => Process::fork(agent, libc::CLONE_PARENT, &mut None),
        false => Process::fork_orphan(agent),
    };
    alone.end()?;
    let process = process?;
    frozen.tracee.set_options(libc::PTRACE_O_TRACESYSGOOD)?;
    process.die_first();
    process.leave_group(agent)?;
    Ok(process)
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
pub(crate) fn not_inherited(
    pid: libc::pid_t,
    maps: &[Mapping],
    twin: libc::pid_t,
) -> Result<(Vec<Saved>, Vec<Mapping>), CaptureError> {
    let inherited = procfs::maps(twin)?;
    fault::point(fault::TWIN_TOLD)?;
    let (mut saved, mut dont_fork) = (Vec::new(), Vec::new());
    let (mut own, mut copy) = (Pagemap::open(pid)?, Pagemap::open(twin)?);
    for m in maps.iter().filter(|m| !m.is_special() && !m.is_vsyscall()) {
        // Neighbours that differed in nothing but that their writes were not noted yet are one now.
        let after = inherited.partition_point(|i| i.start <= m.start);
        let has = after > 0 && m.end <= inherited[after - 1].end;
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
        own.own_pages(m.into(), 1, &mut first)?;
        let Some(page) = first.first() else { continue };
        if has {
            let mut copied = Vec::new();
            let page = Part { start: page.start, end: page.start + PAGE_BYTES, anon: m.is_anon() };
            copy.own_pages(page, 1, &mut copied)?;
            if !copied.is_empty() {
                continue;
            }
        }
        let mut runs = Vec::new();
        own.own_pages(m.into(), u64::MAX, &mut runs)?;
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
    if dont_fork.iter().any(|m| m.vm_flags.is_empty()) {
        let maps = procfs::parse_maps(&procfs::smaps(pid)?)?;
        let kept = |m: &Mapping| {
            let first = dont_fork.partition_point(|d| d.start < m.start);
            dont_fork.get(first).is_some_and(|d| d.start < m.end)
        };
        dont_fork = maps.into_iter().filter(kept).collect();
    }
    Ok((saved, dont_fork))
}

impl Twin {
    /// Whether the process has to stand still until its image is written: of the memory that it
    /// shares with others there is more than is copied, and a twin has no copy of that.
    pub fn must_stand(&self) -> bool {
        self.0.must_stand()
    }

    /// Process number of the twin.
    pub fn pid(&self) -> libc::pid_t {
        self.0.pid
    }

    /// Pulls the twin's memory and writes the full image `path` atomically and durably, with
    /// `meta` in it. After any error no file is left behind.
    pub fn write_image(self, path: &Path, meta: &[u8]) -> Result<ImageReport, CaptureError> {
        self.0.write_to(path, meta, &mut Tracker::new(Tracking::Off))
    }

    /// Pulls the twin's memory and sends it on at once, as a stream that [`crate::receive`] turns
    /// into an image. A failure shows there as a stream that ends early. Only of a process without
    /// children.
    pub fn write_stream(
        self,
        to: impl Write + Send,
        meta: &[u8],
    ) -> Result<ImageReport, CaptureError> {
        self.0.write_stream(to, meta)
    }
}

/// On old kernels large mappings are not searched for content that the twin did not inherit; one
/// that is empty because of that must not pass for an image.
pub(crate) fn refuse_lost(
    regions: &Regions,
    stored: &[Extent],
    referred: &[Extent],
) -> Result<(), CaptureError> {
    for (r, content) in &regions.list {
        let lies_here = |e: &Extent| (r.start..r.end).contains(&e.start);
        let suspect = r.flags & region::WIPE_ON_FORK != 0
            && *content == Content::Own
            && r.end - r.start > MAX_SLOW_SEARCH_BYTES
            && !stored.iter().chain(referred).any(lies_here);
        if suspect {
            let what = "large and wiped on fork".into();
            return Err(CaptureError::Mapping { start: r.start, what });
        }
    }
    Ok(())
}
