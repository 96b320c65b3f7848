//! Streams of C (`FILE`), which read and write inside the C library, where no function of ours is
//! asked: those that read of a random device, and those that append to a file, are made by us, and
//! come back to us for each read and write.
//!
//! Kept true: they are streams of the GNU C library in all that a program can do with them. They
//! have a descriptor, and may become wide: from then on the C library reads and writes by itself.
//! Where one cannot be made so it is the C library's own.

use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicUsize};

use libc::{FILE, mode_t, size_t, ssize_t};

use super::appends;
use super::before;
use super::entries;
use super::random::{eyrie_libc_open, eyrie_libc_read, is_named, reads_random};
use super::real::{self, Real, call};
use super::tells::TELLS;

/// Where the descriptor is in a `FILE`, what it has for wide characters, and whether it uses that:
/// as the GNU C library has it where addresses have 64 bits.
const DESCRIPTOR_AT: usize = 112;
const WIDE_AT: usize = 160;
const MODE_AT: usize = 192;
const IS_KNOWN: bool = cfg!(all(target_arch = "x86_64", target_env = "gnu"));

/// `cookie_io_functions_t`.
#[repr(C)]
struct Functions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int>,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
    fn malloc_usable_size(at: *mut c_void) -> size_t;
}

/// A stream's own descriptor, and its part for wide characters.
struct Cookie {
    fd: c_int,
    wide: *mut c_void,
}

/// # Safety
/// `cookie` is one of `stream_of`'s.
unsafe fn descriptor(cookie: *mut c_void) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { (*cookie.cast::<Cookie>()).fd }
}

unsafe extern "C" fn stream_read(cookie: *mut c_void, at: *mut c_char, count: size_t) -> ssize_t {
    // SAFETY: the stream's own buffer and cookie.
    unsafe { eyrie_libc_read(descriptor(cookie), at.cast(), count) }
}

/// Writes all, if it can.
unsafe extern "C" fn stream_write(
    cookie: *mut c_void,
    at: *const c_char,
    count: size_t,
) -> ssize_t {
    // SAFETY: the stream's own buffer and cookie.
    unsafe { appends::write_all(descriptor(cookie), at, count) as ssize_t }
}

unsafe extern "C" fn stream_seek(cookie: *mut c_void, at: *mut i64, whence: c_int) -> c_int {
    // SAFETY: the stream's own variable and cookie.
    unsafe {
        let place = libc::lseek64(descriptor(cookie), *at, whence);
        if place >= 0 {
            *at = place;
        }
        if place < 0 { -1 } else { 0 }
    }
}

unsafe extern "C" fn stream_close(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream's own cookie, of which it has no more use. Made by `Box::into_raw`.
    unsafe {
        let cookie = Box::from_raw(cookie.cast::<Cookie>());
        retire(cookie.wide);
        libc::close(cookie.fd)
    }
}

/// Streams that are opened anew just now: they keep their part for wide characters.
static REOPENED: AtomicUsize = AtomicUsize::new(0);
/// How many parts of closed streams are kept: who closes one has a last look at it.
const KEPT: usize = 64;
static RETIRED: [AtomicPtr<c_void>; KEPT] = [const { AtomicPtr::new(null_mut()) }; KEPT];
static NEXT: AtomicUsize = AtomicUsize::new(0);

/// Frees the part of a stream that was closed long ago.
unsafe fn retire(wide: *mut c_void) {
    if !wide.is_null() && REOPENED.load(Relaxed) == 0 {
        let before = RETIRED[NEXT.fetch_add(1, Relaxed) % KEPT].swap(wide, Relaxed);
        // SAFETY: nobody else has it.
        unsafe { libc::free(before) };
    }
}

/// What a new stream of the C library has for wide characters; empty, if it is not what we know.
fn pattern() -> &'static [u8] {
    static NEW: OnceLock<Vec<u8>> = OnceLock::new();
    NEW.get_or_init(|| {
        let real = real::FOPEN.found();
        if !IS_KNOWN || real.is_null() {
            return Vec::new();
        }
        // SAFETY: a stream of the C library, in a block of the allocator's, whose bounds are kept.
        unsafe {
            let (path, mode) = (c"/dev/null".as_ptr(), c"ae".as_ptr());
            let stream = call!(real, fn(*const c_char, *const c_char) -> *mut FILE, path, mode);
            if stream.is_null() {
                return Vec::new();
            }
            let at = stream.cast::<u8>();
            let size = malloc_usable_size(stream.cast());
            let mut found = Vec::new();
            if size > MODE_AT + 4
                && *at.add(DESCRIPTOR_AT).cast::<c_int>() == libc::fileno(stream)
                && *at.add(MODE_AT).cast::<c_int>() == 0
            {
                let wide = *at.add(WIDE_AT).cast::<*mut u8>();
                let from = (wide as usize).wrapping_sub(at as usize);
                if from > MODE_AT && from < size {
                    found = std::slice::from_raw_parts(wide, size - from).to_vec();
                }
            }
            libc::fclose(stream);
            found
        }
    })
}

/// The same for one more stream; null, if it cannot be had.
fn wide() -> *mut c_void {
    let new = pattern();
    if new.is_empty() {
        return null_mut();
    }
    // SAFETY: the block has that size.
    unsafe {
        let copy = libc::malloc(new.len());
        if !copy.is_null() {
            copy.copy_from_nonoverlapping(new.as_ptr().cast(), new.len());
        }
        copy
    }
}

/// A stream of a descriptor that reads and writes through us; null if it cannot be had.
unsafe fn stream_of(fd: c_int, mode: *const c_char, writes: bool) -> *mut FILE {
    let wide = if writes { wide() } else { null_mut() };
    if writes && wide.is_null() {
        return null_mut();
    }
    let functions = Functions {
        read: stream_read,
        write: writes.then_some(stream_write),
        seek: writes.then_some(stream_seek),
        close: stream_close,
    };
    let cookie = Box::into_raw(Box::new(Cookie { fd, wide }));
    // SAFETY: the stream is ours, and laid out as we know.
    unsafe {
        let stream = fopencookie(cookie.cast(), mode, functions);
        if stream.is_null() {
            drop(Box::from_raw(cookie));
            libc::free(wide);
            return stream;
        }
        let at = stream.cast::<u8>();
        // Streams of C++ read and write by the descriptor.
        let place = at.add(DESCRIPTOR_AT).cast::<c_int>();
        if IS_KNOWN && *place == -2 {
            *place = fd;
        }
        if writes {
            *at.add(WIDE_AT).cast::<*mut c_void>() = wide;
            *at.add(MODE_AT).cast::<c_int>() = 0;
        }
        stream
    }
}

/// A stream of a random device; null if it cannot be had.
unsafe fn random(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own name; the descriptor is ours.
    unsafe {
        let fd = eyrie_libc_open(path, libc::O_RDONLY | libc::O_CLOEXEC, 0);
        if fd < 0 {
            return null_mut();
        }
        let stream = stream_of(fd, mode, false);
        if stream.is_null() {
            libc::close(fd);
        }
        stream
    }
}

/// How a file is opened of which the mode begins with `letter`; nothing for other modes.
unsafe fn opening(mode: *const c_char, letter: u8) -> Option<c_int> {
    // SAFETY: a text, by the contract of who opens it.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    let (first, rest) = mode.split_first()?;
    // What is behind a comma is a set of characters.
    if *first != letter || rest.contains(&b',') {
        return None;
    }
    let access = if rest.contains(&b'+') { libc::O_RDWR } else { libc::O_WRONLY };
    let extra = |letter, flag| if rest.contains(&letter) { flag } else { 0 };
    Some(access | extra(b'e', libc::O_CLOEXEC) | extra(b'x', libc::O_EXCL))
}

/// How a file is opened that is appended to: flags beside `O_APPEND`.
unsafe fn appending(mode: *const c_char) -> Option<c_int> {
    // SAFETY: by the caller's word.
    unsafe { opening(mode, b'a') }
}

/// How a file is opened that is to be empty then.
unsafe fn emptying(mode: *const c_char) -> Option<c_int> {
    // SAFETY: by the caller's word.
    unsafe { opening(mode, b'w') }.map(|flags| flags | libc::O_CREAT | libc::O_TRUNC)
}

/// Whether appends may have to be done once. Before MPI_Init that is not known.
fn may_append() -> bool {
    TELLS.load(Relaxed) || before::is_asked()
}

/// A stream of a descriptor that is appended to, with these flags.
unsafe fn appender(fd: c_int, flags: c_int) -> *mut FILE {
    let is_read = flags & libc::O_ACCMODE == libc::O_RDWR;
    let mode = if is_read { c"a+" } else { c"a" };
    appends::note(fd, flags | libc::O_APPEND);
    // SAFETY: the program's own descriptor.
    unsafe {
        let stream = stream_of(fd, mode.as_ptr(), true);
        if !stream.is_null() && !is_read {
            libc::lseek64(fd, 0, libc::SEEK_END);
        }
        stream
    }
}

/// The C library's.
unsafe fn plain_of(fd: c_int, mode: *const c_char) -> *mut FILE {
    let real = real::FDOPEN.found();
    // SAFETY: by the caller's word.
    unsafe { call!(real, fn(c_int, *const c_char) -> *mut FILE, fd, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe {
        if mode.is_null() {
            return plain_of(fd, mode);
        }
        if *mode.cast::<u8>() == b'r' && reads_random(fd) {
            return stream_of(fd, mode, false);
        }
        if may_append()
            && let Some(wish) = appending(mode)
            && appends::is_file(fd)
        {
            let flags = libc::fcntl(fd, libc::F_GETFL);
            let access = flags & libc::O_ACCMODE;
            if access == libc::O_RDWR || access == wish & libc::O_ACCMODE {
                libc::fcntl(fd, libc::F_SETFL, flags | libc::O_APPEND);
                let stream = appender(fd, wish & libc::O_ACCMODE);
                if !stream.is_null() {
                    return stream;
                }
            }
        }
        plain_of(fd, mode)
    }
}

unsafe fn fopen(real: &Real, path: *const c_char, mode: *const c_char) -> *mut FILE {
    const ALL: mode_t = 0o666;
    // SAFETY: the program's own arguments; the descriptor is the stream's.
    unsafe {
        if !path.is_null() && !mode.is_null() {
            if is_named(path) && *mode.cast::<u8>() == b'r' {
                return random(path, mode);
            }
            if may_append()
                && let Some(flags) = appending(mode)
                && !pattern().is_empty()
            {
                let fd = eyrie_libc_open(path, flags | libc::O_APPEND | libc::O_CREAT, ALL);
                if fd < 0 {
                    return null_mut();
                }
                let own = if appends::is_file(fd) { appender(fd, flags) } else { null_mut() };
                let stream = if own.is_null() { plain_of(fd, mode) } else { own };
                if stream.is_null() {
                    libc::close(fd);
                }
                return stream;
            }
            if TELLS.load(Relaxed)
                && let Some(flags) = emptying(mode)
            {
                let fd = eyrie_libc_open(path, flags, ALL);
                return if fd < 0 { null_mut() } else { plain_of(fd, mode) };
            }
        }
        let real = real.found();
        let stream = call!(real, fn(*const c_char, *const c_char) -> *mut FILE, path, mode);
        if !stream.is_null()
            && let Some(flags) = opening(mode, b'r')
            && flags & libc::O_ACCMODE == libc::O_RDWR
        {
            entries::note(libc::fileno(stream), flags);
        }
        stream
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe { fopen(&real::FOPEN, path, mode) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe { fopen(&real::FOPEN64, path, mode) }
}

/// The stream is the C library's from then on.
unsafe fn reopen(
    real: &Real,
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    let real = real.found();
    REOPENED.fetch_add(1, Relaxed);
    // SAFETY: the program's own arguments.
    let new = unsafe {
        call!(real, fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE, path, mode, stream)
    };
    REOPENED.fetch_sub(1, Relaxed);
    new
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_freopen(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe { reopen(&real::FREOPEN, path, mode, stream) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_freopen64(
    path: *const c_char,
    mode: *const c_char,
    stream: *mut FILE,
) -> *mut FILE {
    // SAFETY: the program's own arguments.
    unsafe { reopen(&real::FREOPEN64, path, mode, stream) }
}
