//! A process as it was at one freeze, on its way into an image: in a twin, in a copy of what has
//! changed, or still standing there.

use crate::capture::cost::{Choice, MAX_COPY_BYTES, Mode};
use crate::capture::freeze::Frozen;
use crate::capture::image_precopy::Ahead;
use crate::capture::process_state::{self, FrozenState};
use crate::capture::process_tree;
use crate::capture::survey::Survey;
use crate::capture::tracker::{self, Base, Changes, Tracker};
use crate::capture::twin::{self, Saved};
use crate::capture::twin_process::Process;
use crate::error::CaptureError;
use crate::kernel::pagemap::Pagemap;
use crate::kernel::procfs::{self, Mapping};
use crate::kernel::ptrace::Tracee;
use crate::kernel::remote_calls::Agent;
use crate::kernel::smaps::{self, Pending};
use crate::kernel::starting;
use crate::kernel::written_pages::process;
use crate::resources::files::stored::Room;
use crate::resources::numa;
use crate::resources::regions::{Content, Regions};
use crate::resources::shared_memory::content::Objects;
use crate::resources::shared_memory::objects::AnonymousObjects;
use crate::write::page_sort::{self, Share, Sorted};
use crate::write::page_source::Copied;
use crate::write::pull::illegible;
use crate::write::shared_pages::{Kept, Means};
use crate::write::time_limit::Stand;
use eyrie_image_format::read::tree_files;
use eyrie_image_format::state::State;
use eyrie_image_format::support::fault;
use eyrie_image_format::support::spans::Spans;
use eyrie_image_format::write::sink::Tap;
use eyrie_image_format::write::writer::ImageWriter;
use std::cell::{Cell, OnceCell, RefCell};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// What was kept of a frozen process. Belongs to the thread that took it.
pub struct Snapshot {
    pub(crate) path: PathBuf,
    /// The twin, as long as its memory is needed.
    pub(crate) twin: Option<Process>,
    /// The process whose memory is read.
    pub(crate) pid: libc::pid_t,
    /// The process that this is about: its number and start.
    pub(crate) original: (libc::pid_t, u64),
    pub(crate) stage: Option<Stage>,
    /// Those of its children.
    pub(crate) children: Vec<Snapshot>,
    /// All processes of its family and their twins.
    pub(crate) family: Rc<RefCell<Vec<libc::pid_t>>>,
    pub(crate) changes: Changes,
    pub(crate) choice: Choice,
    pub(crate) made: Duration,
    pub(crate) born: Instant,
    pub(crate) stood: Rc<Cell<Option<Duration>>>,
    /// Takes its image as well.
    pub(crate) tap: Option<Box<dyn Tap>>,
    /// What of its image was stored before the freeze.
    pub(crate) ahead: Option<Ahead>,
    /// Its image, if something was stored in it at the freeze, and nothing before.
    pub(crate) begun: Option<ImageWriter<'static>>,
    /// What was kept of its shared memory.
    pub(crate) shared: Kept,
    _this_thread: PhantomData<*const ()>,
}

/// How much of it was read at the freeze.
pub(crate) enum Stage {
    /// What only the frozen process itself can tell.
    Asked(Box<Asked>),
    /// All that is needed.
    Copied { outline: Box<Outline>, own: Vec<Share>, sorted: Option<Sorted>, pages: Copied },
}

impl Stage {
    /// How much of its memory was copied, if all was that is to be stored of it.
    fn copied_bytes(&self) -> Option<u64> {
        match self {
            Stage::Copied { pages, .. } => Some(pages.bytes()),
            Stage::Asked(_) => None,
        }
    }
}

/// What only the frozen process itself can tell.
pub(crate) struct Asked {
    pub frozen_state: FrozenState,
    pub agent: Agent,
    pub saved: Vec<Saved>,
    /// Mappings that the twin has not inherited.
    pub dont_fork: Vec<Mapping>,
}

/// All of a process but the content of its memory.
pub(crate) struct Outline {
    pub state: State,
    pub regions: Regions,
    /// What the regions were made of.
    pub maps: Pending,
}

fn is_gone(pid: libc::pid_t) -> bool {
    Tracee(pid).regs().is_err()
}

impl Frozen {
    /// Keeps what an image `path` of the process needs, as `wish` says; of its memory only what has
    /// changed since the last image that `tracker` knows of, if `path` may refer to that. After
    /// this the process may be released, unless the mode is [`Mode::Sync`]. After an error it goes
    /// on as if nothing had happened.
    pub fn snapshot(
        &mut self,
        path: &Path,
        tracker: &mut Tracker,
        wish: Mode,
    ) -> Result<Snapshot, CaptureError> {
        self.snapshot_at(Some(path), tracker, wish, None)
    }

    /// The same for an image of which some is stored already.
    pub fn snapshot_after(
        &mut self,
        ahead: Option<Ahead>,
        path: &Path,
        tracker: &mut Tracker,
        wish: Mode,
    ) -> Result<Snapshot, CaptureError> {
        self.snapshot_at(Some(path), tracker, wish, ahead)
    }

    pub(crate) fn snapshot_at(
        &mut self,
        path: Option<&Path>,
        tracker: &mut Tracker,
        wish: Mode,
        ahead: Option<Ahead>,
    ) -> Result<Snapshot, CaptureError> {
        process_tree::check_tree(self)?;
        let _held = starting::hold();
        // What /proc shows of a dying process is empty or wrong; that it dies is the better reason.
        let survey = Survey::of_tree(self);
        let (called_off, limit) = (self.called_off.take(), self.limit.take());
        let snapshot = survey.and_then(|mut survey| {
            survey.called_off = called_off;
            survey.files = Room::new(tracker.files_limit);
            let watch = self.watch.as_ref().or(tracker.watch.as_ref());
            watch.iter().for_each(|watch| watch.settle(self.tracee.0));
            let touched = watch.map(|watch| watch.touched(self.tracee.0));
            survey.touched = touched.unwrap_or_default();
            // One that stands until its image is written has nothing to go on for.
            let limit = if wish == Mode::Sync { Some(Duration::MAX) } else { limit };
            survey.stand = limit.map(Stand::at_most).unwrap_or_default();
            self.take_snapshot(path, tracker, wish, &mut survey, ahead)
        });
        self.tap = None;
        snapshot.map_err(|e| match (self.tracee.regs(), e) {
            // It stands there, so it is the other one that is gone.
            (Ok(_), CaptureError::Gone) => {
                match self.pids().into_iter().find(|&pid| is_gone(pid)) {
                    Some(child) => process_tree::of_child(child, CaptureError::Gone),
                    None => CaptureError::TwinGone,
                }
            }
            (Ok(_), e) => e,
            (Err(_), _) => CaptureError::Gone,
        })
    }

    fn take_snapshot(
        &mut self,
        path: Option<&Path>,
        tracker: &mut Tracker,
        wish: Mode,
        survey: &mut Survey,
        mut ahead: Option<Ahead>,
    ) -> Result<Snapshot, CaptureError> {
        let (begun, pid) = (Instant::now(), self.tracee.0);
        let (mut frozen_state, agent) = process_state::freeze_state(self, survey)?;
        agent.finish()?;
        frozen_state.anonymous.refuse_shared(&survey.family.borrow())?;
        let listing = Instant::now();
        let mappings = Mappings::at_once(pid, wish, &frozen_state.maps, tracker, ahead.is_some());
        let changes = tracker.freeze(pid, &frozen_state, &agent, path)?;
        ahead.iter_mut().for_each(|ahead| ahead.freeze(&changes, tracker));
        let memory = ahead.as_ref().filter(|ahead| ahead.has_memory());
        let mut objects = frozen_state.anonymous.open(pid, &mut survey.anonymous)?;
        let ours = frozen_state.stat.field(4) == u64::from(std::process::id());
        let own_bytes = frozen_state.status.kib("RssAnon") << 10;
        let mut choice = tracker.choose(wish, own_bytes, &changes, memory);
        fault::point(fault::BEFORE_TWIN)?;
        let (mut twin, mut source) = (None, pid);
        let stage;
        let plan = match choice.mode {
            Mode::Copy => plan_copy(pid, &changes, mappings, memory, (&frozen_state, &objects))?,
            _ => Err("as asked for"),
        };
        if let Ok(plan) = plan {
            let state = state(pid, frozen_state, &agent, pid)?;
            tracker.cost.listed(own_bytes, listing.elapsed());
            stage = copy(plan, pid, state, tracker)?;
        } else if choice.mode != Mode::Sync {
            if let (Mode::Copy, Err(why)) = (choice.mode, plan) {
                choice = Choice { mode: Mode::Twin, why: why.into() };
            }
            let forked = Instant::now();
            let process = twin::make(self, &agent, &frozen_state.maps, ours)?;
            tracker.cost.forked(own_bytes, forked.elapsed());
            source = process.pid();
            let its = survey.twin(&agent, source)?;
            stage = by_twin(pid, frozen_state, [agent, its], &mut objects, source)?;
            twin = Some(process);
        } else {
            stage = self.standing(frozen_state, agent, &mut objects, ours)?;
        }
        survey.room = survey.room.saturating_sub(stage.copied_bytes().unwrap_or(0));
        let stored = (ahead.as_ref(), changes.base.as_deref());
        let (begun_image, shared) = self.keep_shared(objects, path, tracker, stored, survey)?;
        tracker.copied = choice.mode == Mode::Copy;
        Ok(Snapshot {
            path: path.unwrap_or(Path::new("")).to_path_buf(),
            twin,
            pid: source,
            original: process(pid)?,
            stage: Some(stage),
            family: Rc::clone(&survey.family),
            children: self.snapshots_of_children(path, tracker, wish, survey)?,
            changes,
            choice,
            made: begun.elapsed(),
            born: Instant::now(),
            stood: Rc::clone(&self.stood),
            tap: self.tap.take(),
            ahead,
            begun: begun_image,
            shared,
            _this_thread: PhantomData,
        })
    }

    /// Keeps what has changed of its shared memory, in its image if that is much. `stored`: what
    /// the image has already, and the one before.
    fn keep_shared(
        &mut self,
        objects: Objects,
        path: Option<&Path>,
        tracker: &Tracker,
        stored: (Option<&Ahead>, Option<&Base>),
        survey: &mut Survey,
    ) -> Result<(Option<ImageWriter<'static>>, Kept), CaptureError> {
        let (ahead, base) = stored;
        let image = OnceCell::new();
        let mut begin = || match (ahead, path) {
            (Some(ahead), _) => Ok(Some(&ahead.writer)),
            (None, Some(path)) => {
                let writer = ImageWriter::create_tapped(path, self.tap.take())?;
                Ok(Some(image.get_or_init(|| writer)))
            }
            (None, None) => Ok(None),
        };
        let means = Means {
            base: base.and_then(Base::shared),
            rounds: ahead.map_or(&[], Ahead::shared),
            tracks: tracker.tracks(),
            room: &mut survey.room,
            begin: &mut begin,
            page_hashes: tracker.member.is_some() && base.is_none() && ahead.is_none(),
            called_off: survey.called_off.as_deref(),
            folder: tracker::folder(path.unwrap_or(Path::new(""))),
            stand: &survey.stand,
        };
        let kept = Kept::of(objects, means)?;
        fault::point(fault::SHARED_KEPT)?;
        Ok((image.into_inner(), kept))
    }

    /// What is needed of a process that stands still until its image is written.
    fn standing(
        &mut self,
        mut frozen_state: FrozenState,
        agent: Agent,
        objects: &mut Objects,
        ours: bool,
    ) -> Result<Stage, CaptureError> {
        if objects.some_unseen() {
            let helper = twin::make(self, &agent, &frozen_state.maps, ours)?;
            let agent = agent.of_twin(Tracee(helper.pid()));
            frozen_state.anonymous.look_through(self.tracee.0, &agent, objects)?;
        }
        let (saved, dont_fork) = (Vec::new(), Vec::new());
        Ok(Stage::Asked(Box::new(Asked { frozen_state, agent, saved, dont_fork })))
    }

    fn snapshots_of_children(
        &mut self,
        path: Option<&Path>,
        tracker: &mut Tracker,
        wish: Mode,
        survey: &mut Survey,
    ) -> Result<Vec<Snapshot>, CaptureError> {
        let wish = if wish == Mode::Sync { wish } else { Mode::Twin };
        // Also where one of them has no snapshot: others have ended since.
        let left: Vec<_> = self.children.iter().filter_map(|c| process(c.pid()).ok()).collect();
        tracker.keep_children(&left);
        let snapshots = self.children.iter_mut().enumerate().map(|(n, child)| {
            let number = child.pid();
            let path = path.map(|path| tree_files::child_path(path, n));
            let snapshot = process(number).and_then(|process| {
                let tracker = tracker.child(process);
                child.take_snapshot(path.as_deref(), tracker, wish, survey, None)
            });
            snapshot.map_err(|why| process_tree::of_child(number, why))
        });
        snapshots.collect()
    }
}

/// What a process that stands still, and its twin, tell now. `own` and `agent`: calls in their
/// names.
fn by_twin(
    pid: libc::pid_t,
    mut frozen_state: FrozenState,
    [own, agent]: [Agent; 2],
    objects: &mut Objects,
    twin: libc::pid_t,
) -> Result<Stage, CaptureError> {
    let (saved, dont_fork) = twin::not_inherited(pid, &frozen_state.maps, twin)?;
    if !dont_fork.is_empty() {
        frozen_state.kept = numa::of_mappings(&own, &dont_fork, false)?;
        own.finish()?;
    }
    if objects.some_unseen() {
        frozen_state.anonymous.look_through(pid, &agent, objects)?;
    }
    Ok(Stage::Asked(Box::new(Asked { frozen_state, agent, saved, dont_fork })))
}

/// The mappings of a process with their flags.
enum Mappings {
    /// As far as they are known already.
    Known(Pending),
    /// As they are now, for which another thread walks through the page tables meanwhile. What
    /// begins to be tracked just then may be joined with what was listed before it, and be listed
    /// twice: see [`Regions::are_apart`].
    Walk(Walk),
}

/// A thread that reads `smaps`, and of which process.
struct Walk(Option<JoinHandle<Result<Vec<u8>, CaptureError>>>, libc::pid_t);

impl Mappings {
    /// Those of a process that is likely to be copied, if it is one.
    fn at_once(
        pid: libc::pid_t,
        wish: Mode,
        now: &[Mapping],
        tracker: &Tracker,
        ahead: bool,
    ) -> Option<Mappings> {
        if !ahead && !tracker.may_copy(wish) {
            return None;
        }
        let known = Pending::new(pid, now, &tracker.maps).map(Mappings::Known);
        known.or_else(|| tracker.expects_copy(wish).then(|| Mappings::read(pid)))
    }

    fn read(pid: libc::pid_t) -> Mappings {
        let thread = thread::Builder::new().name("eyrie-image".into());
        Mappings::Walk(Walk(thread.spawn(move || procfs::smaps(pid)).ok(), pid))
    }
}

impl Walk {
    fn text(mut self) -> Result<Vec<u8>, CaptureError> {
        match self.0.take().map(JoinHandle::join) {
            Some(Ok(text)) => text,
            // There was no memory for a thread.
            Some(Err(_)) | None => procfs::smaps(self.1),
        }
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        // It is read while the process stands still, or not at all.
        drop(self.0.take().map(JoinHandle::join));
    }
}

/// What is to be copied of a process that stands still.
struct CopyPlan {
    pagemap: Pagemap,
    regions: Regions,
    maps: Pending,
    own: Vec<Share>,
    sorted: Option<Sorted>,
    spans: Spans,
}

/// Why a process is not to be copied, which is known before it is looked for what would be.
fn not_to_copy(objects: &Objects, maps: &[Mapping]) -> Option<&'static str> {
    if objects.some_unseen() {
        return Some("only a twin tells what it shares");
    }
    let many = "it has so many mappings that asking about them takes too long";
    numa::are_many(maps).then_some(many)
}

/// Finds out what is to be copied; the inner error says why not.
fn plan_copy(
    pid: libc::pid_t,
    changes: &Changes,
    mappings: Option<Mappings>,
    ahead: Option<&Ahead>,
    (frozen_state, objects): (&FrozenState, &Objects),
) -> Result<Result<CopyPlan, &'static str>, CaptureError> {
    if let Some(why) = not_to_copy(objects, &frozen_state.maps) {
        return Ok(Err(why));
    }
    let mut pagemap = Pagemap::open(pid)?;
    // On old kernels, looking for pages takes time by the size of the mappings.
    if !pagemap.is_fast() {
        return Ok(Err("on this kernel, finding pages to copy takes too long"));
    }
    let found = match mappings {
        Some(Mappings::Known(known)) => Some(known),
        Some(Mappings::Walk(walk)) => Some(self::mappings(&walk.text()?, None)?.into()),
        None => None,
    };
    let listed = |maps| listed(maps, frozen_state.anonymous.clone());
    let found: Option<Found> = found.map(listed).transpose()?;
    let (regions, maps) = match found.filter(|(regions, _)| regions.are_apart()) {
        Some(found) => found,
        None => listed(self::mappings(&procfs::smaps(pid)?, None)?.into())?,
    };
    if regions.list.iter().any(|(_, content)| *content == Content::All) {
        return Ok(Err("a file that it has mapped is gone and must be stored whole"));
    }
    let own = page_sort::own(&mut pagemap, &regions, |_, _| false)?;
    let index = changes.base.as_ref().map(|base| &base.index);
    // What was stored ahead is sorted later.
    let sorted = (!changes.hash && ahead.is_none())
        .then(|| page_sort::sort(own.clone(), &regions, changes.pages.as_ref(), index));
    let spans = page_sort::all(sorted.as_ref().map_or(&own, |sorted| &sorted.take));
    let spans = match ahead {
        Some(ahead) => spans.without(ahead.covered()),
        None => spans,
    };
    if spans.bytes() > MAX_COPY_BYTES {
        return Ok(Err("there is more to store than may be copied"));
    }
    Ok(Ok(CopyPlan { pagemap, regions, maps, own, sorted, spans }))
}

/// Regions, and what they were made of.
type Found = (Regions, Pending);

fn listed(maps: Pending, anonymous: AnonymousObjects) -> Result<Found, CaptureError> {
    Ok((Regions::of(&maps.maps, anonymous)?, maps))
}

/// Copies it.
fn copy(
    plan: CopyPlan,
    pid: libc::pid_t,
    state: State,
    tracker: &mut Tracker,
) -> Result<Stage, CaptureError> {
    let CopyPlan { pagemap, regions, maps, own, sorted, spans } = plan;
    tracker.make_room(spans.bytes());
    let begun = Instant::now();
    let pages = Copied::new(pid, &spans, std::mem::take(&mut tracker.buffer))?;
    tracker.cost.copied(spans.bytes(), begun.elapsed());
    for page in pages.missing() {
        let region = regions.list.iter().find(|(r, _)| (r.start..r.end).contains(&page));
        let legible = region.is_some_and(|(r, _)| r.prot & libc::PROT_READ as u32 != 0);
        if !legible && !pagemap.is_guard(page)? {
            return Err(illegible(page));
        }
    }
    fault::point(fault::PAGES_COPIED)?;
    let outline = Box::new(Outline { state, regions, maps });
    Ok(Stage::Copied { outline, own, sorted, pages })
}

/// Asks for the rest of the state, in the name of `source`, the process or its twin.
pub(crate) fn state(
    pid: libc::pid_t,
    frozen_state: FrozenState,
    agent: &Agent,
    source: libc::pid_t,
) -> Result<State, CaptureError> {
    process_state::twin_state(pid, frozen_state, agent, source).inspect_err(|_| {
        // The error is what counts; a process that is gone has nothing to be given back.
        let _ = agent.finish();
    })
}

/// The mappings of a process that stands still, by its `smaps`; or of its twin, given what only its
/// own mappings tell and those that the twin lacks.
pub(crate) fn mappings(
    smaps: &[u8],
    twin: Option<(&[Mapping], &[Mapping])>,
) -> Result<Vec<Mapping>, CaptureError> {
    let mut maps = procfs::parse_maps(smaps)?;
    if let Some((own, dont_fork)) = twin {
        for m in &mut maps {
            let Ok(i) = own.binary_search_by_key(&m.start, |o| o.start) else { continue };
            // A twin does not inherit locks.
            m.vm_flags.extend(own[i].vm_flags.iter().filter(|f| [b"lo", b"lf"].contains(f)));
        }
        maps.extend_from_slice(dont_fork);
        maps.sort_by_key(|m| m.start);
    }
    maps.iter_mut().for_each(smaps::forget_tracking);
    Ok(maps)
}

impl Snapshot {
    /// How the content of the process is kept, and why so.
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// How much of its memory was copied at the freeze, if all was that is to be stored of it.
    pub fn copied_bytes(&self) -> Option<u64> {
        let alone = self.children.is_empty();
        let own = self.stage.as_ref().filter(|_| alone).and_then(Stage::copied_bytes);
        own.zip(self.shared.copied_bytes()).map(|(own, shared)| own + shared)
    }

    /// Whether shared memory of it, or of its children, has to be stored while it stands still.
    pub(crate) fn must_stand(&self) -> bool {
        self.shared.must_stand() || self.children.iter().any(Snapshot::must_stand)
    }
}
