//! What a caller keeps of a process from one image to the next, so that the next stores only what
//! has changed.
//!
//! Changed pages are found in one of two ways, chosen at run time: the kernel notes writes
//! ([`crate::kernel::written_pages`], Linux 6.7), or all pages are hashed and held against the last
//! image ([`crate::write::page_hashes`], any kernel).

use crate::capture::cost::{Choice, Cost, Load, MAX_COPY_BYTES, Mode};
use crate::capture::image_precopy::Ahead;
use crate::capture::process_state::FrozenState;
use crate::error::CaptureError;
use crate::kernel::procfs::Mapping;
use crate::kernel::remote_calls::Agent;
use crate::kernel::smaps::Pending;
use crate::kernel::written_pages::{Obstacle, Writes};
use crate::resources::files::stored::DEFAULT_LIMIT_BYTES;
use crate::resources::files::watch::Watch;
use crate::write::object_hashes::Held;
use crate::write::page_hashes::Hashes;
use crate::write::pool::{Lent, Member, Pool};
use eyrie_image_format::read::chain::Index;
use eyrie_image_format::read::frame::Part;
use eyrie_image_format::support::spans::Spans;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The part of a tracked process's memory that is kept ready for copies, as a divisor.
const READY_SHARE: u64 = 32;

/// After so many vain tries to store pages ahead the next ones come no more seldom: each 64th.
const MAX_VAIN: u32 = 6;

/// Memory of a process from which on a twin takes so long that pages are stored ahead.
const AHEAD_BYTES: u64 = 256 << 20;

/// How changes are to be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tracking {
    /// The first of the following that works here.
    #[default]
    Auto,
    /// The kernel notes writes; hashes where it does not.
    WriteProtect,
    /// All pages are hashed.
    Hash,
    /// Not at all: every image is full.
    Off,
}

impl Tracking {
    /// What `EYRIE_IMAGE_TRACKING` (`auto`, `wp`, `hash`, `off`) asks for, for tests; else `Auto`.
    pub fn from_env() -> Tracking {
        match std::env::var("EYRIE_IMAGE_TRACKING").as_deref() {
            Ok("wp") => Tracking::WriteProtect,
            Ok("hash") => Tracking::Hash,
            Ok("off") => Tracking::Off,
            _ => Tracking::Auto,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Tracking::Auto => "undecided",
            Tracking::WriteProtect => "write protection",
            Tracking::Hash => "page hashes",
            Tracking::Off => "off",
        }
    }
}

/// When pages of an image are stored while its process still runs ([`crate::Ahead`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StoreAhead {
    /// When that spares the process a long pause.
    #[default]
    Auto,
    /// Whenever it can be done.
    Always,
    /// Not at all.
    Never,
}

impl StoreAhead {
    /// What `EYRIE_IMAGE_AHEAD` (`auto`, `always`, `never`) asks for, for tests; else `Auto`.
    pub fn from_env() -> StoreAhead {
        match std::env::var("EYRIE_IMAGE_AHEAD").as_deref() {
            Ok("always") => StoreAhead::Always,
            Ok("never") => StoreAhead::Never,
            _ => StoreAhead::Auto,
        }
    }
}

/// What is known of the last image of a process, and of what it has done since. One for each
/// process; the first image with it is full.
#[derive(Debug, Default)]
pub struct Tracker {
    wish: Tracking,
    /// Why pages are hashed although the kernel was to note writes.
    obstacle: Option<Obstacle>,
    writes: Writes,
    base: Option<Arc<Base>>,
    freezes: u64,
    frozen: Option<Instant>,
    pub(crate) cost: Cost,
    /// Whether the last snapshot was a copy.
    pub(crate) copied: bool,
    /// Where it lends and borrows pages.
    pub(crate) member: Option<Member>,
    /// The last full image, ready to be lent.
    pub(crate) offered: Option<Lent>,
    /// Memory for copies, kept so that it need not be had anew while a process stands still.
    pub(crate) buffer: Vec<u8>,
    /// Its mappings at the last image, with their flags.
    pub(crate) maps: Vec<Mapping>,
    /// How much of it would have been of use at the last freeze, if there was not enough.
    wanted: u64,
    ahead: StoreAhead,
    outrun: Outrun,
    /// The same of shared memory.
    outrun_shared: Outrun,
    /// Those of the process's children, by number and start, and whether they are of use.
    children: BTreeMap<(libc::pid_t, u64), Tracker>,
    follows: bool,
    /// Most bytes stored of a file that the process writes to; 0: none is noted.
    pub(crate) files_limit: u64,
    /// What tells which files the process writes to without having them open.
    pub(crate) watch: Option<Arc<Watch>>,
}

/// How often in a row it was in vain to store pages ahead, and how often not to try it now.
#[derive(Debug, Default)]
struct Outrun {
    vain: u32,
    waits: u32,
}

impl Outrun {
    /// Whether to try it now. Counts as a try.
    fn may_try(&mut self) -> bool {
        let waits = self.waits;
        self.waits = waits.saturating_sub(1);
        waits == 0
    }

    /// Whether it was of use. Where it was not, it is tried more and more seldom.
    fn tried(&mut self, well: bool, always: bool) {
        self.vain = if well { 0 } else { (self.vain + 1).min(MAX_VAIN) };
        self.waits = if well || always { 0 } else { 1 << self.vain };
    }
}

/// A complete image that later ones may refer to.
#[derive(Debug)]
pub(crate) struct Base {
    pub folder: PathBuf,
    pub index: Index,
    pub hashes: Option<Hashes>,
    /// What of it is shared memory.
    pub shared: Option<Held>,
    freeze: u64,
}

/// What has changed at one freeze.
#[derive(Debug)]
pub(crate) struct Changes {
    /// Number of the freeze.
    pub freeze: u64,
    /// What has changed since the last complete image, as far as that is known already.
    pub pages: Option<Spans>,
    /// Whether it is to be found by hashing.
    pub hash: bool,
    /// The last complete image, if the new one may refer to it.
    pub base: Option<Arc<Base>>,
}

impl Tracker {
    /// Nothing is known yet.
    pub fn new(wish: Tracking) -> Tracker {
        let (ahead, files_limit) = (StoreAhead::from_env(), DEFAULT_LIMIT_BYTES);
        Tracker { wish, ahead, files_limit, ..Tracker::default() }
    }

    /// Of a file that the process writes to so many bytes are stored at most, so that a restore can
    /// put it back ([`crate::Files`]); 0: none is noted.
    pub fn keep_files(&mut self, limit_bytes: u64) {
        self.files_limit = limit_bytes;
    }

    /// Says when pages are stored ahead of freezes ([`crate::Ahead`]).
    pub fn store_ahead(&mut self, when: StoreAhead) {
        self.ahead = when;
    }

    /// Has images of child processes refer to their earlier ones, too; else these are full. Whoever
    /// keeps an image then keeps those of the children of earlier ones ([`ImageReport::ancestors`]
    /// names them), which [`Image::needs`] does not tell.
    ///
    /// [`ImageReport::ancestors`]: crate::ImageReport::ancestors
    /// [`Image::needs`]: crate::Image::needs
    pub fn follow_children(&mut self) {
        self.follows = true;
    }

    /// Files that the process, or one that it started, was seen writing to are noted at its images
    /// like those that it has open. It has to be one that is followed.
    pub fn watch(&mut self, watch: Arc<Watch>) {
        self.watch = Some(watch);
    }

    /// That of a child.
    pub(crate) fn child(&mut self, process: (libc::pid_t, u64)) -> &mut Tracker {
        let (wish, follows) = (if self.follows { self.wish } else { Tracking::Off }, self.follows);
        let new = || Tracker { wish, follows, ahead: StoreAhead::Never, ..Tracker::default() };
        self.children.entry(process).or_insert_with(new)
    }

    /// No other children are left.
    pub(crate) fn keep_children(&mut self, left: &[(libc::pid_t, u64)]) {
        self.children.retain(|process, _| left.contains(process));
    }

    /// The next image is full.
    pub(crate) fn begin_anew(&mut self) {
        self.base = None;
    }

    /// Makes it member `number` of a pool: full images then refer to those of other members where
    /// these hold the same.
    pub fn join(&mut self, pool: &Arc<Pool>, number: u32) {
        self.member = Some(Member { pool: Arc::clone(pool), number });
    }

    /// Lends the last image to the other members of its pool if it is a full one: to be called when
    /// it is sure to stay. Until [`Pool::withdraw`] its file must not go away.
    pub fn lend(&mut self) {
        if let (Some(member), Some(lent)) = (&self.member, self.offered.take()) {
            member.pool.lend(lent);
        }
    }

    /// How changes are found, as far as that is decided.
    pub fn method(&self) -> Tracking {
        match self.wish {
            Tracking::Auto | Tracking::WriteProtect if self.obstacle.is_some() => Tracking::Hash,
            Tracking::Auto if self.writes.is_on() => Tracking::WriteProtect,
            wish => wish,
        }
    }

    /// Why pages are hashed although the kernel was to note writes.
    pub fn obstacle(&self) -> Option<&str> {
        self.obstacle.as_ref().map(|o| o.0.as_str())
    }

    /// Forgets process and images, but not what was learned about the machine, and frees memory:
    /// to be called when the process has ended, or an image turned out to be damaged. The next
    /// image is full.
    pub fn restart(&mut self) {
        self.writes = Writes::default();
        self.base = None;
        self.offered = None;
        self.buffer = Vec::new();
        self.maps.clear();
        self.children.clear();
    }

    /// The last complete image and the names of the earlier files that it needs.
    pub(crate) fn base(&self) -> Option<&Arc<Base>> {
        self.base.as_ref()
    }

    /// Whether the last image is the last that was begun.
    pub(crate) fn is_idle(&self) -> bool {
        self.base.as_ref().is_some_and(|b| b.freeze == self.freezes)
    }

    /// At a freeze: what has changed. From here on changes belong to the next one.
    pub(crate) fn freeze(
        &mut self,
        pid: libc::pid_t,
        frozen_state: &FrozenState,
        agent: &Agent,
        path: Option<&Path>,
    ) -> Result<Changes, CaptureError> {
        self.freezes += 1;
        let freeze = self.freezes;
        let base = path.and_then(|path| self.base_of(path)).cloned();
        let mut hash = matches!(self.method(), Tracking::Hash);
        let mut pages = None;
        if !hash && self.wish != Tracking::Off {
            match self.writes.freeze(pid, &frozen_state.maps, agent, freeze)? {
                Ok(changed) => pages = Some(changed),
                Err(obstacle) => {
                    self.obstacle = Some(obstacle);
                    self.base = None;
                    hash = true;
                }
            }
        }
        let base = base.filter(|base| pages.is_some() || hash && base.hashes.is_some());
        Ok(Changes { freeze, pages, hash, base })
    }

    /// What was found to have changed at the last freeze, since it was last looked.
    pub(crate) fn newest_writes(&self) -> Spans {
        self.writes.newest().cloned().unwrap_or_default()
    }

    /// Whether pages of the image `path` of a process with so much memory may be stored while that
    /// runs. Counts as a try.
    pub(crate) fn may_go_ahead(&mut self, path: &Path, own_bytes: u64) -> bool {
        if self.ahead == StoreAhead::Never || !self.always_ahead() && own_bytes < AHEAD_BYTES {
            return false;
        }
        if !self.outrun.may_try() {
            return false;
        }
        let noted = matches!(self.wish, Tracking::Auto | Tracking::WriteProtect);
        noted && self.obstacle.is_none() && !self.may_borrow(path)
    }

    /// Whether the image `path` may turn out to be that of another process for the most part: a
    /// full one. What is stored ahead is neither lent nor borrowed.
    fn may_borrow(&self, path: &Path) -> bool {
        let may_pay = self.member.as_ref().is_some_and(|member| member.pool.may_pay());
        may_pay && self.base_of(path).is_none()
    }

    /// Whether that is to be done also where it gains nothing.
    pub(crate) fn always_ahead(&self) -> bool {
        self.ahead == StoreAhead::Always
    }

    /// Whether that was of use.
    pub(crate) fn went_ahead(&mut self, well: bool) {
        self.outrun.tried(well, self.ahead == StoreAhead::Always);
    }

    /// Whether shared memory may be stored in the image `path` while the process runs. That needs
    /// no word of the kernel's. Counts as a try.
    pub(crate) fn may_store_shared(&mut self, path: &Path) -> bool {
        let may = self.tracks() && self.ahead != StoreAhead::Never && !self.may_borrow(path);
        may && self.outrun_shared.may_try()
    }

    /// Whether that was of use.
    pub(crate) fn stored_shared(&mut self, well: bool) {
        self.outrun_shared.tried(well, self.ahead == StoreAhead::Always);
    }

    /// Whether images may refer to earlier ones.
    pub(crate) fn tracks(&self) -> bool {
        self.wish != Tracking::Off
    }

    /// Whether the writes of a process are noted already.
    pub(crate) fn notes_writes_of(&self, pid: libc::pid_t) -> bool {
        self.writes.is_on() && self.writes.is_of(pid)
    }

    /// Has them noted, of a process that stands still. Pages that are there count as written.
    pub(crate) fn begin_to_note(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
        agent: &Agent,
    ) -> Result<(), CaptureError> {
        match self.writes.begin(pid, maps, agent)? {
            Ok(()) => Ok(()),
            // The freeze will say so.
            Err(obstacle) => Err(CaptureError::Unsupported(obstacle.0)),
        }
    }

    /// While the process runs, before a freeze: what was written since it was last looked.
    pub(crate) fn written_ahead(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
    ) -> Result<Spans, CaptureError> {
        // What was taken by a look that failed is not told again: all counts as changed then.
        let found = self.writes.running(pid, maps).inspect_err(|_| {
            self.writes = Writes::default();
        });
        let found = found?;
        self.writes.note(self.freezes + 1, found.clone());
        Ok(found)
    }

    /// Whether more than so much of what is mapped is not watched yet: then it is to be stopped
    /// for that.
    pub(crate) fn much_is_new(&self, bytes: u64) -> bool {
        let new = self.writes.unwatched_bytes();
        new > bytes || new > 0 && self.always_ahead()
    }

    /// Watches it, of a process that stands still.
    pub(crate) fn watch_new(
        &mut self,
        pid: libc::pid_t,
        maps: &[Mapping],
    ) -> Result<(), CaptureError> {
        self.writes.watch_new(pid, maps)
    }

    /// All that was found to have changed since the last complete image.
    pub(crate) fn changed(&self) -> Spans {
        self.writes.changed()
    }

    /// Whether so much would be copied at the freeze.
    pub(crate) fn would_copy(&self, own_bytes: u64, changed_bytes: u64) -> bool {
        let load = Load { own_bytes, changed_bytes, ready_bytes: changed_bytes, interval: None };
        self.cost.choose(Mode::Auto, &load).mode == Mode::Copy
    }

    /// How many bytes were written since the last image, with all that is no part of it, if these
    /// would be copied at the freeze, and the freeze knows the flags of all mappings `now`.
    pub(crate) fn little(&self, now: &[Mapping], own_bytes: u64) -> Option<u64> {
        if self.always_ahead() {
            return None;
        }
        let bytes = self.changed().bytes();
        let copied = self.would_copy(own_bytes, bytes) && Pending::is_known(now, &self.maps);
        copied.then_some(bytes)
    }

    /// The last complete image, if the image `path` may refer to it.
    pub(crate) fn base_of(&self, path: &Path) -> Option<&Arc<Base>> {
        self.base.as_ref().filter(|base| base.serves(path))
    }

    /// Whether the next snapshot may be a copy.
    pub(crate) fn may_copy(&self, wish: Mode) -> bool {
        matches!(wish, Mode::Copy | Mode::Auto) && self.base.is_some()
    }

    /// Whether that is likely.
    pub(crate) fn expects_copy(&self, wish: Mode) -> bool {
        self.may_copy(wish) && (wish == Mode::Copy || self.copied)
    }

    /// Which way of keeping the content of a frozen process costs it least.
    pub(crate) fn choose(
        &mut self,
        wish: Mode,
        own_bytes: u64,
        changes: &Changes,
        ahead: Option<&Ahead>,
    ) -> Choice {
        let changed = changes.pages.as_ref().filter(|_| changes.base.is_some());
        let covered = ahead.map(|ahead| ahead.covered().bytes());
        let left = match (covered, changed) {
            (Some(covered), _) => own_bytes.saturating_sub(covered),
            (None, Some(pages)) => pages.bytes(),
            (None, None) => own_bytes,
        };
        let interval = self.frozen.replace(Instant::now()).map(|last| last.elapsed());
        let load = Load {
            own_bytes,
            changed_bytes: left.min(own_bytes),
            ready_bytes: self.buffer.len() as u64,
            interval,
        };
        // A process that is tracked will have something to be copied, also after its first image;
        // hardly anything if so much changes that it is stored ahead, of which a full image says
        // nothing.
        let tracked = self.writes.is_on() && (ahead.is_none() || changes.base.is_none());
        let copies = tracked && matches!(wish, Mode::Copy | Mode::Auto);
        let share = if copies { own_bytes / READY_SHARE } else { 0 };
        let lacks = wish == Mode::Auto && changed.is_some() && self.cost.lacks_memory(&load);
        self.wanted = if lacks { load.changed_bytes + load.changed_bytes / 4 } else { share };
        let mut choice = self.cost.choose(wish, &load);
        if ahead.is_some() {
            choice.why.push_str("; the rest was stored while it ran");
        }
        choice
    }

    /// Sees that there is memory for a copy of so many bytes.
    pub(crate) fn make_room(&mut self, bytes: u64) {
        let grown = bytes.saturating_sub(self.buffer.len() as u64);
        if grown > 0 {
            let begun = Instant::now();
            self.buffer.resize(bytes as usize, 0);
            self.cost.grown(grown, begun.elapsed());
        }
    }

    /// Has the memory that was missing at the last freeze for the next one. To be called while the
    /// process runs, when its image is there: it takes a few ms for 10 MiB. Without it the next
    /// freeze may find that a twin costs less than a copy.
    pub fn prepare(&mut self) {
        let wanted = std::mem::take(&mut self.wanted).min(MAX_COPY_BYTES);
        self.make_room(wanted);
    }

    /// The image of a freeze is complete, and of what mappings.
    pub(crate) fn imaged(
        &mut self,
        freeze: u64,
        path: &Path,
        maps: Vec<Mapping>,
        (index, hashes, shared): (Index, Option<Hashes>, Option<Held>),
    ) {
        let newer = self.base.as_ref().is_none_or(|base| base.freeze < freeze);
        if self.wish == Tracking::Off || !newer {
            return;
        }
        self.writes.imaged(freeze);
        self.maps = maps;
        let folder = folder(path).to_path_buf();
        self.base = Some(Arc::new(Base { folder, index, hashes, shared, freeze }));
    }

    /// The last image was rewritten without changing what it holds.
    pub(crate) fn rewritten(&mut self, index: Index) {
        let Some(base) = self.base.take() else { return };
        let Base { folder, hashes, shared, freeze, .. } = match Arc::try_unwrap(base) {
            Ok(base) => base,
            // Somebody still writes an image that refers to the old file.
            Err(_) => return,
        };
        self.base = Some(Arc::new(Base { folder, index, hashes, shared, freeze }));
    }
}

/// The folder of a file.
pub(crate) fn folder(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

impl Base {
    /// What of it is shared memory, and where it has its pages.
    pub(crate) fn shared(&self) -> Option<(&Held, &Index)> {
        self.shared.as_ref().map(|held| (held, &self.index))
    }

    /// Whether an image `path` may refer to it: same folder, another name than all it needs, and
    /// all of that still there.
    fn serves(&self, path: &Path) -> bool {
        let name = path.file_name().unwrap_or_default().as_bytes();
        folder(path) == self.folder
            && self.index.files().iter().all(|known| {
                let part = self.folder.join(OsStr::from_bytes(&known.file.name));
                known.file.name != name
                    && Part::open(&part).is_ok_and(|part| part.identity == known.file.identity)
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_stored_ahead_more_seldom_where_that_was_in_vain() {
        let mut tracker = Tracker::new(Tracking::Auto);
        tracker.store_ahead(StoreAhead::Auto);
        let path = Path::new("image");
        assert!(!tracker.may_go_ahead(path, AHEAD_BYTES - 1));
        let mut tried = 0;
        for _ in 0..1000 {
            if tracker.may_go_ahead(path, AHEAD_BYTES) {
                tracker.went_ahead(false);
                tried += 1;
            }
        }
        assert_eq!(tried, 6 + (1000 - (6 + 2 + 4 + 8 + 16 + 32)) / 65);
        while !tracker.may_go_ahead(path, AHEAD_BYTES) {}
        tracker.went_ahead(true);
        assert!((0..9).all(|_| tracker.may_go_ahead(path, AHEAD_BYTES)));
    }

    #[test]
    fn without_the_kernels_word_about_writes_nothing_is_stored_ahead() {
        for wish in [Tracking::Hash, Tracking::Off] {
            let mut tracker = Tracker::new(wish);
            tracker.store_ahead(StoreAhead::Always);
            assert!(!tracker.may_go_ahead(Path::new("image"), u64::MAX));
        }
    }

    #[test]
    fn little_that_is_in_known_mappings_is_left_to_the_freeze() {
        let text = b"1000000-9000000 rw-p 00000000 00:00 0\n";
        let now = crate::kernel::procfs::parse_maps(text).unwrap();
        let mut tracker = Tracker::new(Tracking::Auto);
        tracker.store_ahead(StoreAhead::Auto);
        let span = |mib: u64| {
            let mut spans = Spans::default();
            spans.push(0x100_0000, 0x100_0000 + (mib << 20));
            spans
        };
        tracker.writes.note(1, span(1));
        assert_eq!(tracker.little(&now, 1 << 30), None, "nobody knows their flags");
        tracker.maps = now.clone();
        assert_eq!(tracker.little(&now, 1 << 30), Some(1 << 20));
        tracker.store_ahead(StoreAhead::Always);
        assert_eq!(tracker.little(&now, 1 << 30), None);
        tracker.store_ahead(StoreAhead::Auto);
        tracker.writes.note(2, span(60));
        assert_eq!(tracker.little(&now, 1 << 30), None, "that is not little");
    }
}
