//! What is noted of a file besides its content: its owner, access rights, extended attributes,
//! access control lists (which are such), flags (`chattr`), and the time of its last change. A file
//! that is put back gets them again.
//!
//! Kept true: a file is changed through a descriptor of it, so that nobody can put another in its
//! place meanwhile; what cannot be set is told. Of a user namespace's `nobody` it is not known who
//! that is, so no file of his is given to another.

use eyrie_image_format::state::{Attribute, Marks};
use std::ffi::CString;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Extended attributes of a file are stored up to this size in all.
const MAX_BYTES: usize = 16 << 10;
/// Those of a program or an administrator. Others are the file system's own.
const NAMES: [&[u8]; 5] =
    [b"user.", b"trusted.", b"security.", b"system.posix_acl_access", b"system.posix_acl_default"];
/// Signatures of contents, which the kernel makes.
const SIGNATURES: [&[u8]; 2] = [b"security.ima", b"security.evm"];
const ACL: &[u8] = b"system.posix_acl_";
/// Flags of `chattr` that are noted: c, i, a, d. `statx` and `FS_IOC_GETFLAGS` have the same bits.
const FLAGS: u32 = 0x4 | 0x10 | 0x20 | 0x40;
const FS_IOC_GETFLAGS: libc::c_ulong = 0x8008_6601;
const FS_IOC_SETFLAGS: libc::c_ulong = 0x4008_6602;
/// How users and groups are shown that a user namespace does not have.
const NOBODY: u32 = 65_534;

/// A file that is looked at, whatever its rights.
struct Seen {
    file: File,
    /// A path that leads to it, also where it is no file to be read.
    at: CString,
}

impl Seen {
    fn open(path: &Path) -> io::Result<Seen> {
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(libc::O_PATH | libc::O_NOFOLLOW).open(path)?;
        let at = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
        Ok(Seen { file, at })
    }

    fn path(&self) -> String {
        format!("/proc/self/fd/{}", self.file.as_raw_fd())
    }

    /// Its flags of `chattr`; none where its file system does not say.
    fn flags(&self) -> u32 {
        // SAFETY: all-zero is a valid value of this plain structure.
        let mut about: libc::statx = unsafe { std::mem::zeroed() };
        let fd = self.file.as_raw_fd();
        // SAFETY: a live descriptor, an empty C string and a live structure.
        unsafe { libc::statx(fd, c"".as_ptr(), libc::AT_EMPTY_PATH, 0, &raw mut about) };
        about.stx_attributes as u32 & about.stx_attributes_mask as u32 & FLAGS
    }

    /// Its extended attributes, and whether these are all.
    fn attributes(&self) -> (Vec<Attribute>, bool) {
        let list = filled(|to, room| {
            // SAFETY: a C string and a live buffer of this length.
            unsafe { libc::listxattr(self.at.as_ptr(), to.cast(), room) }
        });
        let list = match list {
            Ok(list) => list,
            // A file system without them.
            Err(e) => return (Vec::new(), e.raw_os_error() == Some(libc::ENOTSUP)),
        };
        let (mut found, mut left, mut whole) = (Vec::new(), MAX_BYTES, true);
        for name in list.split(|&b| b == 0).filter(|name| is_noted(name)) {
            let Ok(text) = CString::new(name) else { continue };
            let value = filled(|to, room| {
                // SAFETY: two C strings and a live buffer of this length.
                unsafe { libc::getxattr(self.at.as_ptr(), text.as_ptr(), to.cast(), room) }
            });
            match value {
                Ok(value) if name.len() + value.len() <= left => {
                    left -= name.len() + value.len();
                    found.push(Attribute { name: name.to_vec(), value });
                }
                _ => whole = false,
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        (found, whole)
    }
}

fn is_noted(name: &[u8]) -> bool {
    NAMES.iter().any(|begin| name.starts_with(begin)) && !SIGNATURES.contains(&name)
}

/// What a call has to say that is told how much room there is.
fn filled(call: impl Fn(*mut u8, usize) -> isize) -> io::Result<Vec<u8>> {
    let length = |n: isize| usize::try_from(n).map_err(|_| io::Error::last_os_error());
    let needed = length(call(std::ptr::null_mut(), 0))?;
    let mut bytes = vec![0; needed];
    if needed > 0 {
        let got = length(call(bytes.as_mut_ptr(), needed))?;
        bytes.truncate(got);
    }
    Ok(bytes)
}

/// How what lies at a path is marked. `None`: it cannot be looked at.
pub(crate) fn of(path: &Path) -> Option<Marks> {
    let seen = Seen::open(path).ok()?;
    let meta = seen.file.metadata().ok()?;
    let (attributes, whole) = seen.attributes();
    let (owner, group, flags) = (meta.uid(), meta.gid(), seen.flags());
    Some(Marks { owner, group, flags, attributes, whole })
}

/// How a file was marked.
pub(crate) struct Then<'a> {
    /// `None`: an image of before did not note it.
    pub marks: Option<&'a Marks>,
    pub mode: u32,
    /// Time of its last change, if what it holds is from then.
    pub changed_ns: Option<i64>,
}

/// What is done to a file, and what cannot be done.
struct Setting {
    /// Nothing is: it is only told.
    only_told: bool,
    kinds: Vec<&'static str>,
    failed: Vec<(&'static str, io::Error)>,
}

impl Setting {
    /// `differed`: it is to be told; `differs`: it is to be set.
    fn set(
        &mut self,
        kind: &'static str,
        [differed, differs]: [bool; 2],
        set: impl FnOnce() -> io::Result<()>,
    ) {
        if differed {
            self.kinds.push(kind);
        }
        if differs && !self.only_told {
            self.failed.extend(set().err().map(|e| (kind, e)));
        }
    }
}

impl Then<'_> {
    /// Marks a file so, if it is not `only_told`; `new`: it was made just now. Says what differed,
    /// in words that follow its path, and whether it still does.
    pub fn put_back(&self, path: &Path, new: bool, only_told: bool) -> Option<(String, bool)> {
        let mut setting = Setting { only_told, kinds: Vec::new(), failed: Vec::new() };
        match Seen::open(path) {
            Ok(seen) => self.set(&seen, new, &mut setting),
            Err(e) => setting.failed.push(("other marks", e)),
        }
        let Setting { kinds, failed, .. } = setting;
        let named = |kinds: Vec<&str>| format!("has {} than at the checkpoint", kinds.join(", "));
        if let Some((_, e)) = failed.first() {
            let kinds = failed.iter().map(|(kind, _)| *kind).collect();
            return Some((format!("{}; that cannot be put back: {e}", named(kinds)), true));
        }
        // Of a new one it is told already.
        if kinds.is_empty() || new {
            return None;
        }
        let then = if only_told { "that is left as it is" } else { "that is put back" };
        Some((format!("{}; {then}", named(kinds)), only_told))
    }

    /// A new owner takes rights and attributes away, and a list gives rights, so in this order.
    fn set(&self, seen: &Seen, new: bool, setting: &mut Setting) {
        let Ok(meta) = seen.file.metadata() else { return };
        let (before, _) = seen.attributes();
        let at = seen.path();
        if let Some(marks) = self.marks {
            let owner = is_another(meta.uid(), marks.owner, new).then_some(marks.owner);
            let group = is_another(meta.gid(), marks.group, new).then_some(marks.group);
            let other = owner.is_some() || group.is_some();
            let chown = || std::os::unix::fs::chown(&at, owner, group);
            setting.set("another owner", [other; 2], chown);
            let (now, _) = seen.attributes();
            let kinds = [(true, "another access control list"), (false, "other attributes")];
            for (lists, kind) in kinds {
                let [before, now, then] =
                    [&before, &now, &marks.attributes].map(|all| of_kind(all, lists));
                // Of what is not stored nothing is known.
                let known = marks.whole || new;
                let differ = [before != then && known, now != then && known];
                setting.set(kind, differ, || set_attributes(seen, &now, &then));
            }
            if new && !marks.whole {
                let missing = io::Error::other("the image does not have them");
                setting.failed.push(("other attributes", missing));
            }
        }
        let rights = seen.file.metadata().map_or(0, |meta| meta.mode() & 0o7777);
        let differ = [meta.mode() & 0o7777 != self.mode, rights != self.mode];
        setting.set("other access rights", differ, || {
            fs::set_permissions(&at, Permissions::from_mode(self.mode))
        });
        if let Some(ns) = self.changed_ns.filter(|_| !setting.only_told) {
            // A time alone is not worth a word.
            let _ = set_time(seen, &meta, ns);
        }
        if let Some(marks) = self.marks {
            let other = seen.flags() != marks.flags;
            setting.set("other flags (chattr)", [other; 2], || set_flags(&at, marks.flags));
        }
    }
}

/// Whether an owner is another one.
fn is_another(now: u32, then: u32, new: bool) -> bool {
    now != then && (new || now != NOBODY)
}

/// Access control lists, or the others.
fn of_kind(all: &[Attribute], lists: bool) -> Vec<Attribute> {
    all.iter().filter(|a| a.name.starts_with(ACL) == lists).cloned().collect()
}

fn set_attributes(seen: &Seen, now: &[Attribute], then: &[Attribute]) -> io::Result<()> {
    let done = |r: i32| if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let mut all = Ok(());
    for one in now.iter().filter(|one| then.iter().all(|other| other.name != one.name)) {
        let name = CString::new(&*one.name)?;
        // SAFETY: two C strings.
        all = all.and(done(unsafe { libc::removexattr(seen.at.as_ptr(), name.as_ptr()) }));
    }
    for one in then.iter().filter(|one| !now.contains(one)) {
        let name = CString::new(&*one.name)?;
        let (value, length) = (one.value.as_ptr(), one.value.len());
        // SAFETY: two C strings and live bytes of this length.
        let r = unsafe { libc::setxattr(seen.at.as_ptr(), name.as_ptr(), value.cast(), length, 0) };
        all = all.and(done(r));
    }
    all
}

fn set_time(seen: &Seen, meta: &fs::Metadata, ns: i64) -> io::Result<()> {
    if meta.mtime().saturating_mul(1_000_000_000).saturating_add(meta.mtime_nsec()) == ns {
        return Ok(());
    }
    let (seconds, rest) = (ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000));
    let times = [
        libc::timespec { tv_sec: 0, tv_nsec: libc::UTIME_OMIT },
        libc::timespec { tv_sec: seconds, tv_nsec: rest },
    ];
    // SAFETY: a C string and two times that outlive the call.
    match unsafe { libc::utimensat(libc::AT_FDCWD, seen.at.as_ptr(), times.as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set_flags(at: &str, flags: u32) -> io::Result<()> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(at)?;
    let mut all: libc::c_int = 0;
    // SAFETY: a live descriptor and a live number.
    if unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_GETFLAGS, &raw mut all) } < 0 {
        return Err(io::Error::last_os_error());
    }
    all = (all as u32 & !FLAGS | flags) as libc::c_int;
    // SAFETY: the same.
    match unsafe { libc::ioctl(file.as_raw_fd(), FS_IOC_SETFLAGS, &raw const all) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(path: &Path, name: &str, value: &str) -> bool {
        let then = [Attribute { name: name.into(), value: value.into() }];
        set_attributes(&Seen::open(path).unwrap(), &[], &then).is_ok()
    }

    fn then(marks: &Marks) -> Then<'_> {
        Then { marks: Some(marks), mode: 0o640, changed_ns: Some(7_000_000_001) }
    }

    #[test]
    fn what_was_marked_is_marked_so_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let some = set(&path, "user.one", "1");
        let marks = of(&path).unwrap();
        assert!(marks.whole && marks.attributes.len() == usize::from(some));
        let then = then(&marks);
        assert_eq!(then.put_back(&path, false, false), None, "a time is set without a word");
        let meta = fs::metadata(&path).unwrap();
        assert_eq!((meta.mtime(), meta.mtime_nsec()), (7, 1));
        fs::set_permissions(&path, Permissions::from_mode(0o4600)).unwrap();
        set(&path, "user.two", "2");
        let (told, left) = then.put_back(&path, false, true).unwrap();
        assert!(left && told.contains("other access rights") && told.ends_with("left as it is"));
        let (told, left) = then.put_back(&path, false, false).unwrap();
        assert!(!left && told.contains("other attributes") == some, "{told}");
        assert_eq!(of(&path).unwrap(), marks);
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
    }

    #[test]
    fn a_new_file_gets_all_and_is_told_of_only_where_that_fails() {
        let folder = tempfile::tempdir().unwrap();
        let (path, new) = (folder.path().join("file"), folder.path().join("new"));
        fs::write(&path, "").unwrap();
        let some = set(&path, "user.one", "1");
        // SAFETY: no arguments.
        let root = unsafe { libc::geteuid() } == 0;
        if root {
            std::os::unix::fs::chown(&path, Some(1234), Some(2345)).unwrap();
        }
        let mut marks = of(&path).unwrap();
        fs::write(&new, "").unwrap();
        assert_eq!(then(&marks).put_back(&new, true, false), None);
        assert_eq!(of(&new).unwrap(), marks);
        marks.whole = false;
        let told = then(&marks).put_back(&new, true, false).unwrap();
        assert!(told.1 && told.0.contains("does not have them"), "{told:?}");
        marks.whole = true;
        marks.attributes.push(Attribute { name: b"user.".to_vec(), value: vec![] });
        let told = then(&marks).put_back(&new, true, false).unwrap();
        assert!(told.1 && told.0.contains("other attributes"), "{told:?} {some}");
    }

    #[test]
    fn nobodys_file_stays_his() {
        assert!(is_another(1, 2, false) && !is_another(2, 2, true));
        assert!(!is_another(NOBODY, 2, false) && is_another(NOBODY, 2, true));
    }
}
