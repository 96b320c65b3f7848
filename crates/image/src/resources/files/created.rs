//! Files and folders that programs made, as they were seen coming ([`crate::Watch`]): at a restore
//! those that came after the checkpoint are taken away, as the program will make them again
//! (`O_EXCL`, `mkdir`).
//!
//! They are noted in a file, too, so that a restore knows of them when nobody is left who saw it. A
//! line each: `boot ID OFFSET` for clocks, `made BORN INODE BYTES NAMED` (or `guessed`), `BYTES`
//! being the path in hexadecimal digits. Nobody waits until it is on the storage.
//!
//! Kept true: what is taken away is the very file or folder that was seen coming, by its inode
//! number and time of birth; a folder only goes if nothing is left in it.

use crate::kernel::inode::born;
use crate::resources::clocks;
use eyrie_image_format::state::State;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files and folders that are remembered.
const MAX_MADE: usize = 4096;
/// Lines after which the file is written anew.
const MAX_LINES: usize = 4 * MAX_MADE;
/// Longest file that is read.
const MAX_BYTES: u64 = 64 << 20;

/// Who made what came where several programs work, if that is not known.
pub(crate) const SOMEBODY: libc::pid_t = -1;

/// One that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Birth {
    pub born_ns: i64,
    pub ino: u64,
    /// When it was told of as coming under its name, at the latest, which a link does after its
    /// birth; 0: not known.
    pub named_ns: i64,
    /// First process of the program that made it; 0: the one that is restored; [`SOMEBODY`].
    pub by: libc::pid_t,
    /// Another program has used it since.
    pub shared: bool,
    /// The kernel did not say who made it ([`crate::resources::files::attribution`]).
    pub guessed: bool,
}

/// One that came after the checkpoint.
#[derive(Debug)]
pub(crate) struct Newer {
    pub path: PathBuf,
    pub meta: Metadata,
    /// Not told by the kernel: it only goes where a file has to come back under its name.
    pub guessed: bool,
}

impl Birth {
    /// What lies there now; `None`: its file system does not say when it came.
    pub fn of(meta: &Metadata, by: libc::pid_t) -> Option<Birth> {
        let born_ns = born(meta);
        let (shared, guessed, named_ns) = (false, false, 0);
        let ino = meta.ino();
        (born_ns != 0).then_some(Birth { born_ns, ino, named_ns, by, shared, guessed })
    }

    /// When it came, under this name.
    fn came_ns(&self) -> i64 {
        self.born_ns.max(self.named_ns)
    }

    fn is(&self, meta: &Metadata) -> bool {
        (meta.ino(), born(meta)) == (self.ino, self.born_ns)
    }
}

/// What was made, and how the clock of the day stood to that which began with the machine's start.
#[derive(Debug, Clone, Default)]
pub struct Made {
    boots: Vec<([u8; 16], i64)>,
    all: BTreeMap<PathBuf, Birth>,
    /// It only goes where a file has to come back under its name.
    pub(crate) only_in_the_way: bool,
}

impl Made {
    /// Nothing yet.
    pub(crate) fn new() -> Made {
        Made { boots: clocks::offset().into_iter().collect(), ..Made::default() }
    }

    /// What was noted in a file; what cannot be read there is passed over.
    pub fn read(path: &Path) -> Made {
        let mut made = Made::default();
        let fits = fs::metadata(path).is_ok_and(|m| m.is_file() && m.len() <= MAX_BYTES);
        let text = if fits { fs::read_to_string(path).unwrap_or_default() } else { String::new() };
        for line in text.lines() {
            made.line(line);
        }
        made
    }

    fn line(&mut self, line: &str) -> Option<()> {
        let mut words = line.split(' ');
        match words.next()? {
            "boot" => {
                let id = u128::from_str_radix(words.next()?, 16).ok()?.to_be_bytes();
                self.boots.push((id, words.next()?.parse().ok()?));
            }
            kind @ ("made" | "guessed") => {
                let (born_ns, ino) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
                let path = path_of(words.next()?)?;
                let guessed = kind == "guessed";
                let named_ns = words.next().and_then(|word| word.parse().ok()).unwrap_or(0);
                let birth = Birth { born_ns, ino, named_ns, by: 0, shared: false, guessed };
                self.insert(path, birth);
            }
            "shared" => drop(self.all.remove(&path_of(words.next()?)?)),
            _ => {}
        }
        Some(())
    }

    pub(crate) fn insert(&mut self, path: PathBuf, birth: Birth) {
        if self.all.len() < MAX_MADE || self.all.contains_key(&path) {
            self.all.insert(path, birth);
        }
    }

    pub(crate) fn remove(&mut self, path: &Path) -> Option<Birth> {
        self.all.remove(path)
    }

    pub(crate) fn get_mut(&mut self, path: &Path) -> Option<&mut Birth> {
        self.all.get_mut(path)
    }

    /// A folder has another name. Returns what it has under that.
    pub(crate) fn moved(&mut self, before: &Path, now: &Path) -> Vec<PathBuf> {
        let of = |path: &PathBuf| path.strip_prefix(before).ok().map(|rest| now.join(rest));
        let moved: Vec<_> = self.all.keys().filter_map(|p| Some((p.clone(), of(p)?))).collect();
        for (before, now) in &moved {
            let birth = self.all.remove(before);
            self.all.extend(birth.map(|birth| (now.clone(), birth)));
        }
        moved.into_iter().map(|(_, now)| now).collect()
    }

    /// What one program made belongs to another process of it now.
    pub(crate) fn hand_on(&mut self, from: libc::pid_t, to: libc::pid_t) {
        let own = self.all.values_mut().filter(|birth| birth.by == from);
        own.for_each(|birth| birth.by = to);
    }

    /// What one program made, and no other has used.
    pub(crate) fn of(&self, by: libc::pid_t) -> Made {
        let own = |(_, birth): &(&PathBuf, &Birth)| birth.by == by && !birth.shared;
        let own = self.all.iter().filter(own).map(|(path, birth)| (path.clone(), *birth));
        Made { boots: self.boots.clone(), all: own.collect(), only_in_the_way: false }
    }

    /// What these programs made, and nobody else has used, and what they may have made.
    pub(crate) fn of_all(&self, programs: &BTreeSet<libc::pid_t>) -> Made {
        let alone = programs.len() == 1;
        let own = |(_, birth): &(&PathBuf, &Birth)| {
            let may_be = birth.by == SOMEBODY || programs.contains(&birth.by);
            may_be && !(alone && birth.shared)
        };
        let own = self.all.iter().filter(own).map(|(path, birth)| (path.clone(), *birth));
        Made { boots: self.boots.clone(), all: own.collect(), only_in_the_way: false }
    }

    /// Others go on who may be about to use it: it goes only where a file has to come back under
    /// its name.
    pub fn leave_what_is_not_in_the_way(&mut self) {
        self.only_in_the_way = true;
    }

    /// What is below a folder stays as it is.
    pub fn leave_out(&mut self, folder: &Path) {
        self.all.retain(|path, _| !path.starts_with(folder));
    }

    /// When the newest of what a program made was made.
    pub(crate) fn newest(&self, by: libc::pid_t) -> i64 {
        self.all.values().filter(|b| b.by == by).map(Birth::came_ns).max().unwrap_or(0)
    }

    /// What is there of it that was made after the checkpoint, those below a folder before it.
    pub(crate) fn since(&self, state: &State) -> Vec<Newer> {
        self.moment(state).map_or_else(Vec::new, |moment| self.since_ns(moment))
    }

    /// The checkpoint's time of day here, in ns.
    pub(crate) fn moment(&self, state: &State) -> Option<i64> {
        clocks::moment(state, &self.boots)
    }

    /// The same of a time of day.
    pub(crate) fn since_ns(&self, moment: i64) -> Vec<Newer> {
        let mut there = self.there();
        there.retain(|newer| {
            self.all.get(&newer.path).is_some_and(|birth| birth.came_ns() >= moment)
        });
        there
    }

    /// What is there of it, those below a folder before it.
    pub(crate) fn there(&self) -> Vec<Newer> {
        let there = |(path, birth): (&PathBuf, &Birth)| {
            let meta = fs::symlink_metadata(path).ok()?;
            let guessed = birth.guessed;
            birth.is(&meta).then(|| Newer { path: path.clone(), meta, guessed })
        };
        self.all.iter().rev().filter_map(there).collect()
    }

    fn text(&self) -> String {
        let boots = self.boots.iter().map(|(id, ns)| boot_line(id, *ns));
        let made = self.all.iter().filter(|(_, birth)| !birth.shared);
        boots.chain(made.map(|(path, birth)| made_line(path, birth))).collect()
    }
}

fn boot_line(id: &[u8; 16], ns: i64) -> String {
    format!("boot {:032x} {ns}\n", u128::from_be_bytes(*id))
}

fn digits(path: &Path) -> String {
    path.as_os_str().as_bytes().iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn path_of(digits: &str) -> Option<PathBuf> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..digits.len()).step_by(2).map(byte).collect();
    Some(OsString::from_vec(bytes?).into())
}

fn made_line(path: &Path, birth: &Birth) -> String {
    let kind = if birth.guessed { "guessed" } else { "made" };
    let Birth { born_ns, ino, named_ns, .. } = birth;
    format!("{kind} {born_ns} {ino} {} {named_ns}\n", digits(path))
}

/// The file in which it is noted.
#[derive(Debug)]
pub(crate) struct Notes {
    path: PathBuf,
    file: File,
    lines: usize,
}

impl Notes {
    /// Begins, or goes on with what is there still of what is noted in it.
    pub fn open(path: &Path, made: &mut Made, by: libc::pid_t) -> io::Result<Notes> {
        let mut before = Made::read(path);
        before.all.retain(|path, birth| {
            birth.by = by;
            fs::symlink_metadata(path).is_ok_and(|meta| birth.is(&meta))
        });
        before.boots.retain(|(id, _)| made.boots.iter().all(|(other, _)| other != id));
        before.boots.append(&mut made.boots);
        before.all.append(&mut made.all);
        *made = before;
        Notes::anew(path, made)
    }

    fn anew(path: &Path, made: &Made) -> io::Result<Notes> {
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(&new)?;
        file.write_all(made.text().as_bytes())?;
        fs::rename(&new, path)?;
        Ok(Notes { path: path.to_path_buf(), file, lines: made.all.len() })
    }

    /// One is nobody's.
    pub fn remove(&mut self, path: &Path) {
        let _ = self.file.write_all(format!("shared {}\n", digits(path)).as_bytes());
        self.lines += 1;
    }

    /// Notes one.
    pub fn add(&mut self, path: &Path, made: &Made) {
        let Some(birth) = made.all.get(path) else { return };
        // Whoever cannot note it knows of it as long as it lives.
        let line = match birth.shared {
            true => format!("shared {}\n", digits(path)),
            false => made_line(path, birth),
        };
        let _ = self.file.write_all(line.as_bytes());
        self.lines += 1;
        if self.lines > MAX_LINES
            && let Ok(anew) = Notes::anew(&self.path, made)
        {
            *self = anew;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_noted_is_known_again_and_only_if_it_is_there_still() {
        let folder = tempfile::tempdir().unwrap();
        let notes = folder.path().join("made");
        let (mut made, by) = (Made::new(), 7);
        let mut book = Notes::open(&notes, &mut made, by).unwrap();
        for name in ["one", "odd\n\u{e9} name", "gone", "used", "other"] {
            let path = folder.path().join(name);
            fs::write(&path, name).unwrap();
            let birth = Birth::of(&fs::symlink_metadata(&path).unwrap(), by);
            let Some(birth) = birth else { return };
            made.insert(path.clone(), birth);
            book.add(&path, &made);
        }
        let used = folder.path().join("used");
        made.get_mut(&used).unwrap().shared = true;
        book.add(&used, &made);
        fs::remove_file(folder.path().join("gone")).unwrap();
        // Another file has its name.
        fs::rename(folder.path().join("other"), folder.path().join("kept")).unwrap();
        fs::write(folder.path().join("other"), "").unwrap();
        fs::OpenOptions::new().append(true).open(&notes).unwrap().write_all(b"made 1 x\n").unwrap();
        let mut again = Made::new();
        Notes::open(&notes, &mut again, 9).unwrap();
        let names = |made: &Made| -> Vec<PathBuf> { made.of(9).all.into_keys().collect() };
        let expected = ["odd\n\u{e9} name", "one"].map(|name| folder.path().join(name));
        assert_eq!(names(&again), expected);
        assert_eq!(names(&Made::read(&notes)), Vec::<PathBuf>::new());
        assert_eq!(Made::read(&notes).of(0).all.len(), 2);
        assert_eq!(again.boots.len(), 1);
    }
}
