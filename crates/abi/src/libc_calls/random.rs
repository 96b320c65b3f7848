//! Random bytes: `getrandom` and its kin, and the devices `/dev/random` and `/dev/urandom`.
//!
//! Recorded is a key of the kernel's; all bytes come from it (`eyrie_ledger::random`).
//! The devices are really opened; whether a descriptor is still one is asked at each read, so that
//! nothing has to be known of who closes it. Their streams are ours (`streams`).

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use libc::{mode_t, size_t, ssize_t};

use super::real::{self, Real, call};
use super::told::{fail, told};
use super::{appends, before, entries, timers};

/// Descriptors below this may be known as a device's.
const DESCRIPTORS: usize = 1024;
/// Which were a device's when they were opened.
static OPENED: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
/// The devices' major number and minor ones.
const MEMORY: u32 = 1;
const RANDOM: [u32; 2] = [8, 9];

/// The kernel's bytes, as far as it has them now.
fn kernel(bytes: &mut [u8], flags: c_uint) -> ssize_t {
    // SAFETY: the bytes may be written.
    unsafe { libc::syscall(libc::SYS_getrandom, bytes.as_mut_ptr(), bytes.len(), flags) as ssize_t }
}

/// Fills with random bytes that are recorded; false where nothing is.
fn fill(bytes: &mut [u8]) -> bool {
    fn key(room: &mut [u8]) -> usize {
        usize::try_from(kernel(room, 0)).unwrap_or(0)
    }
    told(|m| m.random(bytes, key)).is_some() || before::fill(bytes, key)
}

/// The program's buffer.
unsafe fn buffer<'a>(at: *mut c_void, count: size_t) -> &'a mut [u8] {
    if at.is_null() || count == 0 {
        return &mut [];
    }
    // SAFETY: by the caller's word.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), count) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getrandom(
    at: *mut c_void,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    const KNOWN: c_uint = libc::GRND_NONBLOCK | libc::GRND_RANDOM | 4;
    /// More is never given by one call.
    const MOST: size_t = (32 << 20) - 1;
    // SAFETY: the program's own buffer.
    let bytes = unsafe { buffer(at, count.min(MOST)) };
    if flags & !KNOWN == 0 && bytes.len() == count.min(MOST) && fill(bytes) {
        return bytes.len() as ssize_t;
    }
    // SAFETY: the program's own arguments.
    unsafe { libc::syscall(libc::SYS_getrandom, at, count, flags) as ssize_t }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getentropy(at: *mut c_void, count: size_t) -> c_int {
    const MOST: size_t = 256;
    if count > MOST {
        return fail(libc::EIO);
    }
    // SAFETY: the program's own buffer.
    let mut rest = unsafe { buffer(at, count) };
    if fill(rest) {
        return 0;
    }
    while !rest.is_empty() {
        match usize::try_from(kernel(rest, 0)) {
            Ok(given) => rest = &mut rest[given..],
            // SAFETY: it is this thread's own.
            Err(_) if unsafe { *libc::__errno_location() } == libc::EINTR => {}
            Err(_) => return -1,
        }
    }
    0
}

/// A random number that is recorded.
fn number() -> Option<u32> {
    let mut bytes = [0; 4];
    fill(&mut bytes).then(|| u32::from_ne_bytes(bytes))
}

/// One of the kernel's, where the C library has no function for it.
fn own_number() -> u32 {
    let mut bytes = [0; 4];
    while kernel(&mut bytes, 0) != 4 {}
    u32::from_ne_bytes(bytes)
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_arc4random() -> u32 {
    number().unwrap_or_else(|| match real::ARC4RANDOM.found() {
        at if at.is_null() => own_number(),
        // SAFETY: it has no arguments.
        at => unsafe { call!(at, fn() -> u32,) },
    })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_arc4random_buf(at: *mut c_void, count: size_t) {
    // SAFETY: the program's own buffer.
    let bytes = unsafe { buffer(at, count) };
    if fill(bytes) {
        return;
    }
    let real = real::ARC4RANDOM_BUF.found();
    if real.is_null() {
        bytes.iter_mut().for_each(|byte| *byte = own_number() as u8);
        return;
    }
    // SAFETY: the program's own arguments.
    unsafe { call!(real, fn(*mut c_void, size_t) -> (), at, count) }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_arc4random_uniform(below: u32) -> u32 {
    let least = below.wrapping_neg().checked_rem(below).unwrap_or(0);
    while let Some(drawn) = number() {
        if below < 2 {
            return 0;
        }
        // Of the numbers below `least` there is one more of some remainders.
        if drawn >= least {
            return drawn % below;
        }
    }
    match real::ARC4RANDOM_UNIFORM.found() {
        at if at.is_null() => own_number().checked_rem(below).unwrap_or(0),
        // SAFETY: the program's own argument.
        at => unsafe { call!(at, fn(u32) -> u32, below) },
    }
}

/// `std::random_device::operator()`, which may ask the processor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_random_device(device: *mut c_void) -> c_uint {
    number().unwrap_or_else(|| match real::RANDOM_DEVICE.found() {
        at if at.is_null() => own_number(),
        // SAFETY: the program's own argument.
        at => unsafe { call!(at, fn(*mut c_void) -> c_uint, device) },
    })
}

/// Whether this is the name of a random device.
pub(super) unsafe fn is_named(path: *const c_char) -> bool {
    if path.is_null() {
        return false;
    }
    // SAFETY: a text, by the contract of who opens it.
    let path = unsafe { CStr::from_ptr(path) };
    path == c"/dev/urandom" || path == c"/dev/random"
}

/// Whether a descriptor is a random device now.
fn is_device(fd: c_int) -> bool {
    // SAFETY: it consists of numbers, and is filled.
    let (done, stat) = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut stat), stat)
    };
    let device = stat.st_rdev;
    done == 0
        && stat.st_mode & libc::S_IFMT == libc::S_IFCHR
        && libc::major(device) == MEMORY
        && RANDOM.contains(&libc::minor(device))
}

fn note(fd: c_int) -> c_int {
    if let Some(word) = usize::try_from(fd).ok().and_then(|fd| OPENED.get(fd / 64)) {
        word.fetch_or(1 << (fd % 64), Relaxed);
    }
    fd
}

/// Whether what is read of a descriptor is to be random bytes.
#[inline]
pub(super) fn reads_random(fd: c_int) -> bool {
    let Some(word) = usize::try_from(fd).ok().and_then(|fd| OPENED.get(fd / 64)) else {
        return false;
    };
    if word.load(Relaxed) & 1 << (fd % 64) == 0 {
        return false;
    }
    let is = is_device(fd);
    if !is {
        // It was closed, and is something else.
        word.fetch_and(!(1 << (fd % 64)), Relaxed);
    }
    is
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_read(fd: c_int, at: *mut c_void, count: size_t) -> ssize_t {
    // SAFETY: the program's own buffer.
    if reads_random(fd) && fill(unsafe { buffer(at, count) }) {
        return count as ssize_t;
    }
    if timers::is_noted(fd) {
        // SAFETY: as above.
        let whole = unsafe { buffer(at, count) };
        if let Some(count) = timers::read(fd, whole) {
            return count;
        }
    }
    let real = real::READ.at();
    // SAFETY: the program's own arguments.
    unsafe {
        if real.is_null() {
            return libc::syscall(libc::SYS_read, fd, at, count) as ssize_t;
        }
        call!(real, fn(c_int, *mut c_void, size_t) -> ssize_t, fd, at, count)
    }
}

macro_rules! dups {
    ($($name:ident $call:ident ($($other:ident),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int $(, $other: c_int)*) -> c_int {
            // SAFETY: numbers.
            let new = unsafe { libc::syscall(libc::$call, fd $(, $other)*) as c_int };
            appends::note_copy(fd, new);
            if reads_random(fd) { note(new) } else { new }
        }
    )*};
}

dups! {
    eyrie_libc_dup SYS_dup ();
    eyrie_libc_dup3 SYS_dup3 (to, flags);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_dup2(fd: c_int, to: c_int) -> c_int {
    if fd == to {
        // SAFETY: numbers. Whether it is open is all that is asked.
        return if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 { -1 } else { fd };
    }
    // SAFETY: numbers.
    unsafe { eyrie_libc_dup3(fd, to, 0) }
}

/// What `read` becomes with `_FORTIFY_SOURCE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc___read_chk(
    fd: c_int,
    at: *mut c_void,
    count: size_t,
    room: size_t,
) -> ssize_t {
    let real = real::READ_CHK.at();
    if count <= room || real.is_null() {
        // SAFETY: the program's own arguments.
        return unsafe { eyrie_libc_read(fd, at, count) };
    }
    // It ends the program, saying why.
    // SAFETY: the program's own arguments.
    unsafe { call!(real, fn(c_int, *mut c_void, size_t, size_t) -> ssize_t, fd, at, count, room) }
}

/// Opens, and notes a descriptor of a random device.
unsafe fn open(real: &Real, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let real = real.at();
    // SAFETY: the program's own arguments. The mode may be missing, and is not used then.
    unsafe {
        if entries::is_empty(flags) {
            let fd = entries::open(libc::AT_FDCWD, path, flags, mode);
            return appends::note(entries::note(fd, flags), flags);
        }
        let fd = if real.is_null() {
            libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path, flags, mode) as c_int
        } else {
            call!(real, fn(*const c_char, c_int, mode_t) -> c_int, path, flags, mode)
        };
        if is_named(path) { note(fd) } else { appends::note(entries::note(fd, flags), flags) }
    }
}

unsafe fn open_at(
    real: &Real,
    folder: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    let real = real.at();
    // SAFETY: as above.
    unsafe {
        if entries::is_empty(flags) {
            let fd = entries::open(folder, path, flags, mode);
            return appends::note(entries::note(fd, flags), flags);
        }
        let fd = if real.is_null() {
            libc::syscall(libc::SYS_openat, folder, path, flags, mode) as c_int
        } else {
            call!(real, fn(c_int, *const c_char, c_int, mode_t) -> c_int, folder, path, flags, mode)
        };
        if is_named(path) { note(fd) } else { appends::note(entries::note(fd, flags), flags) }
    }
}

macro_rules! opens {
    ($($name:ident $two:ident $real:ident, $name_at:ident $two_at:ident $real_at:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe { open(&real::$real, path, flags, mode) }
        }
        /// With `_FORTIFY_SOURCE`, where there is no mode.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $two(path: *const c_char, flags: c_int) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe { open(&real::$real, path, flags, 0) }
        }
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name_at(
            folder: c_int, path: *const c_char, flags: c_int, mode: mode_t,
        ) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe { open_at(&real::$real_at, folder, path, flags, mode) }
        }
        /// With `_FORTIFY_SOURCE`, where there is no mode.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $two_at(
            folder: c_int, path: *const c_char, flags: c_int,
        ) -> c_int {
            // SAFETY: the program's own arguments.
            unsafe { open_at(&real::$real_at, folder, path, flags, 0) }
        }
    )*};
}

opens! {
    eyrie_libc_open eyrie_libc___open_2 OPEN,
    eyrie_libc_openat eyrie_libc___openat_2 OPENAT;
    eyrie_libc_open64 eyrie_libc___open64_2 OPEN64,
    eyrie_libc_openat64 eyrie_libc___openat64_2 OPENAT64;
}
