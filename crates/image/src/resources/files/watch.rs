//! Which files programs write to that they do not keep open: a script's `>> log`, a file that is
//! opened anew for each line; and which files and folders they make
//! ([`crate::resources::files::created`]). The kernel tells of it (fanotify), with the process that
//! did it to those who may administer the system, and without it to others, who go by what they see
//! ([`crate::resources::files::attribution`]).
//!
//! Watched are the folders in which programs work, those below, and those of files that they have
//! open; one that is made later is watched as soon as the kernel tells of it. Nobody waits for us;
//! a process that is gone before it is looked at, as `mkdir` and `mv` of a script are, is known if
//! the kernel told who began it ([`crate::resources::files::families`]), or if it was seen when it
//! opened the file. What a child of ours does before it is said to be a program waits until then.
//!
//! Kept true: a file is only taken for a program's own if a process of that program was seen
//! writing to it, or moved it there, or made its folder so shortly before that nothing was seen of
//! that folder yet, or if it got its name from one that was, or if a process of which nothing is
//! known did that where this program alone works; one that others were seen writing to, or of which
//! it is not known who did, is told apart.

use crate::kernel::fanotify::{
    self, DFID_NAME, EVENT_BYTES, NEW_DFID_NAME, OLD_DFID_NAME, handle_of, number,
};
use crate::kernel::time::now;
use crate::resources::clocks;
use crate::resources::files::attribution::{Guess, Whose, whose};
use crate::resources::files::created::{Birth, Made, Notes, SOMEBODY};
use crate::resources::files::families::{Families, REMEMBERED};
use crate::resources::files::touches::{Touch, touch_of};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const BUFFER_BYTES: usize = 1 << 16;
/// Folders that are watched for a program, and how far below the one in which it works.
const MAX_FOLDERS: usize = 256;
const MAX_DEPTH: usize = 4;
/// Folders that are watched in all.
const MAX_WATCHED: usize = 4096;
/// For how long a thread waits for word at a time.
const WAIT_MS: i32 = 1000;
/// What children of ours did that are no programs yet.
const MAX_EARLY: usize = 1024;
/// Files that are remembered.
const MAX_FILES: usize = 4096;
/// A folder whose folders were looked for is not looked through again for so long: what comes
/// meanwhile is told.
const LOOKED: Duration = Duration::from_secs(1);

/// The last file that got another name, what was known of it, and of what had that name.
#[derive(Debug)]
struct Renamed {
    from: PathBuf,
    to: PathBuf,
    own: (Option<Birth>, Option<Touch>),
    replaced: (Option<Birth>, Option<Touch>),
}

impl Renamed {
    /// Whether this is the same the other way round, and both are there: they have changed places.
    fn is_turned(&self, before: &Path, after: &Path) -> bool {
        let there = |path: &Path| fs::symlink_metadata(path).is_ok();
        (before, after) == (&self.to, &self.from) && there(before) && there(after)
    }
}

/// A folder that has come.
#[derive(Debug)]
struct Folder {
    path: PathBuf,
    /// The program that made it, if one did.
    made_by: Option<libc::pid_t>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Folders by their handles.
    folders: HashMap<Vec<u8>, PathBuf>,
    /// Folders that were looked through, and when.
    looked: HashMap<PathBuf, Instant>,
    /// First processes of programs, and where they work.
    roots: BTreeMap<libc::pid_t, PathBuf>,
    files: BTreeMap<PathBuf, Touch>,
    /// Names that are gone, of what had been there before, and who took them away.
    gone: BTreeMap<PathBuf, Touch>,
    made: Made,
    /// What was made and had another name before it was looked at: by whom, and whether that is
    /// guessed.
    unseen: BTreeMap<PathBuf, (libc::pid_t, bool)>,
    notes: Option<Notes>,
    renamed: Option<Renamed>,
    /// What children of ours did.
    early: VecDeque<(libc::pid_t, Vec<u8>)>,
    /// The kernel says who it was.
    told: bool,
    /// Where it does not.
    guess: Guess,
    /// Where nothing is looked at, with all that is below: what is ours there we write.
    ours: Vec<PathBuf>,
    /// Whose processes were, and when.
    known: HashMap<libc::pid_t, (libc::pid_t, Instant)>,
    /// Whose children they are.
    families: Families,
}

/// What programs of this machine write to.
#[derive(Debug)]
pub struct Watch {
    fd: OwnedFd,
    seen: Mutex<Seen>,
}

/// A file that a program was seen writing to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Touched {
    /// Its path.
    pub path: PathBuf,
    /// Others were seen writing to it, too.
    pub shared: bool,
    /// It is not known of all who did.
    pub unknown: bool,
    /// It is a folder, a link or a named pipe, which the program made.
    pub folder: bool,
}

impl Watch {
    /// Begins; `None` where the kernel does not tell.
    pub fn begin() -> Option<Watch> {
        let (fd, told) = fanotify::init()?;
        let families = if told { Families::begin() } else { Families::default() };
        let seen = Seen { made: Made::new(), told, families, ..Seen::default() };
        Some(Watch { fd, seen: Mutex::new(seen) })
    }

    /// Begins, and has a thread take what is told until nobody else has the watch any more.
    pub fn start() -> Option<Arc<Watch>> {
        let watch = Arc::new(Watch::begin()?);
        let weak = Arc::downgrade(&watch);
        let run = move || {
            while let Some(watch) = weak.upgrade() {
                watch.take(WAIT_MS);
            }
        };
        std::thread::Builder::new().name("watch".into()).spawn(run).ok()?;
        Some(watch)
    }

    /// What the program makes is noted in a file, too, which may have been begun before
    /// ([`Made::read`]).
    pub fn note(&self, root: libc::pid_t, notes: &Path) -> io::Result<()> {
        let mut seen = self.seen();
        seen.notes = Some(Notes::open(notes, &mut seen.made, root)?);
        Ok(())
    }

    /// As in a container, where the kernel does not tell whose children processes are.
    #[cfg(test)]
    pub(crate) fn without_families(&self) {
        self.seen().families = Families::default();
    }

    /// Looks at the folder in which a program will work, so that nothing is missed of it.
    pub fn will_be_in(&self, folder: &Path) {
        self.below(folder);
    }

    /// Looks at nothing in a folder of Eyrie's own: it may lie where a program works, and who
    /// writes there is no program.
    pub fn leave_out(&self, folder: &Path) {
        let folder = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_path_buf());
        self.seen().ours.push(folder);
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a program that works where we do. What it does at once is known to be its own.
    pub fn begin_program(
        &self,
        start: impl FnOnce() -> io::Result<libc::pid_t>,
    ) -> io::Result<libc::pid_t> {
        // Nothing is taken in meanwhile.
        let mut seen = self.seen();
        let root = start()?;
        seen.roots.insert(root, cwd_of(root));
        seen.families.add(root);
        Ok(root)
    }

    /// A program has begun, or came back with files that it had written to, and folders that it had
    /// made.
    pub fn follow(&self, root: libc::pid_t, files: &[PathBuf]) {
        let mut seen = self.seen();
        seen.roots.insert(root, cwd_of(root));
        seen.families.add(root);
        for file in files {
            match fs::symlink_metadata(file).is_ok_and(|meta| !meta.is_file()) {
                true => seen.make(file, root, false),
                false => drop(seen.files.entry(file.clone()).or_default().by.insert(root)),
            }
        }
        let (own, early) = seen.early.drain(..).partition(|(child, _)| *child == root);
        seen.early = early;
        let own: VecDeque<(libc::pid_t, Vec<u8>)> = own;
        let events: Vec<u8> = own.into_iter().flat_map(|(_, event)| event).collect();
        seen.take_in(self.fd.as_raw_fd(), &events);
        drop(seen);
        self.look(root);
        files.iter().filter_map(|f| f.parent()).for_each(|folder| self.add(folder));
    }

    /// What these programs wrote to, moved and took away, also if it is not there any more; shared
    /// if others did so, too.
    pub(crate) fn changed_by(&self, programs: &BTreeSet<libc::pid_t>) -> Vec<Touched> {
        self.changes_of(programs).into_iter().map(|(touched, _)| touched).collect()
    }

    /// The same, and the time of day in ns when that name was first changed.
    pub(crate) fn changes_of(&self, programs: &BTreeSet<libc::pid_t>) -> Vec<(Touched, i64)> {
        self.take(0);
        let seen = self.seen();
        let mut all = seen.gone.clone();
        for (path, touch) in &seen.files {
            touch_of(&mut all, path, touch.clone());
        }
        all.retain(|_, touch| !touch.by.is_disjoint(programs));
        let of = |(path, touch): (PathBuf, Touch)| {
            let shared = touch.others || touch.unknown || !touch.by.is_subset(programs);
            (Touched { path, shared, unknown: touch.unknown, folder: false }, touch.since_ns)
        };
        all.into_iter().map(of).collect()
    }

    /// What these programs made, and no other has used; and what came where they work, of which it
    /// is not known who made it.
    pub(crate) fn made_by(&self, programs: &BTreeSet<libc::pid_t>) -> Made {
        self.take(0);
        self.seen().made.of_all(programs)
    }

    /// What these programs did counts no more, but where others did so, too; and what `was_there`
    /// has its name again, and was not made.
    pub(crate) fn forget(
        &self,
        programs: &BTreeSet<libc::pid_t>,
        was_there: impl Iterator<Item = PathBuf>,
    ) {
        self.take(0);
        let mut seen = self.seen();
        was_there.for_each(|path| {
            seen.made.remove(&path);
        });
        let Seen { files, gone, .. } = &mut *seen;
        for touches in [files, gone] {
            touches.retain(|_, touch| {
                touch.others |= !touch.by.is_disjoint(programs) && !touch.by.is_subset(programs);
                touch.by.retain(|by| !programs.contains(by));
                touch.others || touch.unknown || !touch.by.is_empty()
            });
        }
    }

    /// What has these names is what it was before programs were seen changing it.
    pub fn undone(&self, paths: &[PathBuf]) {
        let mut seen = self.seen();
        for path in paths {
            seen.gone.remove(path);
            seen.files.remove(path);
            seen.made.remove(path);
        }
    }

    /// Looks for folders that are new to it.
    pub fn look(&self, root: libc::pid_t) {
        let Ok(cwd) = fs::read_link(format!("/proc/{root}/cwd")) else { return };
        self.seen().roots.entry(root).and_modify(|at| at.clone_from(&cwd));
        for fd in fs::read_dir(format!("/proc/{root}/fd")).into_iter().flatten().flatten() {
            let file = fs::read_link(fd.path()).ok().filter(|file| file.is_absolute());
            let folder = file.as_deref().and_then(Path::parent).map(Path::to_path_buf);
            let skipped = ["/proc", "/sys", "/dev", "/usr"];
            let is_skipped = |f: &PathBuf| skipped.iter().any(|begin| f.starts_with(begin));
            folder.filter(|f| !is_skipped(f)).iter().for_each(|folder| self.add(folder));
        }
        self.below(&cwd);
    }

    fn below(&self, folder: &Path) {
        // Ranks of one node start where the others do.
        if !self.seen().is_to_be_looked_through(folder, Instant::now()) {
            return;
        }
        let mut folders = vec![(folder.to_path_buf(), 0)];
        let mut left = MAX_FOLDERS;
        while let Some((folder, depth)) = folders.pop() {
            if left == 0 {
                return;
            }
            left -= 1;
            self.add(&folder);
            if depth == MAX_DEPTH {
                continue;
            }
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten().take(MAX_FILES) {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    folders.push((entry.path(), depth + 1));
                }
            }
        }
    }

    /// Watches a folder.
    fn add(&self, folder: &Path) {
        self.seen().add(self.fd.as_raw_fd(), folder);
    }

    /// Files that a program was seen writing to, and that are there.
    pub fn touched(&self, root: libc::pid_t) -> Vec<Touched> {
        // What is told already counts.
        self.take(0);
        let seen = self.seen();
        let of = |(path, touch): (&PathBuf, &Touch)| {
            let (path, shared, unknown) = (path.clone(), touch.is_shared(), touch.unknown);
            touch.by.contains(&root).then_some(Touched { path, shared, unknown, folder: false })
        };
        let folder = |path| Touched { path, shared: false, unknown: false, folder: true };
        let folders = seen.made.of(root).there().into_iter().filter(|made| !made.meta.is_file());
        let files = seen.files.iter().filter_map(of);
        files.chain(folders.map(|made| folder(made.path))).collect()
    }

    /// Waits until what a program, which stands still, has made can be told by its time from what
    /// it makes later: some milliseconds at most.
    pub(crate) fn settle(&self, root: libc::pid_t) {
        self.take(0);
        let newest = self.seen().made.newest(root);
        std::thread::sleep(clocks::until_told_apart(newest));
    }

    /// What a program, or one that it goes on from, was seen making, and no other has used.
    pub fn made(&self, root: libc::pid_t) -> Made {
        self.made_by(&BTreeSet::from([root]))
    }

    /// What a program that is gone wrote and made belongs to one that goes on from it.
    pub fn hand_on(&self, from: libc::pid_t, to: libc::pid_t) {
        self.take(0);
        let mut seen = self.seen();
        seen.made.hand_on(from, to);
        seen.roots.remove(&from);
        let Seen { files, gone, .. } = &mut *seen;
        for touch in files.values_mut().chain(gone.values_mut()) {
            if touch.by.remove(&from) {
                touch.by.insert(to);
            }
        }
    }

    /// Files that not one program alone was seen writing to.
    pub fn shared(&self) -> Vec<PathBuf> {
        self.take(0);
        let seen = self.seen();
        let shared = seen.files.iter().filter(|(_, touch)| touch.is_shared());
        shared.map(|(path, _)| path.clone()).collect()
    }

    /// Takes what the kernel tells; waits so long for it at most. To be called again and again by a
    /// thread of the caller's.
    pub fn take(&self, wait_ms: i32) {
        let fd = self.fd.as_raw_fd();
        let mut buffer = vec![0u8; BUFFER_BYTES];
        let mut wait = wait_ms;
        loop {
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            // SAFETY: one live entry.
            if unsafe { libc::poll(&raw mut poll, 1, wait) } <= 0 {
                // Or it would be too much some day.
                return self.seen().take_forks(Instant::now());
            }
            // Whoever holds this has the events in their order.
            let mut seen = self.seen();
            // SAFETY: one live entry.
            if unsafe { libc::poll(&raw mut poll, 1, 0) } <= 0 {
                return;
            }
            // SAFETY: a live buffer of this length.
            let n = unsafe { libc::read(fd, buffer.as_mut_ptr().cast(), buffer.len()) };
            if n <= 0 {
                return;
            }
            seen.take_in(fd, &buffer[..n as usize]);
            wait = 0;
        }
    }
}

impl Seen {
    fn take_forks(&mut self, now: Instant) {
        self.families.take(&self.roots, now);
    }

    /// Takes what is told.
    fn take_in(&mut self, fd: RawFd, mut rest: &[u8]) {
        let now = Instant::now();
        // All who did what is told here.
        self.take_forks(now);
        self.known.retain(|_, (_, at)| now.duration_since(*at) < REMEMBERED);
        let mut new = Vec::new();
        while let Some(length) = number(rest, 0, 4).map(|n| n as usize) {
            if length < EVENT_BYTES || length > rest.len() {
                break;
            }
            new.extend(self.event(&rest[..length], now));
            rest = &rest[length..];
        }
        new.into_iter().for_each(|new| self.discover(fd, new));
    }

    /// Returns a folder that is new.
    fn event(&mut self, event: &[u8], now: Instant) -> Option<Folder> {
        let (mask, pid) = (number(event, 8, 8)?, number(event, 20, 4)? as libc::pid_t);
        // Who looks into a folder changes nothing. All daemons do, in each other's sight.
        if mask & !(libc::FAN_OPEN | libc::FAN_ONDIR) == 0 && mask & libc::FAN_ONDIR != 0 {
            return None;
        }
        let path = fanotify::path(&self.folders, event, &[DFID_NAME, OLD_DFID_NAME, NEW_DFID_NAME]);
        let whose = self.whose(pid, path.as_deref(), mask, now);
        if let Whose::Early(child) = whose {
            self.early.push_back((child, event.to_vec()));
            let too_many = self.early.len() > MAX_EARLY;
            return too_many.then(|| self.early.pop_front()).and(None);
        }
        if mask & libc::FAN_RENAME != 0 {
            let before = fanotify::path(&self.folders, event, &[OLD_DFID_NAME]);
            before.iter().for_each(|before| self.went(before, whose));
            let after = fanotify::path(&self.folders, event, &[NEW_DFID_NAME]);
            match (mask & libc::FAN_ONDIR != 0, before, after) {
                (false, before, after) => self.renamed(before.as_deref(), after.as_deref()),
                (true, Some(before), Some(after)) => self.folder_renamed(&before, &after),
                (true, ..) => {}
            }
            return None;
        }
        let path = path?;
        if mask & libc::FAN_DELETE != 0 && fs::symlink_metadata(&path).is_err() {
            self.went(&path, whose);
            self.forget(&path);
            return None;
        }
        let comes = mask & (libc::FAN_CREATE | libc::FAN_MOVED_TO) != 0;
        match whose {
            Whose::Program(root) if comes => {
                self.make(&path, root, false);
                if mask & libc::FAN_CREATE != 0 {
                    self.name(&path);
                }
            }
            Whose::Program(root) => self.used(&path, root),
            Whose::Others => self.is_of_others(&path),
            Whose::Unknown if comes => self.may_be_made(&path),
            Whose::Unknown | Whose::Early(_) | Whose::Ours => {}
        }
        if mask & libc::FAN_ONDIR != 0 {
            let made_by = match whose {
                Whose::Program(root) if mask & libc::FAN_CREATE != 0 => Some(root),
                _ => None,
            };
            return comes.then_some(Folder { path, made_by });
        }
        if mask & (libc::FAN_CLOSE_WRITE | libc::FAN_MOVED_TO) != 0 {
            self.wrote(path, whose);
        }
        None
    }

    /// Whose a process is that has done something, also if it was seen before and is gone.
    fn whose(&mut self, pid: libc::pid_t, path: Option<&Path>, mask: u64, now: Instant) -> Whose {
        if pid == 0 && self.told {
            // It cannot be seen from here.
            return Whose::Others;
        }
        if pid == 0 {
            let writes = mask & (libc::FAN_CLOSE_WRITE | libc::FAN_CREATE | libc::FAN_OPEN) != 0;
            let path = path.filter(|_| writes && mask & libc::FAN_ONDIR == 0);
            let (guess, roots) = (&mut self.guess, &self.roots);
            return path.map_or(Whose::Unknown, |path| match mask {
                libc::FAN_OPEN => guess.who_opened(path, roots),
                _ => guess.who_has(path, roots),
            });
        }
        if let Some(root) = self.families.program_of(pid, &self.roots) {
            return Whose::Program(root);
        }
        match whose(pid, &self.roots) {
            Whose::Program(root) => {
                self.known.insert(pid, (root, now));
                Whose::Program(root)
            }
            Whose::Unknown => match self.known.get(&pid) {
                Some((root, _)) => Whose::Program(*root),
                None if self.families.are_complete(now) => {
                    self.families.child_of_ours(pid).map_or(Whose::Others, Whose::Early)
                }
                None => self.whose_alone(path),
            },
            // Who has lost its parent may have come to us.
            Whose::Early(child) => {
                let known = self.known.get(&pid);
                known.map_or(Whose::Early(child), |(root, _)| Whose::Program(*root))
            }
            whose @ (Whose::Others | Whose::Ours) => whose,
        }
    }

    /// A process that is gone before it could be looked at, and of which nothing was told, is the
    /// program's that alone works where it was.
    fn whose_alone(&mut self, path: Option<&Path>) -> Whose {
        let Some(path) = path.filter(|_| self.told) else { return Whose::Unknown };
        match self.guess.who_may(path, &self.roots) {
            (by, true) if by.len() == 1 => Whose::Program(by[0]),
            _ => Whose::Unknown,
        }
    }

    /// Somebody wrote to a file, or moved it there.
    fn wrote(&mut self, path: PathBuf, whose: Whose) {
        match whose {
            Whose::Program(root) => self.touch(path, Some(root)),
            Whose::Others => self.touch(path, None),
            Whose::Unknown if self.told => self.touch_unknown(path),
            Whose::Unknown => {
                let (by, surely) = self.guess.who_may(&path, &self.roots);
                let many = by.len() > 1;
                for root in by {
                    self.touch(path.clone(), Some(root));
                }
                if !surely && (many || self.files.contains_key(&path)) {
                    self.touch(path, None);
                }
            }
            Whose::Early(_) | Whose::Ours => {}
        }
    }

    /// Somebody wrote to a file, and it is not known who: each that works there may have.
    fn touch_unknown(&mut self, path: PathBuf) {
        let (by, _) = self.guess.who_may(&path, &self.roots);
        if self.files.len() < MAX_FILES || self.files.contains_key(&path) {
            let touch = self.files.entry(path).or_insert_with(Touch::now);
            touch.by.extend(by);
            touch.unknown = true;
        }
    }

    /// Somebody took a name away of what was not made since it is watched.
    fn went(&mut self, path: &Path, whose: Whose) {
        let new = self.made.get_mut(path).is_some() || self.unseen.contains_key(path);
        if new || self.gone.len() >= MAX_FILES {
            return;
        }
        let (by, others, unknown) = match whose {
            Whose::Program(root) => (vec![root], false, false),
            Whose::Others => (vec![], true, false),
            Whose::Unknown => {
                let (by, surely) = self.guess.who_may(path, &self.roots);
                (by, !surely && !self.told, self.told)
            }
            Whose::Early(_) | Whose::Ours => return,
        };
        let by = by.into_iter().collect();
        touch_of(&mut self.gone, path, Touch { by, others, unknown, ..Touch::now() });
    }

    /// A program made something, or moved it there.
    fn make(&mut self, path: &Path, root: libc::pid_t, guessed: bool) {
        let Ok(meta) = fs::symlink_metadata(path) else {
            if self.unseen.len() < MAX_FILES {
                self.unseen.insert(path.to_path_buf(), (root, guessed));
            }
            return;
        };
        self.unseen.remove(path);
        let birth = Birth::of(&meta, root);
        let Some(birth) = birth.map(|birth| Birth { guessed, ..birth }) else { return };
        self.made.insert(path.to_path_buf(), birth);
        self.notes.iter_mut().for_each(|notes| notes.add(path, &self.made));
    }

    /// It has come under this name just now: it may have been there before, under another or none.
    fn name(&mut self, path: &Path) {
        let Some(birth) = self.made.get_mut(path) else { return };
        birth.named_ns = now(libc::CLOCK_REALTIME) as i64;
        self.notes.iter_mut().for_each(|notes| notes.add(path, &self.made));
    }

    /// Somebody made something where programs work, and it is not known who; where the kernel never
    /// tells, it only counts where one program alone works.
    fn may_be_made(&mut self, path: &Path) {
        let (by, surely) = self.guess.who_may(path, &self.roots);
        let root = match by[..] {
            [] => return,
            [root] => root,
            _ => SOMEBODY,
        };
        if (surely || self.told) && self.made.get_mut(path).is_none() {
            self.make(path, root, true);
        }
    }

    /// Others have it: that a program made it was guessed wrongly.
    fn is_of_others(&mut self, path: &Path) {
        if self.made.get_mut(path).is_some_and(|birth| birth.guessed) {
            self.made.remove(path);
            self.notes.iter_mut().for_each(|notes| notes.remove(path));
        }
    }

    /// A program opened or wrote what another one may have made. What it may have made and has open
    /// for writing it made; where the kernel tells who has, also others are told of that read it.
    fn used(&mut self, path: &Path, root: libc::pid_t) {
        let may_be_its = |birth: &&mut Birth| birth.by == root && birth.guessed;
        if !self.told
            && let Some(birth) = self.made.get_mut(path).filter(may_be_its)
        {
            birth.guessed = false;
            self.notes.iter_mut().for_each(|notes| notes.add(path, &self.made));
        }
        let is_anothers = |birth: &&mut Birth| ![root, SOMEBODY].contains(&birth.by);
        let another = self.made.get_mut(path).filter(is_anothers);
        if let Some(birth) = another.filter(|birth| !birth.shared) {
            birth.shared = true;
            self.notes.iter_mut().for_each(|notes| notes.add(path, &self.made));
        }
    }

    /// A file has another name: whose it was it is. Two that change places (`RENAME_EXCHANGE`) are
    /// told of as two renames; the first one takes away what is known of the second.
    fn renamed(&mut self, before: Option<&Path>, after: Option<&Path>) {
        if let (Some(before), Some(after)) = (before, after)
            && let Some(last) = self.renamed.take_if(|last| last.is_turned(before, after))
        {
            return self.changed_places(last);
        }
        let birth = before.and_then(|before| self.made.remove(before));
        let touch = before.and_then(|before| self.files.remove(before));
        let Some(after) = after else { return };
        // What had the name is gone.
        let replaced = (self.made.remove(after), self.files.get(after).cloned());
        let own = (birth, touch.clone());
        let from = before.map(Path::to_path_buf);
        self.renamed = from.map(|from| Renamed { from, to: after.to_path_buf(), own, replaced });
        self.made_under(after, birth);
        if let Some((root, guessed)) = before.and_then(|before| self.unseen.remove(before)) {
            self.make(after, root, guessed);
        }
        if let Some(touch) = touch {
            // What has this name is another file from now on.
            touch_of(&mut self.files, after, Touch { since_ns: Touch::now().since_ns, ..touch });
        }
    }

    fn changed_places(&mut self, last: Renamed) {
        for (path, (birth, touch)) in [(&last.from, last.replaced), (&last.to, last.own)] {
            self.made.remove(path);
            self.made_under(path, birth);
            self.files.remove(path);
            self.files.extend(touch.map(|touch| (path.clone(), touch)));
        }
    }

    /// It is the same file, by number and birth, whatever lies there by now.
    fn made_under(&mut self, path: &Path, birth: Option<Birth>) {
        if let Some(birth) = birth.filter(|birth| !birth.shared) {
            self.made.insert(path.to_path_buf(), birth);
            self.notes.iter_mut().for_each(|notes| notes.add(path, &self.made));
        }
    }

    /// A folder has another name, with all that is below. What is told next may be of a new one
    /// that has the name which it had.
    fn folder_renamed(&mut self, before: &Path, after: &Path) {
        self.moved(before, after);
        for folder in self.folders.values_mut() {
            if let Ok(rest) = folder.strip_prefix(before) {
                // Joined to nothing it would end with a slash.
                *folder = after.components().chain(rest.components()).collect();
            }
        }
    }

    fn touch(&mut self, path: PathBuf, root: Option<libc::pid_t>) {
        if self.files.len() >= MAX_FILES && !self.files.contains_key(&path) {
            return;
        }
        let touch = self.files.entry(path).or_insert_with(Touch::now);
        match root {
            Some(root) => drop(touch.by.insert(root)),
            None => touch.others = true,
        }
    }

    /// A file or folder is gone.
    fn forget(&mut self, path: &Path) {
        self.made.remove(path);
        self.unseen.remove(path);
        if self.files.remove(path).is_none() {
            self.folders.retain(|_, folder| folder != path);
        }
    }

    /// Whether that was not done just now.
    fn is_to_be_looked_through(&mut self, folder: &Path, now: Instant) -> bool {
        self.looked.retain(|_, at| now.duration_since(*at) < LOOKED);
        let known = self.looked.contains_key(folder)
            && handle_of(folder).is_some_and(|handle| self.folders.contains_key(&handle));
        if !known {
            self.looked.insert(folder.to_path_buf(), now);
        }
        !known
    }

    /// Watches a folder, or notes that it has another name.
    fn add(&mut self, fd: RawFd, folder: &Path) -> Option<()> {
        if self.ours.iter().any(|ours| folder.starts_with(ours)) {
            return None;
        }
        let handle = handle_of(folder)?;
        if let Some(known) = self.folders.get(&handle) {
            if known != folder && handle_of(known).as_ref() != Some(&handle) {
                let before = self.folders.insert(handle, folder.to_path_buf())?;
                self.moved(&before, folder);
            }
            return Some(());
        }
        if self.folders.len() >= MAX_WATCHED {
            return None;
        }
        if fanotify::mark(fd, folder) {
            self.folders.insert(handle, folder.to_path_buf());
        }
        Some(())
    }

    /// Watches a folder that has just come, and those below. What is in one that a program made it
    /// wrote before that could be seen.
    fn discover(&mut self, fd: RawFd, Folder { path, made_by }: Folder) {
        let mut folders = vec![path];
        let mut left = MAX_FOLDERS;
        while let Some(folder) = folders.pop().filter(|_| left > 0) {
            left -= 1;
            self.add(fd, &folder);
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten().take(MAX_FILES) {
                match entry.file_type() {
                    Ok(kind) if kind.is_dir() => {
                        made_by.iter().for_each(|root| self.make(&entry.path(), *root, false));
                        folders.push(entry.path());
                    }
                    Ok(kind) if kind.is_file() && made_by.is_some() => {
                        made_by.iter().for_each(|root| self.make(&entry.path(), *root, false));
                        self.touch(entry.path(), made_by);
                    }
                    _ => {}
                }
            }
        }
    }

    /// A folder has another name.
    fn moved(&mut self, before: &Path, now: &Path) {
        for path in self.made.moved(before, now) {
            self.notes.iter_mut().for_each(|notes| notes.add(&path, &self.made));
        }
        let of = |path: &PathBuf| Some(now.join(path.strip_prefix(before).ok()?));
        let moved: Vec<_> = self.files.keys().filter_map(|p| Some((p.clone(), of(p)?))).collect();
        for (before, now) in moved {
            if let Some(touch) = self.files.remove(&before) {
                touch_of(&mut self.files, &now, touch);
            }
        }
    }
}

/// Where a process works.
fn cwd_of(pid: libc::pid_t) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default()
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
