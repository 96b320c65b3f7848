//! Names in folders: what makes a name, empties its file, moves or removes it, once in all lives of
//! a rank.
//!
//! Of each call is recorded what came of it, which object it was about, and when. A rank that
//! repeats itself is told that. It does again what a restore may have undone, and nothing that
//! failed the first time: a `remove` that found nothing must not find what another rank has made.
//!
//! Kept true: in a replay, a name is left alone in whose place something else has come between this
//! rank's call and the start of this life: that is somebody else's (`Past::is_of_others`). All is
//! done by system calls, so that nothing of this library's is asked on the way.

use std::ffi::{c_char, c_int, c_uint};
use std::mem::{size_of, zeroed};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use eyrie_ledger::door::{What, file_number};
use libc::{AT_FDCWD, AT_REMOVEDIR, AT_SYMLINK_NOFOLLOW, mode_t};

use super::told::{asked, errno, fail, teller};

/// A name in a folder, as the program gives it.
#[derive(Clone, Copy)]
struct Entry {
    folder: c_int,
    path: *const c_char,
}

impl Entry {
    const fn new(folder: c_int, path: *const c_char) -> Entry {
        Entry { folder, path }
    }

    /// What has this name.
    fn found(self) -> Option<libc::statx> {
        const WANTED: c_uint = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
        // SAFETY: it consists of numbers, and is filled; the path is the program's own.
        unsafe {
            let mut found: libc::statx = zeroed();
            let (flags, to) = (AT_SYMLINK_NOFOLLOW, &raw mut found);
            let result = libc::syscall(libc::SYS_statx, self.folder, self.path, flags, WANTED, to);
            (result == 0).then_some(found)
        }
    }

    fn object(self) -> Object {
        self.found().as_ref().map_or(Object::default(), Object::of)
    }

    /// Whether it is on a file system of this machine alone, among those without a device.
    fn is_local(self) -> bool {
        const BTRFS: i64 = 0x9123_683E;
        const ZFS: i64 = 0x2FC1_2FC1;
        const LOCAL: [i64; 4] = [libc::TMPFS_MAGIC, libc::OVERLAYFS_SUPER_MAGIC, BTRFS, ZFS];
        // SAFETY: it consists of numbers, and is filled; the path is the program's own.
        unsafe {
            let mut found: libc::statfs = zeroed();
            let result = libc::syscall(libc::SYS_statfs, self.path, &raw mut found);
            self.folder == AT_FDCWD && result == 0 && LOCAL.contains(&found.f_type)
        }
    }

    /// Removes it, a folder if it is one.
    fn remove(self, flags: c_int) -> i64 {
        // SAFETY: the program's own path.
        unsafe { libc::syscall(libc::SYS_unlinkat, self.folder, self.path, flags) }
    }

    fn remove_any(self) -> i64 {
        let result = self.remove(0);
        if result < 0 && errno() == libc::EISDIR { self.remove(AT_REMOVEDIR) } else { result }
    }
}

/// Nanoseconds by the clock that files are stamped with.
fn now() -> u64 {
    // SAFETY: it consists of numbers, and is filled.
    unsafe {
        let mut time: libc::timespec = zeroed();
        libc::syscall(libc::SYS_clock_gettime, libc::CLOCK_REALTIME_COARSE, &raw mut time);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
}

fn nanoseconds(time: &libc::statx_timestamp) -> u64 {
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::from(time.tv_nsec)
}

/// Tells objects apart. Numbers of inodes are used again at once.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Object {
    inode: u64,
    /// When it was made; 0: the file system does not say.
    born: u64,
}

impl Object {
    fn of(found: &libc::statx) -> Object {
        let has_birth = found.stx_mask & libc::STATX_BTIME != 0;
        let born = if has_birth { nanoseconds(&found.stx_btime) } else { 0 };
        Object { inode: found.stx_ino, born }
    }
}

const PAST_BYTES: usize = 3 * size_of::<u64>();

/// What is recorded of a call that went well.
#[derive(Clone, Copy)]
struct Past {
    /// What was made, moved or removed.
    object: Object,
    /// When that was done.
    at: u64,
}

impl Past {
    fn of(object: Object) -> Past {
        Past { object, at: now() }
    }

    fn to_bytes(self) -> [u8; PAST_BYTES] {
        let mut bytes = [0; PAST_BYTES];
        let numbers = [self.object.inode, self.object.born, self.at];
        for (to, number) in bytes.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; PAST_BYTES]) -> Past {
        let number = |at: usize| bytes[at..].first_chunk().copied().map_or(0, u64::from_ne_bytes);
        Past { object: Object { inode: number(0), born: number(8) }, at: number(16) }
    }

    /// Whether something else has this name, that came there after this was done and before this
    /// life began: neither this rank nor a restore has put it there.
    fn is_of_others(self, entry: Entry) -> bool {
        let begun = teller().map_or(0, |m| m.begun());
        let between = |time: u64| self.at < time && time < begun;
        entry.found().is_some_and(|found| {
            let object = Object::of(&found);
            object != self.object
                && (between(nanoseconds(&found.stx_ctime)) || between(object.born))
        })
    }

    /// Whether what is in a file that was emptied must stay, as it was written since, other than by
    /// this life. A restore that puts a file back gives it its old time, too. What this rank had
    /// written to it, it writes again in the same places; what others have, must stay. What it may
    /// read again must be gone, unless others may have written there.
    fn is_kept(self, entry: Entry, flags: c_int) -> bool {
        entry.found().is_some_and(|found| {
            let has_grown = found.stx_size > 0 && nanoseconds(&found.stx_mtime) >= self.at;
            let is_read = flags & libc::O_ACCMODE == libc::O_RDWR;
            has_grown
                && !EMPTIED.has(found.stx_ino)
                && (!is_read || is_opened_by_others(entry, &found))
        })
    }
}

/// Files that this process has opened to be empty, the last of them.
struct Emptied {
    inodes: [AtomicU64; 64],
    next: AtomicUsize,
}

static EMPTIED: Emptied =
    Emptied { inodes: [const { AtomicU64::new(0) }; 64], next: AtomicUsize::new(0) };

impl Emptied {
    fn add(&self, inode: u64) {
        if !self.has(inode) {
            let next = self.next.fetch_add(1, Relaxed) % self.inodes.len();
            self.inodes[next].store(inode, Relaxed);
        }
    }

    fn has(&self, inode: u64) -> bool {
        self.inodes.iter().any(|own| own.load(Relaxed) == inode)
    }
}

fn number(device: (u32, u32), inode: u64) -> u64 {
    file_number(libc::makedev(device.0, device.1), inode)
}

fn is_opened_by_others(entry: Entry, found: &libc::statx) -> bool {
    let device = (found.stx_dev_major, found.stx_dev_minor);
    let file = number(device, found.stx_ino);
    let is_shared = || device.0 == 0 && !entry.is_local();
    teller().is_some_and(|m| m.is_opened_by_others(file, is_shared()))
}

/// Notes a file that was opened to write to it, so that other ranks know. Returns it.
#[inline]
pub(super) fn note(fd: c_int, flags: c_int) -> c_int {
    if fd >= 0
        && flags & libc::O_ACCMODE != libc::O_RDONLY
        && flags & libc::O_PATH == 0
        && let Some(m) = teller()
    {
        let error = errno();
        // SAFETY: it consists of numbers, and is filled.
        let stat = unsafe {
            let mut stat: libc::stat = zeroed();
            (libc::syscall(libc::SYS_fstat, fd, &raw mut stat) == 0).then_some(stat)
        };
        if let Some(stat) = stat.filter(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG) {
            m.note_opened(file_number(stat.st_dev, stat.st_ino));
        }
        fail(error);
    }
    fd
}

/// Does `first` and records what came of it; in a replay `again` is done, if it went well.
/// `first` gives the object, too.
fn once(first: impl Fn() -> (i64, Object), again: impl FnOnce(Past) -> i64) -> i64 {
    let mut is_first = false;
    let mut bytes = [0; PAST_BYTES];
    let told = asked(What::Entry, &mut bytes, |bytes| {
        is_first = true;
        let (result, object) = first();
        if result >= 0 {
            bytes.copy_from_slice(&Past::of(object).to_bytes());
        }
        result
    });
    match told {
        None => first().0,
        Some(result) if is_first || result < 0 => result,
        Some(_) => again(Past::from_bytes(&bytes)),
    }
}

fn remove(entry: Entry, real: impl Fn(Entry) -> i64) -> c_int {
    let first = || {
        let object = entry.object();
        (real(entry), object)
    };
    let again = |past: Past| {
        if !past.is_of_others(entry) {
            real(entry);
        }
        0
    };
    once(first, again) as c_int
}

fn rename(from: Entry, to: Entry, flags: c_uint) -> c_int {
    let real = |flags: c_uint| {
        // SAFETY: the program's own paths.
        unsafe {
            let call = libc::SYS_renameat2;
            libc::syscall(call, from.folder, from.path, to.folder, to.path, flags)
        }
    };
    let first = || {
        let object = from.object();
        (real(flags), object)
    };
    let again = |past: Past| {
        let is_there = from.found().is_some() && !past.is_of_others(from);
        if !is_there {
            return 0;
        }
        if flags & libc::RENAME_EXCHANGE != 0 {
            // It stands as it was left, or it has been undone.
            if to.object() != past.object {
                real(flags);
            }
        } else if past.is_of_others(to) {
            from.remove_any();
        } else {
            real(flags & !libc::RENAME_NOREPLACE);
        }
        0
    };
    once(first, again) as c_int
}

/// Makes a name that must not be there yet; in a replay it may be.
fn make(entry: Entry, real: impl Fn() -> i64) -> c_int {
    let first = || {
        let result = real();
        (result, if result < 0 { Object::default() } else { entry.object() })
    };
    let again = |_| {
        let result = real();
        if result < 0 && errno() == libc::EEXIST { 0 } else { result }
    };
    once(first, again) as c_int
}

/// Whether a file is opened that is to be empty then: it must not be there yet, or is cut.
pub(super) fn is_empty(flags: c_int) -> bool {
    const MADE: c_int = libc::O_CREAT | libc::O_EXCL;
    let is_cut = flags & libc::O_TRUNC != 0 && flags & libc::O_ACCMODE != libc::O_RDONLY;
    (flags & MADE == MADE || is_cut)
        && flags & libc::O_TMPFILE != libc::O_TMPFILE
        && flags & libc::O_PATH == 0
}

/// Opens such a file.
///
/// # Safety
/// The path is the program's own argument.
pub(super) unsafe fn open(folder: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let entry = Entry::new(folder, path);
    let real = |flags: c_int| {
        // SAFETY: the program's own path.
        unsafe { libc::syscall(libc::SYS_openat, folder, path, flags, mode) }
    };
    let first = || {
        let fd = real(flags);
        (fd, if fd < 0 { Object::default() } else { entry.object() })
    };
    let again = |past: Past| {
        if past.is_of_others(entry) {
            // This rank's own file is gone. What is written to it goes where that went.
            // SAFETY: a constant text.
            let (name, flags) = (c"gone".as_ptr(), libc::MFD_CLOEXEC);
            return unsafe { libc::syscall(libc::SYS_memfd_create, name, flags) };
        }
        let follow = if flags & libc::O_EXCL != 0 { libc::O_NOFOLLOW } else { 0 };
        let cut = if past.is_kept(entry, flags) { 0 } else { libc::O_TRUNC };
        real(flags & !(libc::O_EXCL | libc::O_TRUNC) | follow | cut)
    };
    let fd = once(first, again) as c_int;
    if fd >= 0 {
        EMPTIED.add(entry.object().inode);
    }
    fd
}

macro_rules! entries {
    ($($name:ident($($arg:ident: $type:ty),*) $body:expr;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            $body
        }
    )*};
}

type Path = *const c_char;

fn at(path: Path) -> Entry {
    Entry::new(AT_FDCWD, path)
}

fn cut(path: Path, mode: mode_t) -> c_int {
    // SAFETY: the program's own path.
    unsafe { open(AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

fn link(from: Entry, to: Entry, flags: c_int) -> c_int {
    make(to, || {
        // SAFETY: the program's own paths.
        unsafe {
            let call = libc::SYS_linkat;
            libc::syscall(call, from.folder, from.path, to.folder, to.path, flags)
        }
    })
}

fn symlink(target: Path, to: Entry) -> c_int {
    // SAFETY: the program's own texts.
    make(to, || unsafe { libc::syscall(libc::SYS_symlinkat, target, to.folder, to.path) })
}

fn folder(entry: Entry, mode: mode_t) -> c_int {
    // SAFETY: the program's own path.
    make(entry, || unsafe { libc::syscall(libc::SYS_mkdirat, entry.folder, entry.path, mode) })
}

fn fifo(entry: Entry, mode: mode_t) -> c_int {
    let mode = mode | libc::S_IFIFO;
    // SAFETY: the program's own path.
    make(entry, || unsafe { libc::syscall(libc::SYS_mknodat, entry.folder, entry.path, mode, 0) })
}

entries! {
    eyrie_libc_creat(path: Path, mode: mode_t) cut(path, mode);
    eyrie_libc_creat64(path: Path, mode: mode_t) cut(path, mode);
    eyrie_libc_unlink(path: Path) remove(at(path), |e| e.remove(0));
    eyrie_libc_unlinkat(dir: c_int, path: Path, flags: c_int)
        remove(Entry::new(dir, path), |e| e.remove(flags));
    eyrie_libc_remove(path: Path) remove(at(path), Entry::remove_any);
    eyrie_libc_rmdir(path: Path) remove(at(path), |e| e.remove(AT_REMOVEDIR));
    eyrie_libc_rename(from: Path, to: Path) rename(at(from), at(to), 0);
    eyrie_libc_renameat(dir: c_int, from: Path, other: c_int, to: Path)
        rename(Entry::new(dir, from), Entry::new(other, to), 0);
    eyrie_libc_renameat2(dir: c_int, from: Path, other: c_int, to: Path, flags: c_uint)
        rename(Entry::new(dir, from), Entry::new(other, to), flags);
    eyrie_libc_mkdir(path: Path, mode: mode_t) folder(at(path), mode);
    eyrie_libc_mkdirat(dir: c_int, path: Path, mode: mode_t) folder(Entry::new(dir, path), mode);
    eyrie_libc_mkfifo(path: Path, mode: mode_t) fifo(at(path), mode);
    eyrie_libc_mkfifoat(dir: c_int, path: Path, mode: mode_t) fifo(Entry::new(dir, path), mode);
    eyrie_libc_link(from: Path, to: Path) link(at(from), at(to), 0);
    eyrie_libc_linkat(dir: c_int, from: Path, other: c_int, to: Path, flags: c_int)
        link(Entry::new(dir, from), Entry::new(other, to), flags);
    eyrie_libc_symlink(target: Path, to: Path) symlink(target, at(to));
    eyrie_libc_symlinkat(target: Path, dir: c_int, to: Path) symlink(target, Entry::new(dir, to));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    /// A folder of this test, which goes with it.
    struct Folder(std::path::PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("eyrie-{name}-{}", std::process::id()));
            std::fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn path(&self, name: &str) -> CString {
            CString::new(self.0.join(name).to_str().unwrap()).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn entry(path: &CString) -> Entry {
        at(path.as_ptr())
    }

    fn empty(path: &CString) {
        std::fs::write(path.to_str().unwrap(), "").unwrap();
    }

    #[test]
    fn what_files_are_to_be_empty() {
        use libc::{O_CREAT, O_EXCL, O_PATH, O_RDONLY, O_RDWR, O_TMPFILE, O_TRUNC, O_WRONLY};
        for flags in [O_CREAT | O_EXCL, O_WRONLY | O_TRUNC, O_RDWR | O_CREAT | O_TRUNC] {
            assert!(is_empty(flags), "{flags:o}");
        }
        let others = [O_CREAT, O_EXCL, O_WRONLY, O_RDONLY | O_TRUNC, O_PATH | O_CREAT | O_EXCL];
        for flags in
            [O_TMPFILE | O_CREAT | O_EXCL | O_WRONLY, O_WRONLY | O_CREAT].into_iter().chain(others)
        {
            assert!(!is_empty(flags), "{flags:o}");
        }
    }

    #[test]
    fn nothing_is_of_others_where_no_life_began_anew() {
        let folder = Folder::new("of-others");
        let path = folder.path("a");
        let past = Past::of(Object::default());
        assert!(!past.is_of_others(entry(&path)));
        empty(&path);
        assert!(!past.is_of_others(entry(&path)));
    }

    #[test]
    fn what_is_recorded_is_read_again() {
        let past = Past { object: Object { inode: 7, born: 9 }, at: 1 << 60 };
        let again = Past::from_bytes(&past.to_bytes());
        assert!(again.object == past.object && again.at == past.at);
    }

    #[test]
    fn without_a_job_calls_do_what_they_say() {
        let folder = Folder::new("plain-calls");
        let [a, b, place] = ["a", "b", "place"].map(|name| folder.path(name));
        empty(&a);
        // SAFETY: texts that end with 0.
        unsafe {
            assert_eq!(eyrie_libc_rename(a.as_ptr(), b.as_ptr()), 0);
            assert_eq!((eyrie_libc_unlink(a.as_ptr()), errno()), (-1, libc::ENOENT));
            assert_eq!((eyrie_libc_link(b.as_ptr(), b.as_ptr()), errno()), (-1, libc::EEXIST));
            assert_eq!(eyrie_libc_mkdir(place.as_ptr(), 0o700), 0);
            assert_eq!((eyrie_libc_mkdir(place.as_ptr(), 0o700), errno()), (-1, libc::EEXIST));
            assert_eq!(eyrie_libc_remove(place.as_ptr()), 0);
            assert_eq!(eyrie_libc_remove(b.as_ptr()), 0);
            assert!(eyrie_libc_creat(b.as_ptr(), 0o600) >= 0 && entry(&b).object().inode > 0);
        }
    }
}
