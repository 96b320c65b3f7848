//! What files were before programs began in a folder. A program that begins anew, as before its
//! first checkpoint, writes again what it wrote; so its beginning is a checkpoint of files without
//! memory, and they are put back by the same rules ([`crate::resources::files::undo`]).
//!
//! Which files a program will write to is not known by then. So the folder in which it works is
//! looked through, with those below: names, sizes and marks of all files, what small ones hold, and
//! parts of larger ones, by which it is seen that one has only grown; and where links lead.
//!
//! Kept true: only what these programs alone were seen changing is put back
//! ([`crate::Watch`]); what others changed too, and what is not known, is named.

use crate::error::{RestoreError, file_error};
use crate::kernel::background::Background;
use crate::kernel::find_file::MAX_ENTRIES;
use crate::kernel::inode::{born, open_here};
use crate::kernel::leases::{Lease, lease};
use crate::resources::clocks;
use crate::resources::files::appends::{Appended, RecordedAppends};
use crate::resources::files::before::{Before, OldFile};
use crate::resources::files::metadata::{self, Then};
use crate::resources::files::refill::is_same_so_far;
use crate::resources::files::renamed_folders::Folder;
use crate::resources::files::special::{self, Special};
use crate::resources::files::undo::{Case, FileNote, Files, Undo, refused};
use crate::resources::files::watch::{Touched, Watch};
use crate::resources::open::file_id;
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::{FileId, Marks, kept};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use xxhash_rust::xxh3::xxh3_64;

/// Files and folders that are looked at, and how far below.
const MAX_FILES: usize = 1024;
const MAX_FOLDERS: usize = 256;
const MAX_DEPTH: usize = 4;
/// What is kept of the content of a file, and of all.
const SMALL_BYTES: u64 = 1 << 20;
const ALL_BYTES: u64 = 16 << 20;
/// Of the limit for a file all that is kept here takes this part at most.
const SHARE: u64 = 4;
/// Files of which what they hold, or parts of it, is read.
const MAX_READ: usize = 256;
/// By how much of its beginning, its middle and its end a larger file is known.
const PART_BYTES: u64 = 4096;
/// What nobody may write to is not read.
const WRITABLE: u32 = 0o222;

/// A file as it was.
#[derive(Debug)]
struct Entry {
    file: FileId,
    born_ns: i64,
    links: u32,
    mode: u32,
    marks: Option<Marks>,
    known: Known,
}

/// What is known of what it held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    /// All, which is kept from this place on.
    All(u64),
    /// The hash of parts of it.
    Parts(u64),
    Nothing,
}

#[derive(Debug, Default)]
struct Looked {
    /// The folder that was looked through.
    at: PathBuf,
    files: BTreeMap<PathBuf, Entry>,
    folders: BTreeMap<PathBuf, Folder>,
    /// Links and named pipes.
    specials: BTreeMap<PathBuf, Special>,
    /// There was more than is looked at.
    more: bool,
    /// What small files held, and where such files without a name are made.
    store: Option<File>,
    stores: PathBuf,
    /// Nothing that programs made is older.
    began_ns: i64,
}

/// What files were before programs began.
pub struct Beginning(Mutex<State>);

enum State {
    Looking(Background<Looked>),
    Looked(Looked),
    /// For a moment.
    Between,
}

/// Who begins anew, and how files are put back.
pub struct BeginAnew<'a> {
    /// First processes of the programs, which are dead.
    pub programs: &'a BTreeSet<libc::pid_t>,
    /// What they made is taken away: nobody goes on who may be about to use it. Else only what has
    /// the name of a file that comes back.
    pub takes_made: bool,
    /// What becomes of files that are not as they were.
    pub files: Files,
    /// What becomes of what was appended.
    pub appended: Appended,
    /// Files to which they will not append again what they had appended.
    pub recorded: RecordedAppends,
    /// Where what is written over or moved away is kept.
    pub aside: Option<PathBuf>,
    /// What lies below is none of theirs.
    pub leave_out: &'a Path,
}

impl Beginning {
    /// Begins to look through a folder, in a thread. What small files hold is kept in a file
    /// without a name in the folder `store`; of a file at most `limit_bytes`.
    pub fn look(folder: &Path, leave_out: &Path, store: &Path, limit_bytes: u64) -> Beginning {
        let places = [folder, leave_out, store].map(Path::to_path_buf);
        let look = move || {
            let [folder, leave_out, store] = &places;
            let mut looked = Looked::walk(folder, leave_out);
            looked.stores.clone_from(store);
            looked.read(nameless(store).ok(), limit_bytes);
            looked
        };
        Beginning(Mutex::new(State::Looking(Background::begin(look))))
    }

    /// Programs begin: waits until all is looked at.
    pub fn close(&self) {
        self.with(|_| ());
    }

    fn with<R>(&self, then: impl FnOnce(&mut Looked) -> R) -> R {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looked = match std::mem::replace(&mut *state, State::Between) {
            State::Looked(looked) => looked,
            State::Between => Looked::default(),
            State::Looking(looking) => {
                let looked = looking.end();
                Looked { began_ns: clocks::told_apart_from_now(), ..looked }
            }
        };
        let result = then(&mut looked);
        *state = State::Looked(looked);
        result
    }

    /// Puts back what programs changed that begin anew. What they were seen doing is forgotten.
    pub fn put_back(
        &self,
        watch: &Watch,
        anew: BeginAnew<'_>,
    ) -> Result<Vec<FileNote>, RestoreError> {
        self.with(|looked| {
            let (changed, notes) = looked.put_back(watch, anew)?;
            looked.made_again(changed.iter().map(|touched| &touched.path), &notes);
            Ok(notes)
        })
    }
}

impl Beginning {
    /// What programs changed of what was there, for one that goes on from a checkpoint.
    pub fn before(
        &self,
        watch: &Watch,
        programs: &BTreeSet<libc::pid_t>,
        recorded: &RecordedAppends,
    ) -> Before {
        let changes = watch.changes_of(programs);
        self.with(|looked| looked.before(&changes, recorded))
    }

    /// These are what they were, under the same names.
    pub fn came_back(&self, paths: &[PathBuf]) {
        self.with(|looked| looked.made_again(paths.iter(), &[]));
    }
}

impl Looked {
    fn before(&self, changes: &[(Touched, i64)], recorded: &RecordedAppends) -> Before {
        let mut before = Before::default();
        for (touched, at) in changes {
            let path = &touched.path;
            if let Some(folder) = self.folders.get(path).filter(|_| !touched.shared) {
                before.folders.push((*at, path.clone(), folder.clone()));
            }
            if let Some(special) = self.specials.get(path).filter(|_| !touched.shared) {
                before.specials.push((*at, special.clone()));
            }
            // What it appends once it does not append again.
            let found = self.found(std::slice::from_ref(touched)).pop();
            let Some(found) = found.filter(|f| !f.grew || !f.is_recorded(recorded)) else {
                continue;
            };
            let Entry { file, born_ns, links, mode, marks, .. } = found.then;
            let old = OldFile {
                file: file.clone(),
                about: (*born_ns, *links, *mode),
                marks: marks.clone(),
                content: self.content(found.then).map(Arc::new),
                shared: touched.shared,
            };
            before.files.push((*at, path.clone(), old));
        }
        before
    }

    /// Returns what programs had changed, too.
    fn put_back(
        &self,
        watch: &Watch,
        anew: BeginAnew<'_>,
    ) -> Result<(Vec<Touched>, Vec<FileNote>), RestoreError> {
        let mut changed = watch.changed_by(anew.programs);
        self.refuse_unknown(&changed, &anew)?;
        let mut notes =
            self.folders_back(&mut changed, anew.files).map_err(refused_at_beginning)?;
        notes.extend(self.unknown(&changed, &anew));
        let specials = self.links_back(&changed, &mut notes);
        let mut made = watch.made_by(anew.programs);
        made.leave_out(anew.leave_out);
        let mut newer = made.since_ns(self.began_ns);
        let mut found = self.found(&changed);
        // Others may be about to use the rest.
        newer.retain(|new| {
            let mut names = found.iter().map(|found| &found.path);
            anew.takes_made
                || names.any(|path| *path == new.path)
                || specials.iter().any(|special| special.path == new.path)
        });
        // What it appends once it does not append again.
        found.retain(|found| !found.grew || !found.is_recorded(&anew.recorded));
        let (long, found): (Vec<Found<'_>>, Vec<Found<'_>>) =
            found.into_iter().partition(Found::is_to_be_cut);
        let contents: Vec<Option<File>> = found.iter().map(|f| self.content(f.then)).collect();
        let content = |id: u64| contents.get(id as usize).and_then(Option::as_ref);
        let cases = (0..).zip(&found).map(|(id, f)| f.case(id, content(id).is_some())).collect();
        let shared: Vec<PathBuf> =
            changed.iter().filter(|t| t.shared).map(|t| t.path.clone()).collect();
        let how = (anew.files, anew.appended);
        let mut undo = Undo::of(cases, how, anew.aside, (&shared, newer));
        (undo.recorded, undo.specials) = (anew.recorded, specials);
        undo.compare(&content).map_err(refused_at_beginning)?;
        notes.extend(long.iter().filter_map(|found| found.cut(anew.appended)));
        undo.put_back(&content)?;
        notes.append(&mut undo.notes);
        let unknown = |path: &Path| changed.iter().any(|t| t.unknown && t.path == path);
        for note in &mut notes {
            note.what = of_beginning(&note.what);
            if unknown(&note.path) {
                note.what = note.what.replace(ANOTHER, NOT_KNOWN);
            }
        }
        let known = self.files.keys().chain(self.folders.keys()).chain(self.specials.keys());
        watch.forget(anew.programs, known.cloned());
        Ok((changed, notes))
    }

    /// What is as it was is another file or folder by now, if it was made again.
    fn made_again<'a>(&mut self, paths: impl Iterator<Item = &'a PathBuf>, notes: &[FileNote]) {
        let is_left = |path: &Path| notes.iter().any(|note| note.left && note.path == path);
        for path in paths.filter(|path| !is_left(path)) {
            let Ok(meta) = fs::symlink_metadata(path) else { continue };
            if let Some(then) = self.files.get_mut(path).filter(|_| meta.is_file()) {
                let now = file_id(then.file.path.clone(), &meta);
                let FileId { size, mtime_ns, .. } = then.file;
                (then.file, then.born_ns) = (FileId { size, mtime_ns, ..now }, born(&meta));
            }
            if let Some(then) = self.folders.get_mut(path).filter(|_| meta.is_dir()) {
                (then.ino, then.born_ns) = (meta.ino(), born(&meta));
            }
        }
    }

    /// The files that programs changed, as they were.
    fn found<'a>(&'a self, changed: &[Touched]) -> Vec<Found<'a>> {
        let found = |touched: &Touched| {
            let then = self.files.get(&touched.path)?;
            let (path, shared) = (touched.path.clone(), touched.shared);
            let grew = self.only_grew(then, &path);
            Some(Found { path, shared, grew, then })
        };
        changed.iter().filter_map(found).collect()
    }

    /// What a file held.
    fn content(&self, then: &Entry) -> Option<File> {
        let Known::All(at) = then.known else { return None };
        let to = nameless(&self.stores).ok()?;
        if then.file.size > 0 {
            let mut bytes = vec![0; then.file.size as usize];
            self.store.as_ref()?.read_exact_at(&mut bytes, at).ok()?;
            to.write_all_at(&bytes, 0).ok()?;
        }
        Some(to)
    }

    /// Whether a file is longer, and up to its old size what it was, as far as that is known.
    fn only_grew(&self, then: &Entry, path: &Path) -> bool {
        let meta = fs::symlink_metadata(path);
        let size = then.file.size;
        if !meta.is_ok_and(|meta| then.is_it(&meta) && meta.len() > size) {
            return false;
        }
        match then.known {
            Known::All(_) => {
                let all = self.content(then);
                all.is_some_and(|all| is_same_so_far(path, &all, size).unwrap_or(false))
            }
            Known::Parts(hash) => parts_of(path, size).is_ok_and(|now| now == hash),
            Known::Nothing => false,
        }
    }
}

/// A file that programs changed.
struct Found<'a> {
    path: PathBuf,
    shared: bool,
    grew: bool,
    then: &'a Entry,
}

impl Found<'_> {
    /// Whether it has only grown, and is larger than what is kept, or lies where the kernel does
    /// not tell who else writes to it.
    fn is_to_be_cut(&self) -> bool {
        let lies_far = || open_here(&self.path).is_ok_and(|file| lease(&file) == Lease::Unknown);
        let large = matches!(self.then.known, Known::Parts(_));
        self.grew && !self.shared && (large || lies_far())
    }

    fn case(&self, id: u64, stored: bool) -> Case {
        let Entry { file, born_ns, links, mode, marks, .. } = self.then;
        let stored = if stored { kept::CONTENT } else { 0 };
        let grew = kept::GROWS | kept::WRITTEN | kept::APPENDS;
        let flags = match self.grew && self.shared {
            true => kept::TOUCHED | kept::SHARED | grew,
            false => kept::TOUCHED | stored,
        };
        Case::new(id, file.clone(), (*born_ns, *links, *mode), flags, marks.clone())
    }

    fn is_recorded(&self, recorded: &RecordedAppends) -> bool {
        fs::symlink_metadata(&self.path).is_ok_and(|meta| recorded.has(&meta))
    }

    /// Takes away what was appended.
    fn cut(&self, appended: Appended) -> Option<FileNote> {
        let size = self.then.file.size;
        let free = match appended {
            Appended::Keep => return None,
            Appended::Cut => Ok(true),
            Appended::Auto => open_here(&self.path).map(|file| lease(&file) == Lease::Nobody),
        };
        let cut = || {
            let mut options = OpenOptions::new();
            options.write(true).custom_flags(libc::O_NOFOLLOW).open(&self.path)?.set_len(size)
        };
        let (then, left) = match free {
            Ok(false) => ("it is left as it is: another process may write to it".into(), true),
            free => match free.and_then(|_| cut()) {
                Ok(()) => (format!("it is cut back to its {size} bytes"), false),
                Err(e) => (format!("it cannot be cut back: {e}"), true),
            },
        };
        let what = format!("was appended to since the checkpoint; {then}");
        Some(FileNote { path: self.path.clone(), what, left })
    }
}

impl Entry {
    fn of(path: &Path, meta: &Metadata) -> Entry {
        Entry {
            file: file_id(path.as_os_str().as_bytes().to_vec(), meta),
            born_ns: born(meta),
            links: meta.nlink() as u32,
            mode: meta.mode() & 0o7777,
            marks: None,
            known: Known::Nothing,
        }
    }

    fn is_it(&self, meta: &Metadata) -> bool {
        meta.is_file() && (meta.ino(), born(meta)) == (self.file.ino, self.born_ns)
    }
}

impl Looked {
    /// What is in a folder and below, the nearest first.
    fn walk(folder: &Path, leave_out: &Path) -> Looked {
        let mut looked = Looked { at: folder.to_path_buf(), ..Looked::default() };
        // Other file systems may be slow, or none of files.
        let device = fs::metadata(folder).map(|meta| meta.dev()).ok();
        let mut folders = VecDeque::from([(folder.to_path_buf(), 0)]);
        while let Some((folder, depth)) = folders.pop_front() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let Ok(meta) = entry.metadata() else { continue };
                let path = entry.path();
                if path.starts_with(leave_out) || device != Some(meta.dev()) {
                    continue;
                }
                if !meta.is_dir() {
                    looked.add(path, &meta);
                } else if depth < MAX_DEPTH && looked.folders.len() < MAX_FOLDERS {
                    let (ino, born_ns, mode) = (meta.ino(), born(&meta), meta.mode() & 0o7777);
                    let marks = metadata::of(&path);
                    looked.folders.insert(path.clone(), Folder { ino, born_ns, mode, marks });
                    folders.push_back((path, depth + 1));
                } else {
                    looked.more = true;
                }
            }
            if looked.is_full() {
                looked.more = true;
                break;
            }
        }
        looked
    }

    fn is_full(&self) -> bool {
        self.files.len() + self.specials.len() >= MAX_FILES
    }

    fn add(&mut self, path: PathBuf, meta: &Metadata) {
        if self.is_full() {
            self.more = true;
        } else if meta.is_file() {
            self.files.insert(path.clone(), Entry::of(&path, meta));
        } else if let Some(special) = special::at(&path, meta) {
            self.specials.insert(path, special);
        }
    }

    /// Reads what small files hold, and parts of larger ones: of those that were changed last.
    fn read(&mut self, store: Option<File>, limit: u64) {
        let mut all: Vec<&mut Entry> = self.files.values_mut().collect();
        all.retain(|entry| entry.mode & WRITABLE != 0);
        all.sort_by_key(|entry| std::cmp::Reverse(entry.file.mtime_ns));
        let (mut at, most) = (0, ALL_BYTES.min(limit / SHARE));
        for entry in all.into_iter().take(MAX_READ) {
            let path = PathBuf::from(path_of(&entry.file.path));
            let size = entry.file.size;
            entry.marks = metadata::of(&path);
            let fits = size <= SMALL_BYTES.min(limit) && at + size <= most;
            let copied = store.as_ref().filter(|_| fits).and_then(|store| {
                let bytes = part(&path, 0, size).ok()?;
                store.write_all_at(&bytes, at).ok().map(|()| Known::All(at))
            });
            let parts = || parts_of(&path, size).map_or(Known::Nothing, Known::Parts);
            entry.known = copied.unwrap_or_else(parts);
            at += if copied.is_some() { size } else { 0 };
            // It is what it was before it was read, or nothing is known of it.
            let same = |meta: Metadata| file_id(entry.file.path.clone(), &meta) == entry.file;
            if !fs::symlink_metadata(&path).is_ok_and(same) {
                entry.known = Known::Nothing;
            }
        }
        self.store = store;
    }

    /// Folders that programs moved or removed are where they were, with what is below.
    fn folders_back(
        &self,
        changed: &mut [Touched],
        how: Files,
    ) -> Result<Vec<FileNote>, RestoreError> {
        let (mut notes, mut left) = (Vec::new(), MAX_ENTRIES);
        for i in 0..changed.len() {
            let (path, shared) = (&changed[i].path.clone(), changed[i].shared);
            let Some(then) = self.folders.get(path) else { continue };
            if fs::symlink_metadata(path).is_ok() {
                continue;
            }
            let place = then.below(&self.at, &mut left);
            let what = match &place {
                Some(to) => format!("was renamed to {} since the checkpoint", to.display()),
                None => "was removed since the checkpoint".into(),
            };
            if how == Files::Refuse {
                return Err(refused(&[(path, what)]));
            }
            let (how, left) = match (how, shared, place) {
                (Files::Warn, ..) => ("it is left as it is: --files warn".into(), true),
                (_, true, _) => (format!("it is left as it is: {ANOTHER}"), true),
                (_, _, place) => match back(then, place.as_deref(), path) {
                    Ok(()) => {
                        place.iter().for_each(|place| moved(changed, place, path));
                        ("it is put back".to_owned(), false)
                    }
                    Err(e) => (format!("it cannot be put back: {e}"), true),
                },
            };
            notes.push(FileNote { path: path.clone(), what: format!("{what}; {how}"), left });
        }
        Ok(notes)
    }

    /// Links and named pipes that programs changed; those that others changed, too, are named.
    fn links_back(&self, changed: &[Touched], notes: &mut Vec<FileNote>) -> Vec<Special> {
        let of = |t: &Touched| Some((self.specials.get(&t.path)?.clone(), t.shared));
        let (shared, own): (Vec<_>, Vec<_>) =
            changed.iter().filter_map(of).partition(|(_, shared)| *shared);
        let note = |(special, _): (Special, bool)| {
            let what = format!("{}; it is left as it is: {ANOTHER}", special.differs()?);
            Some(FileNote { path: special.path, what, left: true })
        };
        notes.extend(shared.into_iter().filter_map(note));
        own.into_iter().map(|(special, _)| special).collect()
    }

    /// Whether a name that is not known was not there at the beginning.
    fn was_looked_at(&self, path: &Path) -> bool {
        let is_known = self.files.contains_key(path)
            || self.folders.contains_key(path)
            || self.specials.contains_key(path);
        let folder = path.parent().unwrap_or(path);
        is_known || !self.more && (folder == self.at || self.folders.contains_key(folder))
    }

    /// Where nothing may be left as it is, it is not.
    fn refuse_unknown(
        &self,
        changed: &[Touched],
        anew: &BeginAnew<'_>,
    ) -> Result<(), RestoreError> {
        let unknown = self.unknown(changed, anew);
        let all: Vec<(&Path, String)> =
            unknown.iter().map(|note| (&*note.path, of_beginning(&note.what))).collect();
        match (anew.files, all.first()) {
            (Files::Refuse, Some(_)) => Err(refused(&all)),
            (Files::Restore, Some((path, what))) => {
                Err(file_error(path.as_os_str().as_bytes(), what.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Files that were there before, of which nothing is known, and new ones to which others write.
    fn unknown(&self, changed: &[Touched], anew: &BeginAnew<'_>) -> Vec<FileNote> {
        let known: BTreeSet<(u64, i64)> =
            self.files.values().map(|then| (then.file.ino, then.born_ns)).collect();
        let note = |touched: &Touched| {
            let path = &touched.path;
            let named = |what| Some(FileNote { path: path.clone(), what, left: true });
            let Ok(meta) = fs::symlink_metadata(path) else {
                let what = "was removed since the checkpoint; what it was is not known";
                // With its folder that is told.
                let alone = path.parent().is_some_and(Path::exists);
                let is_old = alone && !self.was_looked_at(path);
                return if is_old { named(what.to_owned()) } else { None };
            };
            let older = born(&meta) != 0 && born(&meta) < self.began_ns;
            let is_known = known.contains(&(meta.ino(), born(&meta)));
            let why = match touched.shared {
                true => ANOTHER,
                false => "what it held is not known",
            };
            if !meta.is_file() || !(older || touched.shared) || is_known || anew.recorded.has(&meta)
            {
                return None;
            }
            named(format!("was written to since the checkpoint; it is left as it is: {why}"))
        };
        changed.iter().filter_map(note).collect()
    }
}

/// Why something is left as it is.
const ANOTHER: &str = "another process was seen writing to it, too";
const NOT_KNOWN: &str = "it is not known who did that";

/// Gives a folder its name again, or makes it again.
fn back(then: &Folder, place: Option<&Path>, path: &Path) -> io::Result<()> {
    if let Some(place) = place {
        return fs::rename(place, path);
    }
    fs::DirBuilder::new().mode(then.mode).create(path)?;
    let then = Then { marks: then.marks.as_ref(), mode: then.mode, changed_ns: None };
    let told = then.put_back(path, true, false);
    told.map_or(Ok(()), |(what, _)| Err(io::Error::other(what)))
}

/// What was below a folder is below another one.
fn moved(changed: &mut [Touched], from: &Path, to: &Path) {
    for touched in changed {
        if let Ok(rest) = touched.path.strip_prefix(from) {
            touched.path = to.components().chain(rest.components()).collect();
        }
    }
}

/// So many bytes of a file from a place on.
fn part(path: &Path, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut to = vec![0; bytes as usize];
    open_here(path)?.read_exact_at(&mut to, at)?;
    Ok(to)
}

/// What tells the first, middle and last bytes of a file that was as long as this.
fn parts_of(path: &Path, size: u64) -> io::Result<u64> {
    let bytes = size.min(PART_BYTES);
    let last = size - bytes;
    let parts = [0, last / 2, last].map(|at| part(path, at, bytes));
    let parts: Vec<Vec<u8>> = parts.into_iter().collect::<io::Result<_>>()?;
    Ok(xxh3_64(&parts.concat()))
}

/// A file that has no name any more.
fn nameless(folder: &Path) -> io::Result<File> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!(".beginning-{}-{number}", std::process::id()));
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).mode(0o600).open(&path)?;
    fs::remove_file(&path)?;
    Ok(file)
}

/// What was said of a checkpoint, of a beginning.
fn of_beginning(what: &str) -> String {
    what.replace("since the checkpoint", "since the rank began")
        .replace("after the checkpoint", "after the rank began")
        .replace("at the checkpoint", "when the rank began")
        .replace("the image does not have what it held", "what it held was not kept")
}

fn refused_at_beginning(error: RestoreError) -> RestoreError {
    match error {
        RestoreError::File { path, what } => RestoreError::File { path, what: of_beginning(&what) },
        other => other,
    }
}

#[cfg(test)]
#[path = "beginning_tests.rs"]
mod tests;
