//! A process as it was at one freeze, on its way into an image: in a twin, in a copy of what has
//! changed, or still standing there.

use crate::agent::Agent;
use crate::capture::{self, Snapshot};
use crate::chain::{Index, Known};
use crate::check;
use crate::cost::{Choice, MAX_COPY_BYTES, Mode};
use crate::error::CaptureError;
use crate::fault;
use crate::format::{Ancestor, Extent};
use crate::freeze::Frozen;
use crate::hashes::Hashes;
use crate::orphans::Orphans;
use crate::procfs::{self, Mapping};
use crate::pull::{Kind, Puller};
use crate::regions::{Content, Regions};
use crate::scan::Pagemap;
use crate::sort::{self, Share, Sorted};
use crate::source::{Copied, Source};
use crate::spans::{Span, Spans};
use crate::state::{Backing, Guard, ORPHAN_BASE, Region, Run, State};
use crate::trace::Tracee;
use crate::track::{Changes, Tracker, Tracking};
use crate::tree;
use crate::twin::{self, Process, Saved};
use crate::write::{Contents, ImageWriter, Written};
use crate::{ImageReport, PAGE_BYTES};
use std::cell::Cell;
use std::marker::PhantomData;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// What was kept of a frozen process. Belongs to the thread that took it.
pub struct Shot {
    path: PathBuf,
    /// The twin, as long as its memory is needed.
    pub(crate) twin: Option<Process>,
    /// The process whose memory is read.
    pub(crate) pid: libc::pid_t,
    original: libc::pid_t,
    stage: Option<Stage>,
    /// Those of its children.
    children: Vec<Shot>,
    changes: Changes,
    choice: Choice,
    made: Duration,
    born: Instant,
    stood: Rc<Cell<Option<Duration>>>,
    _this_thread: PhantomData<*const ()>,
}

/// How much of it was read at the freeze.
enum Stage {
    /// What only the frozen process itself can tell.
    Asked(Box<Asked>),
    /// All that is needed.
    Copied { outline: Box<Outline>, own: Vec<Share>, sorted: Option<Sorted>, pages: Copied },
}

/// What only the frozen process itself can tell.
struct Asked {
    snapshot: Snapshot,
    agent: Agent,
    saved: Vec<Saved>,
    /// Mappings that the twin has not inherited.
    dont_fork: Vec<Mapping>,
}

/// All of a process but the content of its memory.
struct Outline {
    state: State,
    regions: Regions,
}

impl Frozen {
    /// Keeps what an image `path` of the process needs, as `wish` says; of its memory only what has
    /// changed since the last image that `tracker` knows of, if `path` may refer to that. After
    /// this the process may be released, unless the mode is [`Mode::Sync`]. After an error it goes
    /// on as if nothing had happened.
    pub fn shot(
        &mut self,
        path: &Path,
        tracker: &mut Tracker,
        wish: Mode,
    ) -> Result<Shot, CaptureError> {
        self.shoot(Some(path), tracker, wish)
    }

    pub(crate) fn shoot(
        &mut self,
        path: Option<&Path>,
        tracker: &mut Tracker,
        wish: Mode,
    ) -> Result<Shot, CaptureError> {
        tree::check_family(self)?;
        // What /proc shows of a dying process is empty or wrong; that it dies is the better reason.
        self.take_shot(path, tracker, wish).map_err(|e| match (self.tracee.regs(), e) {
            // It stands there, so it is the other one that is gone.
            (Ok(_), CaptureError::Gone) => CaptureError::TwinGone,
            (Ok(_), e) => e,
            (Err(_), _) => CaptureError::Gone,
        })
    }

    fn take_shot(
        &mut self,
        path: Option<&Path>,
        tracker: &mut Tracker,
        wish: Mode,
    ) -> Result<Shot, CaptureError> {
        let begun = Instant::now();
        let pid = self.tracee.0;
        let (mut snapshot, agent) = capture::freeze_state(self)?;
        agent.finish()?;
        let changes = tracker.freeze(pid, &snapshot, &agent, path)?;
        let ours = snapshot.stat.field(4) == u64::from(std::process::id());
        let own_bytes = snapshot.status.kib("RssAnon") << 10;
        let mut choice = tracker.choose(wish, own_bytes, &changes);
        fault::point(fault::BEFORE_TWIN)?;
        let listing = Instant::now();
        let (mut twin, mut source) = (None, pid);
        let stage;
        let plan = match choice.mode {
            // Shared memory is read by way of a twin.
            Mode::Copy if !snapshot.orphans.is_empty() => Err("it shares memory with others"),
            Mode::Copy => plan_copy(pid, &changes)?,
            _ => Err("as asked for"),
        };
        if let Ok(plan) = plan {
            tracker.cost.listed(own_bytes, listing.elapsed());
            stage = copy(plan, pid, snapshot, &agent, tracker)?;
        } else if choice.mode != Mode::Sync {
            if let (Mode::Copy, Err(why)) = (choice.mode, plan) {
                choice = Choice { mode: Mode::Twin, why: why.into() };
            }
            let forked = Instant::now();
            let process = Process::of(self, &agent, ours)?;
            tracker.cost.forked(own_bytes, forked.elapsed());
            source = process.pid();
            let (mut saved, dont_fork) = twin::not_inherited(pid, &snapshot.maps, source)?;
            let agent = agent.of_twin(Tracee(source));
            saved.append(&mut snapshot.orphans.read(pid, &agent)?);
            twin = Some(process);
            stage = Stage::Asked(Box::new(Asked { snapshot, agent, saved, dont_fork }));
        } else {
            let mut saved = Vec::new();
            if !snapshot.orphans.is_empty() {
                let helper = Process::of(self, &agent, ours)?;
                let agent = agent.of_twin(Tracee(helper.pid()));
                saved = snapshot.orphans.read(pid, &agent)?;
            }
            let dont_fork = vec![];
            stage = Stage::Asked(Box::new(Asked { snapshot, agent, saved, dont_fork }));
        }
        Ok(Shot {
            path: path.unwrap_or(Path::new("")).to_path_buf(),
            twin,
            pid: source,
            original: pid,
            stage: Some(stage),
            children: self.shots_of_children(wish)?,
            changes,
            choice,
            made: begun.elapsed(),
            born: Instant::now(),
            stood: Rc::clone(&self.stood),
            _this_thread: PhantomData,
        })
    }

    /// Their images are always full.
    fn shots_of_children(&mut self, wish: Mode) -> Result<Vec<Shot>, CaptureError> {
        let wish = if wish == Mode::Sync { wish } else { Mode::Twin };
        let shots = self.children.iter_mut().map(|child| {
            let number = child.pid();
            let shot = child.take_shot(None, &mut Tracker::new(Tracking::Off), wish);
            shot.map_err(|why| tree::of_child(number, why))
        });
        shots.collect()
    }
}

/// What is to be copied of a process that stands still.
struct CopyPlan {
    pagemap: Pagemap,
    regions: Regions,
    own: Vec<Share>,
    sorted: Option<Sorted>,
    spans: Spans,
}

/// Finds out what is to be copied; the inner error says why not.
fn plan_copy(
    pid: libc::pid_t,
    changes: &Changes,
) -> Result<Result<CopyPlan, &'static str>, CaptureError> {
    let mut pagemap = Pagemap::open(pid)?;
    // On old kernels, looking for pages takes time by the size of the mappings.
    if !pagemap.is_fast() {
        return Ok(Err("on this kernel, finding pages to copy takes too long"));
    }
    let regions = regions(pid, None, Orphans::default())?;
    if regions.list.iter().any(|(_, content)| *content == Content::All) {
        return Ok(Err("a file that it has mapped is gone and must be stored whole"));
    }
    let own = sort::own(&mut pagemap, &regions, |_, _| false)?;
    let index = changes.base.as_ref().map(|base| &base.index);
    let sorted =
        (!changes.hash).then(|| sort::sort(own.clone(), &regions, changes.pages.as_ref(), index));
    let spans = sort::all(sorted.as_ref().map_or(&own, |sorted| &sorted.take));
    if spans.bytes() > MAX_COPY_BYTES {
        return Ok(Err("there is more to store than may be copied"));
    }
    Ok(Ok(CopyPlan { pagemap, regions, own, sorted, spans }))
}

/// Copies it.
fn copy(
    plan: CopyPlan,
    pid: libc::pid_t,
    snapshot: Snapshot,
    agent: &Agent,
    tracker: &mut Tracker,
) -> Result<Stage, CaptureError> {
    let CopyPlan { pagemap, regions, own, sorted, spans } = plan;
    let state = state(pid, snapshot, agent, pid)?;
    let begun = Instant::now();
    let pages = Copied::new(pid, &spans, std::mem::take(&mut tracker.buffer))?;
    tracker.cost.copied(spans.bytes(), begun.elapsed());
    for page in pages.missing(&spans) {
        let region = regions.list.iter().find(|(r, _)| (r.start..r.end).contains(&page));
        let legible = region.is_some_and(|(r, _)| r.prot & libc::PROT_READ as u32 != 0);
        if !legible && !pagemap.is_guard(page)? {
            return Err(illegible(page));
        }
    }
    fault::point(fault::PAGES_COPIED)?;
    let outline = Box::new(Outline { state, regions });
    Ok(Stage::Copied { outline, own, sorted, pages })
}

/// A page that is there but cannot be read, although it is no guard page.
pub(crate) fn illegible(page: u64) -> CaptureError {
    CaptureError::Mapping { start: page, what: "not readable and not shown to us either".into() }
}

/// Asks for the rest of the state, in the name of `source`, the process or its twin.
fn state(
    pid: libc::pid_t,
    snapshot: Snapshot,
    agent: &Agent,
    source: libc::pid_t,
) -> Result<State, CaptureError> {
    capture::twin_state(pid, snapshot, agent, source).inspect_err(|_| {
        // The error is what counts; a process that is gone has nothing to be given back.
        let _ = agent.finish();
    })
}

/// The regions of a process that stands still, or of its twin, which lacks those in `dont_fork`.
fn regions(
    pid: libc::pid_t,
    dont_fork: Option<&[Mapping]>,
    orphans: Orphans,
) -> Result<Regions, CaptureError> {
    let mut maps = procfs::parse_maps(&procfs::read(pid, "smaps")?)?;
    let inherited = maps.len();
    match dont_fork {
        Some(others) => maps.extend_from_slice(others),
        // That we note its writes is not the program's affair. One that has a userfaultfd itself
        // is refused for that descriptor.
        None => maps.iter_mut().for_each(|m| m.vm_flags.retain(|f| f != b"uw")),
    }
    let mut order: Vec<usize> = (0..maps.len()).collect();
    order.sort_by_key(|&i| maps[i].start);
    let mut regions = Regions { orphans, ..Regions::default() };
    for i in order {
        let kept_from_children = dont_fork.is_none() && maps[i].has(b"dc");
        regions.add(&maps[i], i >= inherited || kept_from_children)?;
    }
    Ok(regions)
}

impl Shot {
    /// How the content of the process is kept, and why so.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Writes the image atomically and durably, with `meta` in it; `tracker` is the one that was
    /// there at the freeze. In [`Mode::Sync`] to be called before the process is released. After
    /// any error no file is left behind, and the next image stores what this one would have. The
    /// images of its children, if it has any, are written before: the same name with `.1`, `.2` ...
    /// appended.
    pub fn write_image(
        mut self,
        meta: &[u8],
        tracker: &mut Tracker,
    ) -> Result<ImageReport, CaptureError> {
        let path = std::mem::take(&mut self.path);
        self.write_to(&path, meta, tracker)
    }

    pub(crate) fn write_to(
        mut self,
        path: &Path,
        meta: &[u8],
        tracker: &mut Tracker,
    ) -> Result<ImageReport, CaptureError> {
        if self.choice.mode == Mode::Sync && self.stood.get().is_some() {
            let what = "was let go before its synchronous image was written";
            return Err(CaptureError::Unsupported(what.into()));
        }
        let children = self.write_children(path)?;
        let written = children.len();
        self.write_own(path, meta, tracker, &children).inspect_err(|_| {
            // The error is what counts.
            (0..written).for_each(|n| drop(tree::remove_image(&tree::child_path(path, n))));
        })
    }

    fn write_children(&mut self, path: &Path) -> Result<Vec<ImageReport>, CaptureError> {
        let mut reports = Vec::new();
        for (n, child) in std::mem::take(&mut self.children).into_iter().enumerate() {
            let (pid, mut tracker) = (child.original, Tracker::new(Tracking::Off));
            match child.write_to(&tree::child_path(path, n), b"", &mut tracker) {
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
        tracker: &mut Tracker,
        children: &[ImageReport],
    ) -> Result<ImageReport, CaptureError> {
        let begun = Instant::now();
        let kin = match &mut self.stage {
            Some(Stage::Asked(asked)) => &mut asked.snapshot.kin,
            Some(Stage::Copied { outline, .. }) => &mut outline.state.kin,
            None => return Err(CaptureError::TwinGone),
        };
        for (child, report) in kin.children.iter_mut().zip(children) {
            child.identity = report.identity;
        }
        let result = self.write(path, meta, tracker, begun);
        let result = result.map(|own| {
            let all = |of: fn(&ImageReport) -> u64| of(&own) + children.iter().map(of).sum::<u64>();
            let (bytes, pages) = (all(|r| r.bytes), all(|r| r.pages));
            let write = own.write + children.iter().map(|r| r.write).sum();
            ImageReport { bytes, pages, write, ..own }
        });
        let standing = self.choice.mode == Mode::Sync;
        result.map_err(|e| match &self.twin {
            Some(twin) if twin.is_gone() => CaptureError::TwinGone,
            None if standing && Tracee(self.pid).regs().is_err() => CaptureError::Gone,
            _ => e,
        })
    }

    fn write(
        &mut self,
        path: &Path,
        meta: &[u8],
        tracker: &mut Tracker,
        begun: Instant,
    ) -> Result<ImageReport, CaptureError> {
        let Ready { outline: Outline { mut state, regions }, own, sorted, saved, source, pagemap } =
            self.ready()?;
        fault::point(fault::REGIONS_KNOWN)?;
        let own_pages = sort::all(&own);
        let base = self.changes.base.as_deref();
        let hashes = match self.changes.hash {
            true => Some(Hashes::of(&source, &own_pages)?),
            false => None,
        };
        let sorted = sorted.unwrap_or_else(|| {
            let before = base.and_then(|base| base.hashes.as_ref());
            let same = hashes.as_ref().zip(before).map(|(now, before)| now.same_as(before));
            let found = same.map(|same| own_pages.without(&same));
            let changed = self.changes.pages.as_ref().or(found.as_ref());
            sort::sort(own, &regions, changed, base.map(|base| &base.index))
        });
        let mut writer = ImageWriter::create(path)?;
        let mut puller = Puller::new(source, pagemap, &mut writer);
        pull(&mut puller, &regions, &saved, &sorted.take)?;
        let (stored, guards, source) = puller.finish();
        let pull = self.born.elapsed();
        if let Source::Copied(copied) = source {
            tracker.buffer = copied.into_buffer();
        }
        if self.twin.take().is_some() {
            tracker.cost.stored(writer.pages() * PAGE_BYTES, pull);
            twin::refuse_lost(&regions, &stored, &sorted.extents)?;
        }
        fault::point(fault::MEMORY_PULLED)?;
        let blank = blank(&regions, &sorted, &stored, &guards);
        state.guards = guards;
        state.files = regions.files;
        state.orphans = regions.orphans.into_list();
        state.regions = regions.list.into_iter().map(|(region, _)| region).collect();
        let done = Done { state, stored, referred: sorted.extents, files: sorted.ancestors, blank };
        let (written, index) = finish(done, writer, path, meta)?;
        let report = ImageReport {
            bytes: written.bytes,
            identity: written.identity,
            pages: index.own_pages(),
            referred_pages: index.pages() - index.own_pages(),
            ancestors: index.names(),
            mode: self.choice.clone(),
            freeze: self.stood.get().unwrap_or_default(),
            twin: self.made,
            pull,
            write: begun.elapsed(),
        };
        tracker.imaged(self.changes.freeze, path, index, hashes);
        Ok(report)
    }

    /// Finds out what was not found out at the freeze.
    fn ready(&mut self) -> Result<Ready, CaptureError> {
        let stage = self.stage.take().ok_or(CaptureError::TwinGone)?;
        let asked = match stage {
            Stage::Asked(asked) => *asked,
            Stage::Copied { outline, own, sorted, pages } => {
                let (outline, source) = (*outline, Source::Copied(pages));
                return Ok(Ready { outline, own, sorted, saved: vec![], source, pagemap: None });
            }
        };
        let Asked { mut snapshot, agent, saved, dont_fork } = asked;
        let is_twin = self.twin.is_some();
        if is_twin {
            agent.call(libc::SYS_close_range, &[0, u64::from(u32::MAX), 0])?;
        }
        let orphans = std::mem::take(&mut snapshot.orphans);
        let state = state(self.original, snapshot, &agent, self.pid)?;
        fault::point(fault::TWIN_ASKED)?;
        let regions = regions(self.pid, is_twin.then_some(&dont_fork), orphans)?;
        let mut pagemap = Pagemap::open(self.pid)?;
        let is_saved = |start, end| saved.iter().any(|s| (start..end).contains(&s.start));
        let own = sort::own(&mut pagemap, &regions, is_saved)?;
        let (outline, source) = (Outline { state, regions }, Source::open(self.pid)?);
        Ok(Ready { outline, own, sorted: None, saved, source, pagemap: Some(pagemap) })
    }
}

/// All that is needed to write an image.
struct Ready {
    outline: Outline,
    /// Pages with content of their own.
    own: Vec<Share>,
    sorted: Option<Sorted>,
    saved: Vec<Saved>,
    source: Source,
    pagemap: Option<Pagemap>,
}

/// An image whose pages are stored.
struct Done {
    state: State,
    stored: Vec<Extent>,
    referred: Vec<Extent>,
    files: Vec<Known>,
    blank: Spans,
}

/// Writes the tables. What would be refused on opening is not written.
fn finish(
    done: Done,
    writer: ImageWriter,
    path: &Path,
    meta: &[u8],
) -> Result<(Written, Index), CaptureError> {
    let Done { state, stored, referred, files, blank } = done;
    let mut extents = stored;
    extents.extend(referred);
    extents.sort_unstable_by_key(|e| e.start);
    let mut homes = vec![writer.pages()];
    homes.extend(files.iter().map(|known| known.pages));
    check::check(&state, &extents, &homes)
        .map_err(|what| CaptureError::Unsupported(format!("is not as expected: {what}")))?;
    let ancestors: Vec<Ancestor> = files.iter().map(|known| known.file.clone()).collect();
    let contents = Contents { state: &state, extents: &extents, ancestors: &ancestors, meta };
    let written = writer.commit(&contents)?;
    let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    let own = Known { file: Ancestor { name, identity: written.identity }, pages: homes[0] };
    let files = std::iter::once(own).chain(files).collect();
    Ok((written, Index::new(files, extents, blank)))
}

/// The pages that were touched, are no guard pages, and were found to be zeros.
fn blank(regions: &Regions, sorted: &Sorted, stored: &[Extent], guards: &[Guard]) -> Spans {
    let anon = |share: &&Share| kind(&regions.list[share.region].0) == Kind::Anon;
    let mut looked_at = Spans::default();
    let spans = sorted.take.iter().filter(anon).flat_map(|share| share.spans.iter());
    spans.for_each(|s| looked_at.push(s.start, s.end));
    let mut other = Spans::default();
    stored.iter().for_each(|e| other.push(e.start, e.start + e.pages * PAGE_BYTES));
    let guards = guards.iter().map(|g| Span { start: g.start, end: g.end }).collect();
    looked_at.without(&other).without(&Spans::of(guards)).union(&sorted.blank)
}

fn pull(
    puller: &mut Puller<'_>,
    regions: &Regions,
    saved: &[Saved],
    take: &[Share],
) -> Result<(), CaptureError> {
    let mut shares = take.iter().peekable();
    for (i, (region, content)) in regions.list.iter().enumerate() {
        let kept = |s: &&Saved| (region.start..region.end).contains(&s.start);
        for s in saved.iter().filter(kept) {
            puller.take_saved(s.start, &s.content)?;
        }
        let legible = region.prot & libc::PROT_READ as u32 != 0;
        if let Some(share) = shares.next_if(|share| share.region == i) {
            for span in share.spans.iter() {
                let pages = (span.end - span.start) / PAGE_BYTES;
                puller.take(&Run { start: span.start, pages }, kind(region), legible)?;
            }
        } else if *content == Content::All && !saved.iter().any(|s| kept(&s)) {
            let pages = (region.end - region.start) / PAGE_BYTES;
            puller.take(&Run { start: region.start, pages }, Kind::Lost, legible)?;
        }
    }
    // Shared objects lie behind all regions.
    for s in saved.iter().filter(|s| s.start >= ORPHAN_BASE) {
        puller.take_saved(s.start, &s.content)?;
    }
    puller.flush()
}

fn kind(region: &Region) -> Kind {
    if region.backing == (Backing::Anon {}) { Kind::Anon } else { Kind::File }
}
