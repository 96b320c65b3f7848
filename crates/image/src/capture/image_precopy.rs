//! Pages that are stored while the process still runs: pre-copy, into its image. What it writes
//! meanwhile is stored again, at the freeze at last, when little of it is left: so it hardly stands
//! still, however much memory it has. A twin alone takes the kernel 15 to 20 ms for each GiB.
//!
//! Kept true: a private page counts as stored only if it was noted as not written, then no call of
//! the program's was under way that had pinned it before (`O_DIRECT`; what is written there the
//! kernel does not note), then it was read, and it is still noted as not written at the freeze. A
//! shared one does if at the freeze it has the hash of what was stored
//! ([`crate::write::shared_pages`]).
//!
//! It is of no use with a program that writes all of its memory faster than that is stored. Then it
//! ends soon, and is not tried again for a while.

use crate::PAGE_BYTES;
use crate::capture::cost::{MAX_COPY_BYTES, Mode};
use crate::capture::freeze::Frozen;
use crate::capture::precopy::not_stopped;
use crate::capture::process_state;
use crate::capture::snapshot;
use crate::capture::store;
use crate::capture::tracker::{self, Base, Changes, Tracker};
use crate::error::CaptureError;
use crate::kernel::pagemap::Pagemap;
use crate::kernel::procfs::{self, Mapping, Status};
use crate::kernel::smaps::Pending;
use crate::resources::files::links::Linked;
use crate::resources::regions::Regions;
use crate::resources::shared_memory::content::Objects;
use crate::resources::shared_memory::named::Named;
use crate::resources::shared_memory::objects::AnonymousObjects;
use crate::restore::lazy;
use crate::write::page_sort::{self, Share, Sorted, Spared};
use crate::write::page_source::Source;
use crate::write::pull::Puller;
use crate::write::shared_pages;
use crate::write::time_limit::Until;
use eyrie_image_format::read::chain::Index;
use eyrie_image_format::state::Run;
use eyrie_image_format::support::fault;
use eyrie_image_format::support::spans::{Span, Spans};
use eyrie_image_format::write::sink::Tap;
use eyrie_image_format::write::writer::ImageWriter;
use std::collections::BTreeSet;
use std::iter;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What is stored before it is looked how much was written meanwhile: most programs that write too
/// fast are known after the first part. At the end of a part the storage has nothing to do.
const FIRST_BYTES: u64 = 64 << 20;
const PART_BYTES: u64 = 256 << 20;
/// To look takes a walk through all of the process's page tables: so often at most.
const MOST_LOOKS: u64 = 16;
/// So little may be left for the freeze.
const ENOUGH_BYTES: u64 = 4 << 20;
/// A round that is not smaller than the one before by this factor would be the last but in vain.
const LEAST_GAIN: u64 = 4;
/// Most rounds.
const ROUNDS: usize = 4;
/// So often mappings are read that change meanwhile.
const READS: usize = 8;

/// Pages of an image that were stored while the process ran. Dropped, it leaves nothing behind.
pub struct Ahead {
    pub(crate) writer: ImageWriter<'static>,
    rounds: Vec<Round>,
    /// Pages of which the image has the content, in its own file or in those that it refers to.
    covered: Spans,
    /// What was written since.
    late: Spans,
    /// The image that it refers to.
    base: Option<Arc<Base>>,
    /// Which of that one's files are not worth it.
    spared: Spared,
    /// How long the process stood still for it.
    pub(crate) stood: Duration,
    /// Pages of shared memory.
    shared: Vec<shared_pages::Round>,
}

/// Pages of one round.
struct Round {
    /// Those that were not written since.
    seen: Spans,
    /// Where those with content lie in the image.
    index: Index,
}

/// Shared memory of a process that runs, as far as it can be opened.
struct Sharing {
    ids: Vec<u64>,
    /// [`Objects::sizes`].
    sizes: Vec<(u64, u64)>,
    source: Source,
    /// Pages that are to be stored.
    take: Spans,
}

/// What is to be stored of a process that runs.
struct Plan {
    regions: Regions,
    /// All its pages.
    own: Spans,
    take: Vec<Share>,
}

impl Ahead {
    /// Stores pages for the image `path` of the process `pid`, a child of ours, which `tap` takes
    /// as well, if this is likely to spare the process a pause; else, and if anything goes wrong,
    /// `None`: the freeze will tell. [`Frozen::snapshot_after`] goes on from there.
    ///
    /// [`Tracker::store_ahead`] may say when to do that. Once `hurry` is true, the process is to be
    /// stopped soon: then it ends, and what was stored is given up.
    pub fn begin(
        pid: libc::pid_t,
        path: &Path,
        tracker: &mut Tracker,
        wish: Mode,
        tap: &mut Option<Box<dyn Tap>>,
        hurry: &AtomicBool,
    ) -> Option<Ahead> {
        if wish != Mode::Auto {
            return None;
        }
        let base = tracker.base_of(path).cloned();
        let mut begun = None;
        if let Some(sharing) = Sharing::look(pid, path, tracker, hurry) {
            let mut ahead = Ahead::new(path, tap, base.clone())?;
            let left = ahead.store_shared(sharing, tracker::folder(path), hurry);
            if !is_called_off(&left) {
                tracker.stored_shared(left.as_ref().is_ok_and(|&left| left <= MAX_COPY_BYTES));
            }
            left.ok()?;
            begun = Some(ahead);
        }
        let Some((plan, spared, stood)) = Ahead::plan(pid, path, tracker) else { return begun };
        let mut ahead = match begun {
            Some(ahead) => ahead,
            None => Ahead::new(path, tap, base)?,
        };
        (ahead.spared, ahead.stood) = (spared, stood);
        // The lists of what is stored need memory, too, and little is left to be copied at the end.
        tracker.buffer = Vec::new();
        let left = ahead.rounds(pid, plan, tracker, hurry);
        if !is_called_off(&left) {
            tracker.went_ahead(left.as_ref().is_ok_and(|&left| left <= MAX_COPY_BYTES));
        }
        let left = left.ok()?;
        tracker.make_room((left + left / 4 + ENOUGH_BYTES).min(MAX_COPY_BYTES));
        Some(ahead)
    }

    fn new(path: &Path, tap: &mut Option<Box<dyn Tap>>, base: Option<Arc<Base>>) -> Option<Ahead> {
        Some(Ahead {
            writer: ImageWriter::create_tapped(path, tap.take()).ok()?,
            rounds: Vec::new(),
            covered: Spans::default(),
            late: Spans::default(),
            base,
            spared: None,
            stood: Duration::ZERO,
            shared: Vec::new(),
        })
    }

    /// What is to be stored of its private memory, if that is likely to spare it a pause.
    fn plan(
        pid: libc::pid_t,
        path: &Path,
        tracker: &mut Tracker,
    ) -> Option<(Plan, Spared, Duration)> {
        let own = Status::read(pid).ok()?.kib("RssAnon") << 10;
        if !tracker.may_go_ahead(path, own) {
            return None;
        }
        lazy::complete(pid);
        let mut stood = Duration::ZERO;
        if !tracker.notes_writes_of(pid) {
            stood += begin_to_note(pid, tracker).ok()?;
        }
        let base = tracker.base_of(path).cloned();
        let mut now = procfs::maps(pid).ok()?;
        tracker.written_ahead(pid, &now).ok()?;
        if tracker.much_is_new(ENOUGH_BYTES) {
            stood += watch_new(pid, tracker).ok()?;
            now = procfs::maps(pid).ok()?;
            tracker.written_ahead(pid, &now).ok()?;
        }
        if base.is_some()
            && let Some(bytes) = tracker.little(&now, own)
        {
            // To find out where exactly it lies would only be one more walk.
            tracker.make_room(bytes);
            return None;
        }
        let mut spared = None;
        let plan = Plan::new(pid, &now, base.as_deref(), &mut spared, tracker).ok()?;
        let bytes = plan.bytes();
        if bytes == 0 || !tracker.always_ahead() && tracker.would_copy(own, bytes) {
            return None;
        }
        Some((plan, spared, stood))
    }

    /// How long the process stood still for it, in several parts.
    pub fn stood(&self) -> Duration {
        self.stood
    }

    /// Stores shared memory, and what is not as it was then again, until little is left or it
    /// becomes no less. Returns how much is left.
    fn store_shared(
        &mut self,
        sharing: Sharing,
        folder: &Path,
        hurry: &AtomicBool,
    ) -> Result<u64, CaptureError> {
        let Sharing { ids, sizes, source, take: mut left } = sharing;
        let all = left.clone();
        for part in [first(&left), left.without(&first(&left))] {
            if part.bytes() == 0 {
                continue;
            }
            let to = (&self.writer, folder);
            self.shared.push(shared_pages::Round::store(&source, &sizes, &part, to, hurry)?);
            fault::point(fault::STORED_AHEAD)?;
            let changed = shared_pages::changed(&source, &ids, &part, None, &self.shared, hurry)?;
            if changed.bytes() > part.bytes() / 2 {
                // The program writes too fast.
                return Ok(left.bytes());
            }
        }
        loop {
            let before = left.bytes();
            left = shared_pages::changed(&source, &ids, &all, None, &self.shared, hurry)?;
            let bytes = left.bytes();
            if bytes <= ENOUGH_BYTES || bytes * LEAST_GAIN > before || self.shared.len() > ROUNDS {
                return Ok(bytes);
            }
            let to = (&self.writer, folder);
            self.shared.push(shared_pages::Round::store(&source, &sizes, &left, to, hurry)?);
        }
    }

    /// What was stored of shared memory.
    pub(crate) fn shared(&self) -> &[shared_pages::Round] {
        &self.shared
    }

    /// Whether private memory was stored.
    pub(crate) fn has_memory(&self) -> bool {
        !self.rounds.is_empty()
    }

    /// Stores, and what was written meanwhile again, until little is left or it becomes no less.
    /// Returns how much is left.
    fn rounds(
        &mut self,
        pid: libc::pid_t,
        mut plan: Plan,
        tracker: &mut Tracker,
        hurry: &AtomicBool,
    ) -> Result<u64, CaptureError> {
        loop {
            let bytes = plan.bytes();
            self.stood += wait_for_calls(pid)?;
            let outrun = !self.store(pid, &plan, hurry)?;
            let now = procfs::maps(pid)?;
            self.forget(&tracker.written_ahead(pid, &now)?);
            plan = Plan::new(pid, &now, self.base.as_deref(), &mut self.spared, tracker)?;
            for round in &self.rounds {
                plan.take.iter_mut().for_each(|s| s.spans = s.spans.without(&round.seen));
            }
            let left = plan.bytes();
            let done = left <= ENOUGH_BYTES || left * LEAST_GAIN > bytes;
            if outrun || done || self.rounds.len() >= ROUNDS {
                self.covered = plan.own.without(&page_sort::all(&plan.take));
                return Ok(left);
            }
        }
    }

    /// Stores pages; `false` if it ends early because the program writes too fast.
    fn store(
        &mut self,
        pid: libc::pid_t,
        plan: &Plan,
        hurry: &AtomicBool,
    ) -> Result<bool, CaptureError> {
        let (source, pagemap) = (Source::open(pid)?, Pagemap::open(pid)?);
        let (mut seen, mut extents, mut blank) = (Spans::default(), Vec::new(), Spans::default());
        let mut in_time = true;
        for part in plan.parts() {
            let mut puller = Puller::new(&source, None, &self.writer);
            puller.until = Until::called_off(hurry);
            for (number, span) in part {
                let region = &plan.regions.list[number].0;
                let pages = (span.end - span.start) / PAGE_BYTES;
                let legible = region.prot & libc::PROT_READ as u32 != 0;
                puller.take(&Run { start: span.start, pages }, store::kind(region), legible);
            }
            puller.pull()?;
            let mut stored = Spans::default();
            let ends = puller.extents.iter().map(|e| (e.start, e.start + e.pages * PAGE_BYTES));
            ends.for_each(|(start, end)| stored.push(start, end));
            // The parts are in order.
            let found = stored.union(&puller.blank);
            found.iter().for_each(|s| seen.push(s.start, s.end));
            puller.blank.iter().for_each(|s| blank.push(s.start, s.end));
            extents.append(&mut puller.extents);
            fault::point(fault::STORED_AHEAD)?;
            let written = written_bytes(&pagemap, plan)?;
            if written > plan.bytes() / 2 {
                in_time = false;
                break;
            }
        }
        self.rounds.push(Round { seen, index: Index::new(Vec::new(), extents, blank) });
        Ok(in_time)
    }

    fn forget(&mut self, written: &Spans) {
        self.rounds.iter_mut().for_each(|round| round.seen = round.seen.without(written));
    }

    /// At the freeze: what was written last, and the image that can be referred to.
    pub(crate) fn freeze(&mut self, changes: &Changes, tracker: &Tracker) {
        if changes.pages.is_none() {
            // Without the kernel's word about writes no private page counts that was stored before.
            self.rounds.clear();
            self.covered = Spans::default();
            return;
        }
        let (written, base) = (tracker.newest_writes(), changes.base.as_ref());
        self.covered = match self.base.as_ref().map(Arc::as_ptr) == base.map(Arc::as_ptr) {
            true => self.covered.without(&written),
            false => Spans::default(),
        };
        self.late = written;
    }

    /// Pages of which nothing is to be kept at the freeze.
    pub(crate) fn covered(&self) -> &Spans {
        &self.covered
    }

    /// After the freeze: sorts the pages of the process, and takes out what is stored already. Not
    /// to be asked twice.
    pub(crate) fn sort(
        &mut self,
        own: Vec<Share>,
        regions: &Regions,
        changed: Option<Spans>,
        base: Option<&Base>,
    ) -> Sorted {
        let written = std::mem::take(&mut self.late);
        self.forget(&written);
        let index = base.map(|base| &base.index);
        let mut sorted =
            page_sort::sort_with(own, regions, changed.as_ref(), index, &mut self.spared);
        // These are long lists, and so are those of each round.
        drop((changed, written));
        for Round { seen, index } in self.rounds.drain(..) {
            for share in &mut sorted.take {
                let stored = share.spans.intersection(&seen);
                for span in stored.iter() {
                    sorted.extents.extend(index.within(span.start, span.end));
                }
                let zeros = stored.intersection(index.blank());
                sorted.blank = sorted.blank.union(&zeros);
                share.spans = share.spans.without(&stored);
            }
        }
        sorted
    }
}

/// Whether it ended because it was to, which says nothing of the program.
fn is_called_off(left: &Result<u64, CaptureError>) -> bool {
    matches!(left, Err(CaptureError::CalledOff))
}

/// What is stored first.
fn first(pages: &Spans) -> Spans {
    let mut room = FIRST_BYTES;
    let mut part = Spans::default();
    for span in pages.iter() {
        let bytes = (span.end - span.start).min(room);
        part.push(span.start, span.start + bytes);
        room -= bytes;
    }
    part
}

impl Sharing {
    /// What a process shares with others, if enough of it has changed since the image that the
    /// image `path` may refer to.
    fn look(
        pid: libc::pid_t,
        path: &Path,
        tracker: &mut Tracker,
        hurry: &AtomicBool,
    ) -> Option<Sharing> {
        let maps = procfs::maps(pid).ok()?;
        let named = Named::of(&[pid], &[]).ok()?;
        let names = (&named, &mut Linked::default());
        let mut anonymous = AnonymousObjects::of_mappings(pid, &maps, names).ok()?;
        let objects: Objects = anonymous.open(pid, &mut BTreeSet::new()).ok()?;
        let (ids, present) = (objects.ids().to_vec(), objects.present().ok()?);
        let enough = if tracker.always_ahead() { 1 } else { MAX_COPY_BYTES };
        if present.bytes() < enough || !tracker.may_store_shared(path) {
            return None;
        }
        let (sizes, source) = (objects.sizes(), Source::Shared(objects));
        let base = tracker.base_of(path).and_then(|base| base.shared());
        let take = shared_pages::changed(&source, &ids, &present, base, &[], hurry).ok()?;
        (take.bytes() >= enough).then_some(Sharing { ids, sizes, source, take })
    }
}

/// The mappings `now` of a process that runs, and may change them while more is read about them:
/// then they are read again.
fn settled(
    pid: libc::pid_t,
    now: &[Mapping],
    tracker: &Tracker,
) -> Result<(Vec<Mapping>, Regions), CaptureError> {
    let mut known = Pending::new(pid, now, &tracker.maps);
    for _ in 0..READS {
        let maps = match known.take() {
            Some(known) => known.maps,
            None => snapshot::mappings(&procfs::smaps(pid)?, None)?,
        };
        let regions = Regions::of(&maps, AnonymousObjects::default())?;
        if regions.are_apart() {
            return Ok((maps, regions));
        }
    }
    let what = "changed its mappings whenever these were read";
    Err(CaptureError::Unsupported(what.into()).for_now())
}

impl Plan {
    /// What is to be stored of a process with the mappings `now` if all that was written is known.
    fn new(
        pid: libc::pid_t,
        now: &[Mapping],
        base: Option<&Base>,
        spared: &mut Spared,
        tracker: &mut Tracker,
    ) -> Result<Plan, CaptureError> {
        let (maps, regions) = settled(pid, now, tracker)?;
        let shares = page_sort::own(&mut Pagemap::open(pid)?, &regions, |_, _| false)?;
        let (own, changed) = (page_sort::all(&shares), tracker.changed());
        let index = base.map(|base| &base.index);
        let take = page_sort::sort_with(shares, &regions, Some(&changed), index, spared).take;
        tracker.maps = maps;
        Ok(Plan { regions, own, take })
    }

    fn bytes(&self) -> u64 {
        self.take.iter().map(|share| share.spans.bytes()).sum()
    }

    /// Its pages, each stretch with the number of its region, in parts.
    fn parts(&self) -> impl Iterator<Item = Vec<(usize, Span)>> + '_ {
        let most = PART_BYTES.max((self.bytes() / MOST_LOOKS).next_multiple_of(PAGE_BYTES));
        let of = |share: &Share, span| (share.region, span);
        let mut spans =
            self.take.iter().flat_map(move |share| share.spans.iter().map(move |s| of(share, s)));
        let (mut rest, mut next) = (None, FIRST_BYTES);
        iter::from_fn(move || {
            let (mut part, mut room) = (Vec::new(), std::mem::replace(&mut next, most));
            while room > 0 {
                let Some((region, Span { start, end })) = rest.take().or_else(|| spans.next())
                else {
                    break;
                };
                let cut = end.min(start + room);
                part.push((region, Span { start, end: cut }));
                room -= cut - start;
                rest = (cut < end).then_some((region, Span { start: cut, end }));
            }
            (!part.is_empty()).then_some(part)
        })
    }
}

/// How much was written since it was last asked for, of what is to be stored.
fn written_bytes(pagemap: &Pagemap, plan: &Plan) -> Result<u64, CaptureError> {
    let mut bytes = 0;
    for share in &plan.take {
        let region = &plan.regions.list[share.region].0;
        // A mapping that is not watched any more is not there any more, or is another.
        bytes +=
            pagemap.written_bytes(page_sort::part(region)).unwrap_or(region.end - region.start);
    }
    Ok(bytes)
}

/// Has the writes of a process noted from now on. Returns how long it stood still for that.
fn begin_to_note(pid: libc::pid_t, tracker: &mut Tracker) -> Result<Duration, CaptureError> {
    while_it_stands(pid, |frozen| {
        let (maps, agent) = process_state::agent_alone(frozen)?;
        let noted = tracker.begin_to_note(pid, &maps, &agent);
        let finished = agent.finish();
        noted.and(finished)
    })
}

/// Has the writes noted to what was mapped since the last image, too. Returns how long that took.
fn watch_new(pid: libc::pid_t, tracker: &mut Tracker) -> Result<Duration, CaptureError> {
    while_it_stands(pid, |_| tracker.watch_new(pid, &procfs::maps(pid)?))
}

/// Waits until no call is under way in a process any more that was when this was called: it stands
/// still for a moment. Returns for how long.
pub(crate) fn wait_for_calls(pid: libc::pid_t) -> Result<Duration, CaptureError> {
    while_it_stands(pid, |_| Ok(fault::point(fault::CALLS_OVER)?))
}

/// Stops a process for this. Returns how long it stood still.
fn while_it_stands(
    pid: libc::pid_t,
    work: impl FnOnce(&mut Frozen) -> Result<(), CaptureError>,
) -> Result<Duration, CaptureError> {
    let begun = Instant::now();
    let mut frozen = Frozen::alone(pid).map_err(not_stopped)?;
    let done = work(&mut frozen);
    let released = frozen.release().map_err(not_stopped);
    done.and(released).map(|()| begun.elapsed())
}
