//! Putting files back to what they were at the checkpoint ([`crate::resources::files::stored`]), as
//! what the program wrote since then it will write again.
//!
//! What is found is looked at before anything of the image is opened: a file may have another name
//! by now, or none. One that is gone is made again under a name of ours. Names and contents are
//! changed last, when everything else has succeeded and nothing runs yet.
//!
//! Kept true: a file that somebody else has open for writing, or had at the checkpoint, is left as
//! it is; what is moved away or written over is kept in a folder, if one is given; each file that
//! is not as it was is told of.

use crate::error::{RestoreError, file_error};
use crate::kernel::find_file::{MAX_ENTRIES, file_with};
use crate::kernel::inode;
use crate::kernel::leases;
use crate::resources::files::appends::{Appended, RecordedAppends};
use crate::resources::files::before::{Again, Before};
use crate::resources::files::created::{Made, Newer};
use crate::resources::files::metadata::Then;
use crate::resources::files::refill::{away, clear, is_same, keep, put};
use crate::resources::files::renamed_folders::{self, Folder, RenamedFolder};
use crate::resources::files::special::{self, Special};
use crate::resources::open::file_id;
use eyrie_image_format::state::files::path_of;
use eyrie_image_format::state::{AnonymousObject, FileId, Marks, ObjectKind, State, kept as bits};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, DirEntry, File, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Files that are named where there is no restore because of them.
const MAX_NAMED: usize = 8;
/// What a database leaves beside its file while it changes that. One that was not there at the
/// checkpoint would change the file once more.
const JOURNALS: [&str; 3] = ["-journal", "-wal", "-shm"];

/// What becomes of files that are not as they were at the checkpoint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Files {
    /// They are put back where the image has what it takes and nobody else writes to them; of the
    /// others it is told.
    #[default]
    Auto,
    /// They stay as they are, and it is told.
    Warn,
    /// There is no restore then.
    Refuse,
    /// They are put back; if one cannot be, there is no restore.
    Restore,
}

/// A file that was not as it was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileNote {
    /// Which.
    pub path: PathBuf,
    /// What was done, in words that follow the path.
    pub what: String,
    /// It is not as it was at the checkpoint.
    pub left: bool,
}

/// Where a file is now.
#[derive(Debug)]
enum Now {
    There,
    /// Under another name.
    Moved(PathBuf),
    /// Another file has its name.
    Replaced,
    Gone,
}

/// One file.
#[derive(Debug)]
pub(super) struct Case {
    id: u64,
    file: FileId,
    path: PathBuf,
    born_ns: i64,
    links: u32,
    flags: u32,
    mode: u32,
    marks: Option<Marks>,
    /// Where it is if only folders have other names.
    elsewhere: Option<PathBuf>,
    now: Now,
    /// Why it is to be left as it is.
    hands_off: Option<String>,
    /// The file that takes its place until all else has succeeded.
    made: Option<PathBuf>,
}

/// All of a family.
#[derive(Debug)]
pub struct Undo {
    cases: Vec<Case>,
    how: Files,
    appended: Appended,
    /// Files to which what was appended is not appended again.
    pub recorded: RecordedAppends,
    aside: Option<PathBuf>,
    /// What the program made since the checkpoint, what is below a folder before it.
    newer: Vec<Newer>,
    /// What it may have made since.
    unsure: Vec<Newer>,
    /// Folders that it had made, each before those below.
    folders: BTreeMap<PathBuf, Folder>,
    /// Those of them that have other names.
    renamed: Vec<RenamedFolder>,
    /// Links and named pipes that it had made.
    pub(super) specials: Vec<Special>,
    /// Of the beginning, and not of the image.
    again: BTreeSet<PathBuf>,
    /// What those held, by the numbers of their cases.
    contents: BTreeMap<u64, Arc<File>>,
    done: bool,
    pub notes: Vec<FileNote>,
}

/// The content of a file at the checkpoint, by its number.
pub type Contents<'a> = &'a dyn Fn(u64) -> Option<&'a File>;

impl Case {
    /// A file as it was, which is looked at by [`Undo::of`].
    pub(super) fn new(
        id: u64,
        file: FileId,
        (born_ns, links, mode): (i64, u32, u32),
        flags: u32,
        marks: Option<Marks>,
    ) -> Case {
        let path = PathBuf::from(path_of(&file.path));
        let (now, elsewhere, hands_off, made) = (Now::There, None, None, None);
        Case { id, file, path, born_ns, links, flags, mode, marks, elsewhere, now, hands_off, made }
    }

    fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// Whether it had this name, or is this file.
    pub(super) fn is_of(&self, path: &Path, ino: u64, born_ns: i64) -> bool {
        self.path == path || (self.file.ino, self.born_ns) == (ino, born_ns)
    }

    fn is_it(&self, meta: &Metadata) -> bool {
        let born = inode::born(meta);
        let same_birth = self.born_ns == 0 || born == 0 || born == self.born_ns;
        meta.is_file() && meta.ino() == self.file.ino && same_birth
    }

    /// Whether it has its name, and this one, which it had not.
    fn has_more(&self, path: &Path, meta: &Metadata) -> bool {
        let has_its_own = matches!(self.now, Now::There) && self.path != path;
        has_its_own && meta.nlink() > u64::from(self.links)
    }

    /// Whether a descriptor or mapping of a process leads to it.
    fn is_open(&self) -> bool {
        self.has(bits::WRITTEN | bits::READ)
    }

    /// Where the file itself is.
    fn place(&self) -> &Path {
        match (&self.made, &self.now) {
            (Some(made), _) => made,
            (None, Now::Moved(to)) => to,
            _ => &self.path,
        }
    }
}

/// The files that `states` tell of, each once.
fn cases<'a>(states: impl Iterator<Item = &'a State>) -> Vec<Case> {
    let mut all: BTreeMap<u64, Case> = BTreeMap::new();
    for AnonymousObject { id, kind, mode, .. } in states.flat_map(|s| &s.anonymous) {
        let ObjectKind::Kept { file, born_ns, links, flags, marks } = kind else { continue };
        if flags & (bits::FOLDER | bits::SPECIAL) != 0 {
            continue;
        }
        let about = (*born_ns, *links, *mode);
        let new = || Case::new(*id, file.clone(), about, *flags, marks.clone());
        let case = all.entry(*id).or_insert_with(new);
        // It only grows if nobody writes to it otherwise.
        let grows = case.flags & flags & bits::GROWS;
        case.flags = (case.flags | flags) & !bits::GROWS | grows;
    }
    all.into_values().collect()
}

impl Undo {
    /// Looks at the files that `states` tell of; nobody has opened them here yet.
    pub fn look<'a>(
        states: impl Iterator<Item = &'a State>,
        how: (Files, Appended),
        aside: Option<PathBuf>,
        (shared, made, before): (&[PathBuf], &Made, &Before),
    ) -> Undo {
        let states: Vec<&State> = states.collect();
        let mut newer = states.first().map_or_else(Vec::new, |first| made.since(first));
        let moment = states.first().and_then(|first| made.moment(first));
        let (mut folders, mut specials) = (renamed_folders::of(&states), special::of(&states));
        let mut cases = cases(states.into_iter());
        let again = moment.map_or_else(Again::default, |moment| before.since(moment, &cases));
        folders.extend(again.folders);
        specials.extend(again.specials);
        cases.extend(again.cases);
        let renamed = renamed_folders::find(&folders);
        for case in &mut cases {
            let now = renamed_folders::now(&renamed, &case.path);
            case.elsewhere = (now != case.path).then_some(now);
        }
        let in_the_way = |new: &Newer| cases.iter().any(|case| case.path == new.path);
        newer.retain(|new| !made.only_in_the_way || in_the_way(new));
        let shared = [shared, &*again.shared].concat();
        let mut undo = Undo::of(cases, how, aside, (&shared, newer));
        (undo.folders, undo.renamed, undo.specials) = (folders, renamed, specials);
        (undo.again, undo.contents) = (again.paths, again.contents);
        undo
    }

    /// The same of files as they are known; what is `newer` was made since.
    pub(super) fn of(
        mut cases: Vec<Case>,
        (how, appended): (Files, Appended),
        aside: Option<PathBuf>,
        (shared, mut newer): (&[PathBuf], Vec<Newer>),
    ) -> Undo {
        let known: BTreeSet<(u64, i64)> =
            cases.iter().map(|case| (case.file.ino, case.born_ns)).collect();
        // What changed its name, or whose folder did, is the program's as it was.
        let is_known = |meta: &Metadata| {
            [inode::born(meta), 0].iter().any(|born| known.contains(&(meta.ino(), *born)))
        };
        for case in &mut cases {
            let meta = fs::symlink_metadata(&case.path);
            case.now = match &meta {
                Ok(meta) if case.is_it(meta) => Now::There,
                Ok(_) => moved(case).map_or(Now::Replaced, Now::Moved),
                Err(_) => moved(case).map_or(Now::Gone, Now::Moved),
            };
            let place = Some(case.place()).filter(|_| !matches!(case.now, Now::Gone));
            let writer = place.and_then(leases::of);
            let older = meta.as_ref().is_ok_and(|meta| {
                let born = inode::born(meta);
                let other = !is_known(meta) && !case.is_it(meta);
                other && born != 0 && born < case.file.mtime_ns.min(case.born_ns.max(1))
            });
            case.hands_off = match writer {
                _ if case.has(bits::SHARED) => {
                    Some("another process wrote to it at the checkpoint, too".into())
                }
                _ if shared.contains(&case.path) => {
                    Some("another process was seen writing to it, too".into())
                }
                _ if older => Some("what has its name now is older than it".into()),
                Some(pid) => Some(leases::named(pid)),
                // Nobody knows whose it is, and the program has neither open.
                None if matches!(case.now, Now::Replaced)
                    && !case.is_open()
                    && !meta.as_ref().is_ok_and(is_known)
                    && newer.iter().all(|newer| newer.path != case.path) =>
                {
                    Some("what has its name now was not seen being made by the program".into())
                }
                None => None,
            };
        }
        newer.retain(|Newer { path, meta, .. }| {
            let known = cases.iter().any(|case| case.is_it(meta) && !case.has_more(path, meta));
            let free = || !meta.is_file() || leases::of(path).is_none();
            let mut named = cases.iter().filter(|case| case.path == *path);
            let wanted = named.all(|case| case.hands_off.is_none());
            wanted && !known && !shared.contains(path) && free()
        });
        // Where something comes back under its name it has to go.
        let (newer, unsure) = newer
            .into_iter()
            .partition(|new| !new.guessed || cases.iter().any(|case| case.path == new.path));
        let (folders, renamed, specials) = (BTreeMap::new(), vec![], vec![]);
        let (again, contents) = (BTreeSet::new(), BTreeMap::new());
        let (notes, recorded, done) = (vec![], RecordedAppends::default(), false);
        Undo {
            cases,
            how,
            appended,
            recorded,
            aside,
            newer,
            unsure,
            folders,
            renamed,
            specials,
            again,
            contents,
            done,
            notes,
        }
    }

    fn case(&self, id: &FileId) -> Option<usize> {
        let same = |case: &Case| case.file.path == id.path && case.file.ino == id.ino;
        self.cases.iter().position(|case| case.is_open() && same(case))
    }

    /// Files that were written to and are not open, and folders that were made.
    pub fn touched(&self) -> Vec<PathBuf> {
        let touched = self.cases.iter().filter(|case| case.has(bits::TOUCHED));
        let files = touched.map(|case| case.path.clone());
        let specials = self.specials.iter().map(|special| special.path.clone());
        let all = files.chain(self.folders.keys().cloned()).chain(specials);
        all.filter(|path| !self.again.contains(path)).collect()
    }

    /// What is as it was when programs began, and was changed since the checkpoint.
    pub fn undone(&self) -> Vec<PathBuf> {
        let is_left = |path: &PathBuf| self.notes.iter().any(|n| n.left && n.path == *path);
        let all = self.again.iter().filter(|path| fs::symlink_metadata(path).is_ok());
        all.filter(|path| !is_left(path)).cloned().collect()
    }

    /// Where a file is now, if it is anywhere.
    pub fn found(&self, id: &FileId) -> PathBuf {
        match self.case(id) {
            Some(i) => self.cases[i].place().to_path_buf(),
            None => path_of(&id.path).into(),
        }
    }

    /// Where the file is to be opened that a process had open or mapped, and whether it is, or will
    /// be, what it was.
    pub fn place(&mut self, id: &FileId) -> Result<(PathBuf, bool), RestoreError> {
        let Some(i) = self.case(id) else { return Ok((path_of(&id.path).into(), false)) };
        let (case, how) = (&self.cases[i], self.how);
        let missing = matches!(case.now, Now::Gone | Now::Replaced) && case.made.is_none();
        if how == Files::Refuse && !matches!(case.now, Now::There) {
            let elsewhere = self
                .cases
                .iter()
                .filter(|c| c.is_open() && !matches!(c.now, Now::There) && self.concerns(c));
            return Err(refused(&elsewhere.map(|c| (&*c.path, c.described())).collect::<Vec<_>>()));
        }
        if !missing {
            let moved = matches!(case.now, Now::Moved(_)) || case.made.is_some();
            let put = case.has(bits::CONTENT) && case.has(bits::WRITTEN);
            let put = put && case.hands_off.is_none() && self.moves();
            return Ok((case.place().to_path_buf(), moved || put));
        }
        // What is only read and was replaced by others is looked at as ever.
        let replaced = matches!(case.now, Now::Replaced) && !self.is_newer(&case.path);
        if !case.has(bits::CONTENT) || replaced && !case.has(bits::WRITTEN) {
            return Ok((case.path.clone(), false));
        }
        let made = self.make(i)?;
        Ok((made, true))
    }

    /// The same for one that cannot be what lies there now: it has the name only if that came from
    /// the program itself.
    pub fn instead(&mut self, id: &FileId) -> Option<Result<PathBuf, RestoreError>> {
        let i = self.case(id)?;
        let case = &mut self.cases[i];
        let replaced = matches!(case.now, Now::Replaced) && !case.has(bits::WRITTEN);
        if !replaced || !case.has(bits::CONTENT) || self.how == Files::Refuse {
            return None;
        }
        case.hands_off.get_or_insert_with(|| "another file has its name".into());
        Some(self.make(i))
    }

    fn is_newer(&self, path: &Path) -> bool {
        self.newer.iter().any(|newer| newer.path == *path)
    }

    /// Makes a file that is gone again, empty, under a name of ours in its folder.
    fn make(&mut self, i: usize) -> Result<PathBuf, RestoreError> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let case = &mut self.cases[i];
        let failed = |e: io::Error| {
            file_error(&case.file.path, format!("is gone, and cannot be made again: {e}"))
        };
        let folder = case.path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(folder).map_err(failed)?;
        let name = case.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let made = folder.join(format!(".{name}.eyrie-{}-{number}", std::process::id()));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&made).map_err(failed)?;
        case.made = Some(made.clone());
        file.set_permissions(Permissions::from_mode(case.mode)).map_err(failed)?;
        Ok(made)
    }

    /// Refuses what is to be refused. Changes nothing.
    pub fn compare(&self, contents: Contents<'_>) -> Result<(), RestoreError> {
        let contents: Contents<'_> =
            &|id| self.contents.get(&id).map(|file| &**file).or_else(|| contents(id));
        let mut different = Vec::new();
        for case in self.cases.iter().filter(|case| self.concerns(case)) {
            let Some(what) = case.differs(contents, self.appends()) else { continue };
            match self.how {
                Files::Refuse if case.will_be_cut(self.appended) => {}
                Files::Refuse => different.push((&*case.path, what)),
                Files::Restore => {
                    if let Some(why) = self.obstacle(case, contents) {
                        let what = format!("{what}, and cannot be put back: {why}");
                        return Err(file_error(&case.file.path, what));
                    }
                }
                Files::Auto | Files::Warn => {}
            }
        }
        if self.how == Files::Refuse {
            different.extend(self.renamed.iter().map(|one| (&*one.path, one.described())));
            let gone = |path: &&PathBuf| self.again.contains(*path) && !path.exists();
            let what = || "was removed since the checkpoint".to_owned();
            different.extend(self.folders.keys().filter(gone).map(|path| (&**path, what())));
            let differs = |s: &'_ Special| s.differs().map(str::to_owned);
            different.extend(self.specials.iter().filter_map(|s| Some((&*s.path, differs(s)?))));
        }
        if different.is_empty() { Ok(()) } else { Err(refused(&different)) }
    }

    fn appends(&self) -> (Appended, &RecordedAppends) {
        (self.appended, &self.recorded)
    }

    /// Names beside a file count if that has been moved on.
    fn concerns(&self, case: &Case) -> bool {
        let moved = |c: &Case| c.is_open() && matches!(c.now, Now::Moved(_));
        !case.has(bits::BESIDE) || self.cases.iter().any(moved)
    }

    /// Why a file is left as it is.
    fn obstacle(&self, case: &Case, contents: Contents<'_>) -> Option<String> {
        let stored = case.has(bits::CONTENT) && contents(case.id).is_some();
        match (&case.hands_off, self.how) {
            (_, Files::Warn) => Some("--files warn".into()),
            (Some(why), _) => Some(why.clone()),
            (None, _) if stored || case.has(bits::GROWS) => None,
            (None, _) if matches!(case.now, Now::Moved(_)) && case.is_as_long_ago() => None,
            (None, _) => Some("the image does not have what it held (--files-limit)".into()),
        }
    }

    /// Puts them back.
    pub fn put_back(&mut self, contents: Contents<'_>) -> Result<(), RestoreError> {
        let own = std::mem::take(&mut self.contents);
        let contents: Contents<'_> =
            &|id| own.get(&id).map(|file| &**file).or_else(|| contents(id));
        if self.moves() {
            self.folders_back();
            self.set_newer_aside();
            self.set_journals_aside();
        }
        // Contents first: they are where the files are, whatever their names.
        for i in 0..self.cases.len() {
            let case = &self.cases[i];
            let what = case.differs(contents, self.appends()).filter(|_| self.concerns(case));
            if let Some(what) = what {
                let note = self.put_one(i, &what, contents)?;
                self.notes.push(note);
            }
        }
        self.names_back();
        self.marks_back();
        self.name_unsure();
        let moves = self.moves();
        self.notes.extend(self.specials.iter().filter_map(|special| special.put_back(moves)));
        self.done = true;
        Ok(())
    }

    /// Folders get the names that they had, with all that is below.
    fn folders_back(&mut self) {
        let mut renamed = std::mem::take(&mut self.renamed);
        for i in 0..renamed.len() {
            let one = renamed[i].clone();
            let path = one.path.clone();
            if let Err(e) = one.rename() {
                let what = format!("{}; it cannot be put back: {e}", one.described());
                self.notes.push(FileNote { path, what, left: true });
                continue;
            }
            renamed[i + 1..].iter_mut().for_each(|later| one.back(&mut later.place));
            self.newer.iter_mut().for_each(|newer| one.back(&mut newer.path));
            for case in &mut self.cases {
                case.made.iter_mut().for_each(|made| one.back(made));
                if let Now::Moved(to) = &mut case.now {
                    one.back(to);
                    if *to == case.path {
                        case.now = Now::There;
                    }
                }
            }
            // One that had its name for us alone.
            drop(fs::remove_dir(&one.place));
            let what = format!("{}; it is put back", one.described());
            self.notes.push(FileNote { path, what, left: false });
        }
    }

    /// Files get their owners, rights and other marks, and those that hold what they held the time
    /// of their last change.
    fn marks_back(&mut self) {
        let mut notes = Vec::new();
        for case in self.cases.iter().filter(|c| c.hands_off.is_none()) {
            let new = case.made.is_some();
            let Ok(meta) = fs::symlink_metadata(&case.path) else { continue };
            let is_it = match &case.made {
                Some(made) => meta.is_file() && fs::symlink_metadata(made).is_err(),
                None => case.is_it(&meta) && case.has(bits::WRITTEN | bits::TOUCHED),
            };
            if !is_it {
                continue;
            }
            let as_then = case.has(bits::CONTENT) || new;
            let changed_ns = as_then.then_some(case.file.mtime_ns);
            let then = Then { marks: case.marks.as_ref(), mode: case.mode, changed_ns };
            let note = |(what, left)| FileNote { path: case.path.clone(), what, left };
            let only_told = !self.moves() && !new;
            notes.extend(then.put_back(&case.path, new, only_told).map(note));
        }
        self.notes.extend(notes);
    }

    fn moves(&self) -> bool {
        matches!(self.how, Files::Auto | Files::Restore)
    }

    fn put_one(
        &mut self,
        i: usize,
        what: &str,
        contents: Contents<'_>,
    ) -> Result<FileNote, RestoreError> {
        let case = &self.cases[i];
        let path = case.path.clone();
        let content = contents(case.id).filter(|_| case.has(bits::CONTENT));
        let obstacle = self.obstacle(case, contents);
        if let Some(made) = &case.made {
            let all = content.ok_or_else(|| file_error(&case.file.path, "is not in the image"))?;
            put(made, all, case.file.size)
                .map_err(|e| file_error(&case.file.path, format!("cannot be made again: {e}")))?;
            let nameless = matches!(case.now, Now::Replaced) && obstacle.is_some();
            let how = if nameless { "; the program has it without its name" } else { "" };
            let what = format!("{what}; it is made again{how}");
            return Ok(FileNote { path, what, left: nameless });
        }
        if let Some(why) = obstacle {
            let what = format!("{what}; it is left as it is: {why}");
            return Ok(FileNote { path, what, left: true });
        }
        let mut where_to = String::new();
        if matches!(case.now, Now::Gone | Now::Replaced) {
            self.make(i)?;
        } else if let Some(aside) = self.aside.as_ref().filter(|_| content.is_some())
            && let Some(to) = keep(case.place(), aside, false)
        {
            where_to = format!("; what it held since is in {}", to.display());
        }
        let case = &self.cases[i];
        if let Some(content) = content
            && let Err(e) = put(case.place(), content, case.file.size)
        {
            let what = format!("{what}; it cannot be put back: {e}");
            return Ok(FileNote { path, what, left: true });
        }
        Ok(FileNote { path, what: format!("{what}; it is put back{where_to}"), left: false })
    }

    /// Gives files the names that they had, by way of names of ours: they may have changed places.
    fn names_back(&mut self) {
        let mut renames: Vec<(usize, PathBuf)> = Vec::new();
        for (i, case) in self.cases.iter().enumerate().filter(|(_, case)| self.concerns(case)) {
            let free = self.moves() && case.hands_off.is_none();
            match (&case.made, &case.now) {
                (Some(made), Now::Gone) => renames.push((i, made.clone())),
                (Some(made), _) if free => renames.push((i, made.clone())),
                // It stays without a name.
                (Some(made), _) => drop(fs::remove_file(made)),
                (None, Now::Moved(to)) if free => renames.push((i, to.clone())),
                _ => {}
            }
        }
        let sources: Vec<PathBuf> = renames.iter().map(|(_, from)| from.clone()).collect();
        let mut second: Vec<(usize, PathBuf)> = Vec::new();
        let mut failed = Vec::new();
        for (i, from) in renames {
            let case = &self.cases[i];
            let to = &case.path;
            if fs::symlink_metadata(to).is_ok() && !sources.contains(to) && !self.clear(to) {
                failed.push((i, "something else has its name, and cannot be moved".into()));
                continue;
            }
            let links = fs::symlink_metadata(&from).map_or(0, |m| m.nlink());
            if case.made.is_none() && links < u64::from(case.links) {
                // It had both names.
                failed.extend(fs::hard_link(&from, to).err().map(|e| (i, e.to_string())));
                continue;
            }
            let between = to.with_file_name(format!(".eyrie-{}-{i}", std::process::id()));
            match fs::rename(&from, &between) {
                Ok(()) => second.push((i, between)),
                Err(e) => failed.push((i, e.to_string())),
            }
        }
        for (i, from) in second {
            let renamed = fs::rename(from, &self.cases[i].path);
            failed.extend(renamed.err().map(|e| (i, e.to_string())));
        }
        for (i, why) in failed {
            let what = format!("does not have its name again: {why}");
            self.notes.push(FileNote { path: self.cases[i].path.clone(), what, left: true });
        }
    }

    /// Takes away what has the name of a file that comes back; it is kept.
    fn clear(&self, path: &Path) -> bool {
        clear(path, self.aside.as_deref()).is_some()
    }

    /// What the program made since the checkpoint.
    fn set_newer_aside(&mut self) {
        let mut newer = std::mem::take(&mut self.newer);
        newer.retain(|newer| !self.folders.contains_key(&newer.path));
        for (folder, Folder { mode, marks, .. }) in &self.folders {
            let mut new = fs::DirBuilder::new();
            // What cannot be made is missed by whoever wants it.
            if new.mode(*mode).create(folder).is_ok() {
                let then = Then { marks: marks.as_ref(), mode: *mode, changed_ns: None };
                let note = |(what, left)| FileNote { path: folder.clone(), what, left };
                self.notes.extend(then.put_back(folder, true, false).map(note));
            }
        }
        let notes = away(&newer, self.aside.as_deref());
        self.notes.extend(notes);
    }

    /// What the program may have made since stays, and is named, all in one line.
    fn name_unsure(&mut self) {
        self.unsure.retain(|new| !self.folders.contains_key(&new.path));
        let Some(first) = self.unsure.last() else { return };
        let more = match self.unsure.len() {
            1 => String::new(),
            all => format!(", as did {} more", all - 1),
        };
        let what =
            format!("came after the checkpoint{more}; left, as it is not known who made that");
        self.notes.push(FileNote { path: first.path.clone(), what, left: true });
    }

    /// Journals of databases that came after the checkpoint.
    fn set_journals_aside(&mut self) {
        let known = |path: &Path| self.cases.iter().any(|case| case.path == path);
        let in_place = |c: &&Case| c.has(bits::WRITTEN) && !c.has(bits::GROWS);
        let mut new = Vec::new();
        for case in self.cases.iter().filter(in_place).filter(|c| c.hands_off.is_none()) {
            for ending in JOURNALS {
                let mut name: OsString = case.path.clone().into_os_string();
                name.push(ending);
                let path = PathBuf::from(name);
                let is_new = fs::symlink_metadata(&path).is_ok_and(|m| m.is_file());
                if is_new && !known(&path) && leases::of(&path).is_none() {
                    new.push(path);
                }
            }
        }
        for path in new {
            let to = self.aside.as_ref().and_then(|aside| keep(&path, aside, true));
            let gone = to.is_some() || fs::remove_file(&path).is_ok();
            let what = match to {
                Some(to) => format!("came after the checkpoint; it is now {}", to.display()),
                None if gone => "came after the checkpoint; it is removed".into(),
                None => "came after the checkpoint; it cannot be removed".into(),
            };
            self.notes.push(FileNote { path, what, left: !gone });
        }
    }
}

impl Drop for Undo {
    fn drop(&mut self) {
        if !self.done {
            // Ours, made where there was none.
            self.cases
                .iter()
                .filter_map(|c| c.made.as_ref())
                .for_each(|m| drop(fs::remove_file(m)));
        }
    }
}

impl Case {
    fn described(&self) -> String {
        match &self.now {
            Now::There => "was changed since the checkpoint".into(),
            Now::Moved(to) => format!("was renamed to {} since the checkpoint", to.display()),
            Now::Replaced => "was replaced by another file since the checkpoint".into(),
            Now::Gone => "was removed since the checkpoint".into(),
        }
    }

    /// Whether size and modification time are those of the checkpoint.
    fn is_as_long_ago(&self) -> bool {
        fs::symlink_metadata(self.place()).is_ok_and(|meta| {
            let now = file_id(vec![], &meta);
            (now.size, now.mtime_ns) == (self.file.size, self.file.mtime_ns)
        })
    }

    /// Whether it is only longer, and is cut back where it is opened
    /// ([`crate::resources::files::appends`]).
    fn will_be_cut(&self, appended: Appended) -> bool {
        let longer = fs::symlink_metadata(self.place()).is_ok_and(|m| m.len() > self.file.size);
        let cut = appended != Appended::Keep && self.hands_off.is_none();
        self.has(bits::GROWS) && self.has(bits::WRITTEN) && longer && cut
    }

    /// What is not as it was, if that is for us.
    fn differs(
        &self,
        contents: Contents<'_>,
        (appended, recorded): (Appended, &RecordedAppends),
    ) -> Option<String> {
        let described = || Some(self.described());
        if !matches!(self.now, Now::There) {
            // One that is only read and was replaced is looked at when it is opened.
            let read_only = !self.has(bits::WRITTEN | bits::TOUCHED) && self.made.is_none();
            let looked_at = matches!(self.now, Now::Replaced) && read_only;
            return if looked_at { None } else { described() };
        }
        if !self.has(bits::WRITTEN | bits::TOUCHED) {
            return None;
        }
        let meta = fs::symlink_metadata(&self.path).ok()?;
        if self.has(bits::GROWS) && self.has(bits::WRITTEN) && meta.len() > self.file.size {
            // Lines of the program itself come twice; what is written at a place comes there again.
            let stays = self.has(bits::APPENDS) && self.hands_off.is_some();
            let twice = stays && appended != Appended::Keep && !recorded.has(&meta);
            return twice.then(|| "was appended to since the checkpoint".into());
        }
        match contents(self.id).filter(|_| self.has(bits::CONTENT)) {
            Some(content) => match is_same(&self.path, content, self.file.size) {
                Ok(true) => None,
                _ => described(),
            },
            None if self.has(bits::GROWS) || self.is_as_long_ago() => None,
            None => described(),
        }
    }
}

/// Names the first few files that are not as they were, of which there is one at least.
pub(super) fn refused(different: &[(&Path, String)]) -> RestoreError {
    let named = different.iter().take(MAX_NAMED).skip(1);
    let mut all: String = named.map(|(p, what)| format!("; {} {what}", p.display())).collect();
    if different.len() > MAX_NAMED {
        all += &format!("; so are {} more", different.len() - MAX_NAMED);
    }
    let (path, what) = &different[0];
    let what =
        format!("{what}{all}; the program would find there what it wrote later (--files refuse)");
    file_error(path.as_os_str().as_bytes(), what)
}

/// Where a file is that is not under its path any more: in its folder, or below.
fn moved(case: &Case) -> Option<PathBuf> {
    let along =
        case.elsewhere.as_ref().filter(|to| fs::symlink_metadata(to).is_ok_and(|m| case.is_it(&m)));
    if let Some(to) = along {
        return Some(to.clone());
    }
    let is_it = |entry: &DirEntry| {
        let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
        is_file && entry.metadata().is_ok_and(|meta| case.is_it(&meta))
    };
    let mut left = MAX_ENTRIES;
    let folders = [Some(&case.path), case.elsewhere.as_ref()].into_iter().flatten();
    let mut folders = folders.filter_map(|path| path.parent());
    folders.find_map(|folder| file_with(case.file.ino, folder, true, &mut left, is_it))
}

#[cfg(test)]
#[path = "undo_tests.rs"]
mod tests;
