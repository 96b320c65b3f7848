//! Appends to files: `write` and its kin to a descriptor with `O_APPEND`, each once in all lives of
//! a rank (`eyrie_core::append`).
//!
//! Which descriptors may be of that kind is noted when they are opened. Whether one still is, is
//! asked at each write, so that nothing has to be known of who closes it. Pipes, terminals and
//! devices are none; so what goes to the job's output is not touched.

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::append::Tail;
use eyrie_ledger::door::file_number;
use libc::{iovec, size_t, ssize_t};

use super::points;
use super::real::{self, call};
use super::tells::TELLS;
use super::told::{errno, fail, told};

/// Descriptors below this may be known.
const DESCRIPTORS: usize = 1 << 16;
static OPENED: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
/// Those that may come from who started the program.
const GIVEN: std::ops::Range<c_int> = 3..256;

fn word(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let fd = usize::try_from(fd).ok()?;
    Some((OPENED.get(fd / 64)?, 1 << (fd % 64)))
}

/// Notes a descriptor that was opened like this. Returns it.
#[inline]
pub(super) fn note(fd: c_int, flags: c_int) -> c_int {
    if flags & libc::O_APPEND != 0
        && let Some((word, bit)) = word(fd)
    {
        word.fetch_or(bit, Relaxed);
    }
    fd
}

/// Notes another descriptor of the same file.
pub(super) fn note_copy(fd: c_int, copy: c_int) {
    if is_noted(fd) {
        note(copy, libc::O_APPEND);
    }
}

#[inline]
fn is_noted(fd: c_int) -> bool {
    word(fd).is_some_and(|(word, bit)| word.load(Relaxed) & bit != 0)
}

fn flags(fd: c_int) -> c_int {
    // SAFETY: numbers.
    unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) as c_int }
}

/// From MPI_Init on: descriptors that the program was started with.
pub(super) fn begin() {
    points::begin();
    let error = errno();
    for fd in GIVEN {
        let flags = flags(fd);
        if flags >= 0 {
            note(fd, flags);
        }
    }
    fail(error);
}

fn stat(fd: c_int) -> Option<libc::stat> {
    // SAFETY: it consists of numbers, and is filled.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::syscall(libc::SYS_fstat, fd, &raw mut stat) == 0).then_some(stat)
    }
}

/// Whether it is a file, and no pipe or device.
pub(super) fn is_file(fd: c_int) -> bool {
    stat(fd).is_some_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFREG)
}

/// A file that is appended to by a descriptor.
struct Open {
    fd: c_int,
    /// The rank that appends.
    rank: u32,
    id: u64,
    size: u64,
    /// It can be read by this one, if at all; opened when it is needed.
    reader: std::cell::Cell<c_int>,
}

const NOT_OPENED: c_int = -1;

impl Open {
    /// The file, if writes to the descriptor are appends.
    fn of(fd: c_int) -> Option<Open> {
        let flags = flags(fd);
        let stat = stat(fd).filter(|stat| {
            flags >= 0
                && flags & libc::O_APPEND != 0
                && flags & libc::O_ACCMODE != libc::O_RDONLY
                && stat.st_mode & libc::S_IFMT == libc::S_IFREG
        });
        let Some(stat) = stat else {
            // It was closed, and is something else.
            if let Some((word, bit)) = word(fd) {
                word.fetch_and(!bit, Relaxed);
            }
            return None;
        };
        let id = file_number(stat.st_dev, stat.st_ino);
        let reader = std::cell::Cell::new(NOT_OPENED);
        Some(Open { fd, rank: 0, id, size: stat.st_size as u64, reader })
    }

    fn reader(&self) -> c_int {
        if self.reader.get() == NOT_OPENED {
            let name = format!("/proc/self/fd/{}\0", self.fd);
            let flags = libc::O_RDONLY | libc::O_CLOEXEC;
            // SAFETY: a text that ends with 0.
            let fd = unsafe {
                let name = name.as_ptr().cast::<c_char>();
                libc::syscall(libc::SYS_openat, libc::AT_FDCWD, name, flags)
            };
            self.reader.set(if fd < 0 { self.fd } else { fd as c_int });
        }
        self.reader.get()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let reader = self.reader.get();
        if reader != NOT_OPENED && reader != self.fd {
            // SAFETY: it is ours.
            unsafe { libc::syscall(libc::SYS_close, reader) };
        }
    }
}

impl Tail for Open {
    fn id(&self) -> u64 {
        self.id
    }

    fn size(&self) -> u64 {
        stat(self.fd).map_or(self.size, |stat| stat.st_size as u64)
    }

    fn read(&self, at: u64, room: &mut [u8]) -> usize {
        let (fd, mut filled) = (self.reader(), 0);
        while filled < room.len() {
            let (rest, at) = (&mut room[filled..], at + filled as u64);
            // SAFETY: so many bytes may be written.
            let count = unsafe {
                libc::syscall(libc::SYS_pread64, fd, rest.as_mut_ptr(), rest.len(), at as i64)
            };
            match usize::try_from(count) {
                Ok(count) if count > 0 => filled += count,
                Err(_) if errno() == libc::EINTR => {}
                _ => break,
            }
        }
        filled
    }

    fn append(&mut self, bytes: &[u8]) -> (i64, i32) {
        points::reach("append-1", self.rank);
        // SAFETY: so many bytes may be read.
        let result = unsafe { plain(self.fd, bytes.as_ptr().cast(), bytes.len()) };
        points::reach("append-2", self.rank);
        (result as i64, if result < 0 { errno() } else { 0 })
    }

    fn place(&self) -> u64 {
        // SAFETY: numbers.
        unsafe { libc::syscall(libc::SYS_lseek, self.fd, 0, libc::SEEK_CUR) as u64 }
    }

    fn go_to(&self, place: u64) {
        // SAFETY: numbers.
        unsafe { libc::syscall(libc::SYS_lseek, self.fd, place, libc::SEEK_SET) };
    }
}

/// The C library's.
unsafe fn plain(fd: c_int, at: *const c_void, count: size_t) -> ssize_t {
    let real = real::WRITE.at();
    // SAFETY: by the caller's word.
    unsafe {
        if real.is_null() {
            return libc::syscall(libc::SYS_write, fd, at, count) as ssize_t;
        }
        call!(real, fn(c_int, *const c_void, size_t) -> ssize_t, fd, at, count)
    }
}

/// Whether a write to this descriptor may have to be one that is done once.
#[inline]
pub(super) fn may_append(fd: c_int) -> bool {
    TELLS.load(Relaxed) && is_noted(fd)
}

/// Appends once, if that is what a write to this descriptor is, and is recorded.
fn append(fd: c_int, bytes: &[u8]) -> Option<ssize_t> {
    if bytes.is_empty() || !may_append(fd) {
        return None;
    }
    let error = errno();
    let mut file = Open::of(fd)?;
    let done = told(|m| {
        file.rank = m.world().0;
        m.append(bytes, &mut file)
    })?;
    drop(file);
    fail(if done.result < 0 { done.error } else { error });
    Some(done.result as ssize_t)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_write(fd: c_int, at: *const c_void, count: size_t) -> ssize_t {
    // SAFETY: the program's own buffer.
    unsafe {
        if may_append(fd)
            && !at.is_null()
            && count <= isize::MAX as usize
            && let Some(done) = append(fd, std::slice::from_raw_parts(at.cast(), count))
        {
            return done;
        }
        plain(fd, at, count)
    }
}

/// Writes as much as can be written; returns how much that is.
///
/// # Safety
/// So many bytes may be read.
pub(super) unsafe fn write_all(fd: c_int, at: *const c_char, count: size_t) -> size_t {
    let mut written = 0;
    while written < count {
        // SAFETY: by the caller's word.
        let more = unsafe { eyrie_libc_write(fd, at.add(written).cast(), count - written) };
        match usize::try_from(more) {
            Ok(more) if more > 0 => written += more,
            _ => break,
        }
    }
    written
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_writev(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: the program's own parts.
    unsafe {
        if may_append(fd)
            && let Some(count) = usize::try_from(count).ok().filter(|n| *n > 0)
        {
            let parts = std::slice::from_raw_parts(parts, count);
            let parts = parts.iter().filter(|part| part.iov_len > 0);
            let bytes = parts.flat_map(|part| {
                std::slice::from_raw_parts(part.iov_base.cast::<u8>(), part.iov_len).iter().copied()
            });
            if let Some(done) = append(fd, &bytes.collect::<Vec<u8>>()) {
                return done;
            }
        }
        let real = real::WRITEV.at();
        if real.is_null() {
            return libc::syscall(libc::SYS_writev, fd, parts, count) as ssize_t;
        }
        call!(real, fn(c_int, *const iovec, c_int) -> ssize_t, fd, parts, count)
    }
}
