//! From a snapshot to an image: what was not found out at the freeze is asked now, then the pages
//! are stored or referred to.

use crate::capture::cost::Mode;
use crate::capture::plan_room;
use crate::capture::process_tree;
use crate::capture::snapshot::{Asked, Outline, Snapshot, Stage, mappings, state};
use crate::capture::tracker::{self, Changes, Tracker, Tracking};
use crate::capture::twin::{self, Saved};
use crate::error::CaptureError;
use crate::kernel::background::Background;
use crate::kernel::pagemap::Pagemap;
use crate::kernel::procfs::{self, Mapping};
use crate::kernel::ptrace::Tracee;
use crate::kernel::smaps::Pending;
use crate::resources::files::appends;
use crate::resources::files::fingerprint;
use crate::resources::limits;
use crate::resources::posix_timers;
use crate::resources::regions::{Content, Regions};
use crate::write::dedup;
use crate::write::page_hashes::Hashes;
use crate::write::page_sort::{self, Share, Sorted};
use crate::write::page_source::Source;
use crate::write::pool::{Lent, Member};
use crate::write::pull::{Kind, Puller};
use crate::write::shared_pages::Kept;
use crate::{ImageReport, PAGE_BYTES};
use eyrie_image_format::bytes::layout::{Ancestor, Extent};
use eyrie_image_format::check;
use eyrie_image_format::read::chain::{Index, Known};
use eyrie_image_format::read::tree_files;
use eyrie_image_format::state::{Backing, Fingerprint, Guard, Region, Run, State};
use eyrie_image_format::support::fault;
use eyrie_image_format::support::spans::{Span, Spans};
use eyrie_image_format::write::sink::StreamSink;
use eyrie_image_format::write::writer::{Contents, ImageWriter, Written};
use std::collections::BTreeMap;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

impl Snapshot {
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
        self.refuse_if_let_go()?;
        let children = self.write_children(path, tracker)?;
        let written = children.len();
        self.write_own(path, meta, tracker, &children).inspect_err(|_| {
            // The error is what counts.
            (0..written)
                .for_each(|n| drop(tree_files::remove_image(&tree_files::child_path(path, n))));
        })
    }

    /// What has to be read while it stands still cannot be read any more.
    fn refuse_if_let_go(&self) -> Result<(), CaptureError> {
        let what = match self.choice.mode {
            Mode::Sync => "was let go before its synchronous image was written",
            _ if self.must_stand() => "was let go before its shared memory was stored",
            _ => return Ok(()),
        };
        match self.stood.get() {
            // It stood for as long as it may.
            Some(_) => Err(CaptureError::Unsupported(what.into()).for_now()),
            None => Ok(()),
        }
    }

    fn write_children(
        &mut self,
        path: &Path,
        tracker: &mut Tracker,
    ) -> Result<Vec<ImageReport>, CaptureError> {
        let mut reports = Vec::new();
        for (n, child) in std::mem::take(&mut self.children).into_iter().enumerate() {
            let (pid, tracker) = (child.original.0, tracker.child(child.original));
            match child.write_to(&tree_files::child_path(path, n), b"", tracker) {
                Ok(report) => {
                    // The file is named by its identity: it is not rewritten, as those are that
                    // nobody refers to.
                    if tracker.is_scattered() {
                        tracker.begin_anew();
                    }
                    reports.push(report);
                }
                Err(why) => {
                    (0..n).for_each(|n| {
                        drop(tree_files::remove_image(&tree_files::child_path(path, n)))
                    });
                    return Err(process_tree::of_child(pid, why));
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
        let tree_node = match &mut self.stage {
            Some(Stage::Asked(asked)) => &mut asked.frozen_state.tree_node,
            Some(Stage::Copied { outline, .. }) => &mut outline.state.tree_node,
            None => return Err(CaptureError::TwinGone),
        };
        for (child, report) in tree_node.children.iter_mut().zip(children) {
            child.identity = report.identity;
        }
        let tap = self.tap.take();
        let begin = || Ok(ImageWriter::create_tapped(path, tap)?);
        let result = self.write(begin, Some(path), meta, tracker);
        let result = result.map(|own| {
            let all = |of: fn(&ImageReport) -> u64| of(&own) + children.iter().map(of).sum::<u64>();
            let (bytes, pages) = (all(|r| r.bytes), all(|r| r.pages));
            let referred_pages = all(|r| r.referred_pages);
            let write = own.write + children.iter().map(|r| r.write).sum();
            let of_children = children.iter().flat_map(|r| r.ancestors.iter().cloned());
            let ancestors = own.ancestors.iter().cloned().chain(of_children).collect();
            ImageReport { bytes, pages, referred_pages, ancestors, write, ..own }
        });
        self.blame_death(result)
    }

    /// That the process or its twin has died is the better reason.
    fn blame_death<T>(&self, result: Result<T, CaptureError>) -> Result<T, CaptureError> {
        let standing = self.choice.mode == Mode::Sync;
        result.map_err(|e| match &self.twin {
            Some(twin) if twin.is_gone() => CaptureError::TwinGone,
            None if standing && Tracee(self.pid).regs().is_err() => CaptureError::Gone,
            _ => e,
        })
    }

    /// Sends the image, which is full and of a process without children, as a stream.
    pub(crate) fn write_stream(
        mut self,
        to: impl Write + Send,
        meta: &[u8],
    ) -> Result<ImageReport, CaptureError> {
        if !self.children.is_empty() {
            let what = "has child processes, and one stream holds one process";
            return Err(CaptureError::Unsupported(what.into()));
        }
        self.refuse_if_let_go()?;
        let begin = || Ok(ImageWriter::to(Box::new(StreamSink::new(to)?))?);
        let result = self.write(begin, None, meta, &mut Tracker::new(Tracking::Off));
        self.blame_death(result)
    }

    fn write<'a>(
        &mut self,
        begin: impl FnOnce() -> Result<ImageWriter<'a>, CaptureError>,
        path: Option<&Path>,
        meta: &[u8],
        tracker: &mut Tracker,
    ) -> Result<ImageReport, CaptureError> {
        let begun = Instant::now();
        let Ready { outline, own, sorted, saved, source, pagemap } = self.ready(tracker)?;
        let Outline { mut state, mut regions, mut maps } = outline;
        maps.read_meanwhile();
        let files = self.look_for_files(&state, &regions);
        let contents = fingerprint::begin(&regions);
        fault::point(fault::REGIONS_KNOWN)?;
        let (mut sorted, hashes) = self.sort(sorted, own, &regions, &source)?;
        let mut shared = std::mem::take(&mut self.shared);
        shared.refer_in(&mut sorted, self.changes.base.as_ref().map(|base| &base.index));
        let member = self.member(path, tracker, &shared);
        let shared_pages = match &member {
            Some((folder, member)) => dedup::borrow(member, folder, &source, &mut sorted)?,
            None => 0,
        };
        let (writer, stood) = self.begun(begin)?;
        let stored_ahead = writer.pages();
        let mut puller = Puller::new(&source, pagemap.as_ref(), &writer);
        puller.hashes = member.as_ref().map(|_| std::mem::take(&mut shared.page_hashes));
        pull(&mut puller, &regions, &saved, std::mem::take(&mut sorted.take))?;
        let held = shared.held.take();
        let Pulled { stored, guards, page_hashes, blank } = Pulled::of(puller, shared, &writer)?;
        let blank = blank.union(&sorted.blank);
        let pull = self.born.elapsed();
        if let Source::Copied(copied) = source {
            tracker.buffer = copied.into_buffer();
        }
        // While the twin, if there is one, is still there to be looked at.
        let others = files.map(Background::end).unwrap_or_default();
        mark_shared(&others, &mut state, &mut regions);
        let maps = settle(maps, &mut regions)?;
        // Its end, which takes a while, is waited for when all else is done.
        let twin = self.twin.take();
        if let Some(twin) = &twin {
            twin.kill();
            tracker.cost.stored((writer.pages() - stored_ahead) * PAGE_BYTES, pull);
            twin::refuse_lost(&regions, &stored, &sorted.extents)?;
        }
        fault::point(fault::MEMORY_PULLED)?;
        complete(&mut state, regions, contents.end(), guards);
        let done = Done { state, stored, referred: sorted.extents, files: sorted.ancestors, blank };
        let (written, index) = finish(done, writer, path, meta)?;
        drop(twin);
        tracker.offered =
            member.zip(page_hashes).map(|(member, hashes)| lent(member, &index, &hashes));
        let report = ImageReport {
            bytes: written.bytes,
            identity: written.identity,
            pages: index.own_pages(),
            referred_pages: index.pages() - index.own_pages() - shared_pages,
            shared_pages,
            ancestors: index.names(),
            mode: self.choice.clone(),
            freeze: stood + self.stood.get().unwrap_or_default(),
            twin: self.made,
            pull,
            write: begun.elapsed(),
        };
        if let Some(path) = path {
            tracker.imaged(self.changes.freeze, path, maps, (index, hashes, held));
        }
        Ok(report)
    }

    /// The image, and how long the process stood still for what was stored in it ahead.
    fn begun<'a>(
        &mut self,
        begin: impl FnOnce() -> Result<ImageWriter<'a>, CaptureError>,
    ) -> Result<(ImageWriter<'a>, Duration), CaptureError> {
        let (writer, stood) = match (self.ahead.take(), self.begun.take()) {
            (Some(ahead), _) => (ahead.writer, ahead.stood),
            (None, Some(begun)) => (begun, Duration::ZERO),
            (None, None) => (begin()?, Duration::ZERO),
        };
        // In its own time: the process goes on by now, unless it stands for all of its image.
        writer.hold_tap(false)?;
        Ok((writer, stood))
    }

    /// Decides what becomes of its pages, if that is not decided yet.
    fn sort(
        &mut self,
        sorted: Option<Sorted>,
        own: Vec<Share>,
        regions: &Regions,
        source: &Source,
    ) -> Result<(Sorted, Option<Hashes>), CaptureError> {
        let own_pages = page_sort::all(&own);
        let hashes = self.changes.hash.then(|| Hashes::of(source, &own_pages)).transpose()?;
        let sorted = match (sorted, &mut self.ahead) {
            (Some(sorted), _) => sorted,
            (None, Some(ahead)) if ahead.has_memory() => {
                let Changes { pages, base, .. } = &mut self.changes;
                let sorted = ahead.sort(own, regions, pages.take(), base.as_deref());
                all_kept(source, &sorted)?;
                sorted
            }
            (None, _) => sort_own(&self.changes, own, own_pages, regions, hashes.as_ref()),
        };
        // A long list, which is not needed any more.
        self.changes.pages = None;
        Ok((sorted, hashes))
    }

    /// Where it borrows from others and lends to them. Only a full image does: what has changed is
    /// seldom the same.
    fn member<'p>(
        &self,
        path: Option<&'p Path>,
        tracker: &Tracker,
        shared: &Kept,
    ) -> Option<(&'p Path, Member)> {
        // The hashes of all pages of the file have to be known.
        let stored = self.begun.as_ref().map_or(0, ImageWriter::pages);
        let known = stored == shared.page_hashes.len() as u64;
        let may = self.changes.base.is_none() && self.ahead.is_none() && known;
        let folder = path.filter(|_| may).map(tracker::folder)?;
        let member = tracker.member.clone().filter(|m| m.pool.is_worth_it())?;
        Some((folder, member))
    }

    /// Begins to look which of the files that it writes to others have open, if it does. That takes
    /// a while where there are many processes.
    fn look_for_files(
        &self,
        state: &State,
        regions: &Regions,
    ) -> Option<Background<appends::Files>> {
        let family = self.family.borrow().clone();
        let appended = appends::files(&state.descriptions).into_iter();
        let mut files: BTreeMap<_, _> = appended.map(|file| (file, 0)).collect();
        files.extend(regions.anonymous.kept_files());
        let some = !files.is_empty();
        some.then(|| Background::begin(move || appends::open_elsewhere(&family, &files)))
    }

    /// Finds out what was not found out at the freeze. Flags of mappings are looked for later if
    /// all were known at the last image.
    fn ready(&mut self, tracker: &Tracker) -> Result<Ready, CaptureError> {
        let stage = self.stage.take().ok_or(CaptureError::TwinGone)?;
        let asked = match stage {
            Stage::Asked(asked) => *asked,
            Stage::Copied { outline, own, sorted, pages } => {
                let (outline, source) = (*outline, Source::Copied(pages));
                return Ok(Ready { outline, own, sorted, saved: vec![], source, pagemap: None });
            }
        };
        let Asked { mut frozen_state, agent, saved, dont_fork } = asked;
        let is_twin = self.twin.is_some();
        let anonymous = std::mem::take(&mut frozen_state.anonymous);
        let frozen = frozen_state.maps.clone();
        let state = state(self.original.0, frozen_state, &agent, self.pid)?;
        fault::point(fault::TWIN_ASKED)?;
        // What a twin does not inherit was read, with all flags, at the freeze.
        let inherited = dont_fork.is_empty() && frozen.iter().all(|m| m.vm_flags.is_empty());
        let known = match inherited && !tracker.maps.is_empty() {
            true => {
                let now = procfs::maps(self.pid)?;
                Pending::new(self.pid, &now, &tracker.maps)
            }
            false => None,
        };
        let twin = is_twin.then_some((frozen.as_slice(), dont_fork.as_slice()));
        let maps = match known {
            Some(known) => known,
            None => mappings(&procfs::smaps(self.pid)?, twin)?.into(),
        };
        let regions = Regions::of(&maps.maps, anonymous)?;
        let mut pagemap = Pagemap::open(self.pid)?;
        let is_saved = |start, end| saved.iter().any(|s| (start..end).contains(&s.start));
        let own = page_sort::own(&mut pagemap, &regions, is_saved)?;
        let outline = Outline { state, regions, maps };
        let source = Source::open(self.pid)?;
        Ok(Ready { outline, own, sorted: None, saved, source, pagemap: Some(pagemap) })
    }
}

/// Sorts the pages of a process, of which it is now known what has changed.
fn sort_own(
    changes: &Changes,
    own: Vec<Share>,
    own_pages: Spans,
    regions: &Regions,
    hashes: Option<&Hashes>,
) -> Sorted {
    let base = changes.base.as_deref();
    let before = base.and_then(|base| base.hashes.as_ref());
    let same = hashes.zip(before).map(|(now, before)| now.same_as(before));
    let found = same.map(|same| own_pages.without(&same));
    let changed = changes.pages.as_ref().or(found.as_ref());
    page_sort::sort(own, regions, changed, base.map(|base| &base.index))
}

fn lent((folder, member): (&Path, Member), index: &Index, hashes: &[u64]) -> Lent {
    Lent::new(member.number, folder, index.files()[0].clone(), hashes)
}

/// Of pages that were not kept at the freeze nothing can be stored any more.
fn all_kept(source: &Source, sorted: &Sorted) -> Result<(), CaptureError> {
    let Source::Copied(copied) = source else { return Ok(()) };
    match page_sort::all(&sorted.take).without(copied.wanted()).iter().next() {
        None => Ok(()),
        Some(Span { start, .. }) => {
            let what = "changed after it was stored, and was not kept at the freeze".into();
            Err(CaptureError::Mapping { start, what })
        }
    }
}

/// Waits for the flags of the mappings.
fn settle(maps: Pending, regions: &mut Regions) -> Result<Vec<Mapping>, CaptureError> {
    let (maps, read) = maps.settle()?;
    if read {
        regions.mark(&maps)?;
    }
    Ok(maps)
}

/// Marks the files that others have open for writing.
fn mark_shared(others: &appends::Files, state: &mut State, regions: &mut Regions) {
    appends::mark_shared(others, &mut state.descriptions);
    regions.anonymous.mark_shared(others);
}

/// Fills in what is known of a process's memory.
fn complete(state: &mut State, regions: Regions, contents: Vec<Fingerprint>, guards: Vec<Guard>) {
    state.guards = guards;
    state.files = regions.files;
    state.contents = contents;
    state.anonymous = regions.anonymous.into_list();
    state.regions = regions.list.into_iter().map(|(region, _)| region).collect();
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

/// What is known of pages that were stored.
struct Pulled {
    stored: Vec<Extent>,
    guards: Vec<Guard>,
    page_hashes: Option<Vec<u64>>,
    blank: Spans,
}

impl Pulled {
    /// Stores what there is yet of shared memory behind what `puller` has stored.
    fn of(
        puller: Puller<'_>,
        mut shared: Kept,
        writer: &ImageWriter<'_>,
    ) -> Result<Pulled, CaptureError> {
        let Puller { extents: mut stored, guards, blank, hashes, .. } = puller;
        let page_hashes = shared.store_rest(writer, hashes)?;
        let (mut of_shared, zeros) = shared.finish();
        stored.append(&mut of_shared);
        Ok(Pulled { stored, guards, page_hashes, blank: blank.union(&zeros) })
    }
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
    writer: ImageWriter<'_>,
    path: Option<&Path>,
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
    if !plan_room::has_room(&state) {
        let what = "has its memory in too many pieces to be brought back";
        return Err(CaptureError::Unsupported(what.into()));
    }
    limits::refuse_without_room(&state)?;
    posix_timers::refuse_far(&state)?;
    let ancestors: Vec<Ancestor> = files.iter().map(|known| known.file.clone()).collect();
    let contents = Contents { state: &state, extents: &extents, ancestors: &ancestors, meta };
    let written = writer.commit(&contents)?;
    let name = path.and_then(Path::file_name).unwrap_or_default().as_bytes().to_vec();
    let file = Ancestor { name, identity: written.identity };
    let own = Known { file, pages: homes[0], lent: false };
    let files = std::iter::once(own).chain(files).collect();
    Ok((written, Index::new(files, extents, blank)))
}

fn pull<'a>(
    puller: &mut Puller<'a>,
    regions: &Regions,
    saved: &'a [Saved],
    take: Vec<Share>,
) -> Result<(), CaptureError> {
    let mut shares = take.into_iter().peekable();
    for (i, (region, content)) in regions.list.iter().enumerate() {
        // They are in order.
        let first = saved.partition_point(|s| s.start < region.start);
        let kept = || saved[first..].iter().take_while(|s| s.start < region.end);
        for s in kept() {
            puller.take_saved(s.start, &s.content);
        }
        let legible = region.prot & libc::PROT_READ as u32 != 0;
        if let Some(share) = shares.next_if(|share| share.region == i) {
            for span in share.spans.iter() {
                let pages = (span.end - span.start) / PAGE_BYTES;
                puller.take(&Run { start: span.start, pages }, kind(region), legible);
            }
        } else if *content == Content::All && kept().next().is_none() {
            let pages = (region.end - region.start) / PAGE_BYTES;
            puller.take(&Run { start: region.start, pages }, Kind::Lost, legible);
        }
    }
    puller.pull()
}

pub(crate) fn kind(region: &Region) -> Kind {
    if region.backing == (Backing::Anon {}) { Kind::Anon } else { Kind::File }
}
