//! Timers: what is left of them, what of them was missed, and the steps of clocks.
//!
//! A timer is set in a replay as it was in the run; what it is said to have left is what was said
//! then. A descriptor of a timer is known by its number, and whether it is still one is asked at
//! each read. In a replay nothing is read of it, so it has gone off more often afterwards.

use std::ffi::{c_int, c_long, c_uint, c_void};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_ledger::door::What;
use libc::{clockid_t, itimerspec, itimerval, pid_t, timespec};

use super::clocks::which;
use super::identity;
use super::real::{self, call};
use super::told::{asked, bytes_of, done, fail};

/// Descriptors below this may be known as a timer's.
const DESCRIPTORS: usize = 1024;
static MADE: [AtomicU64; DESCRIPTORS / 64] = [const { AtomicU64::new(0) }; DESCRIPTORS / 64];
/// What a read of a timer's descriptor gives.
const COUNT_BYTES: usize = 8;

/// The clock as the kernel knows it: one of this process by its number in another life has none.
fn meant(id: clockid_t) -> clockid_t {
    if id >= 0 { id } else { which(id).map_or(id, |which| which.id()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_clock_getres(id: clockid_t, at: *mut timespec) -> c_int {
    let plain = |at: *mut timespec| {
        let id = c_long::from(meant(id));
        // SAFETY: the program's variable, or none.
        unsafe { libc::syscall(libc::SYS_clock_getres, id, at) }
    };
    if at.is_null() {
        return plain(at) as c_int;
    }
    // SAFETY: the program's variable.
    let own = unsafe { bytes_of(at) };
    let told = asked(What::Limits, own, |own| plain(own.as_mut_ptr().cast()));
    told.unwrap_or_else(|| plain(at)) as c_int
}

/// A process that is this one in another life is there no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_clock_getcpuclockid(pid: pid_t, at: *mut clockid_t) -> c_int {
    const OF_SCHEDULER: c_int = 2;
    if identity::is_this(pid) {
        // SAFETY: the program's variable.
        unsafe { *at = !pid << 3 | OF_SCHEDULER };
        return 0;
    }
    let real = real::GETCPUCLOCKID.found();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: the program's own arguments.
    unsafe { call!(real, fn(pid_t, *mut clockid_t) -> c_int, pid, at) }
}

/// What a timer has left.
unsafe fn left<T>(at: *mut T, plain: impl Fn(*mut T) -> c_int) -> c_int {
    if at.is_null() {
        return plain(at);
    }
    // SAFETY: the program's variable.
    let own = unsafe { bytes_of(at) };
    let told = asked(What::Timer, own, |own| plain(own.as_mut_ptr().cast()).into());
    told.map_or_else(|| plain(at), |result| result as c_int)
}

/// A timer was set; what it had left is in `at`.
unsafe fn set<T>(at: *mut T, result: c_int) -> c_int {
    if at.is_null() {
        return result;
    }
    // SAFETY: the program's variable.
    done(What::Timer, unsafe { bytes_of(at) }, result.into()) as c_int
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_timer_gettime(
    timer: *mut c_void,
    at: *mut itimerspec,
) -> c_int {
    let real = real::TIMER_GETTIME.found();
    if real.is_null() {
        return fail(libc::ENOSYS);
    }
    // SAFETY: the program's own timer.
    let plain = |at| unsafe { call!(real, fn(*mut c_void, *mut itimerspec) -> c_int, timer, at) };
    // SAFETY: the program's variable.
    unsafe { left(at, plain) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_timer_settime(
    timer: *mut c_void,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    let real = real::TIMER_SETTIME.found();
    if real.is_null() {
        return fail(libc::ENOSYS);
    }
    // SAFETY: the program's own arguments.
    unsafe {
        let result = call!(
            real,
            fn(*mut c_void, c_int, *const itimerspec, *mut itimerspec) -> c_int,
            timer,
            flags,
            new,
            old
        );
        set(old, result)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_timer_getoverrun(timer: *mut c_void) -> c_int {
    let real = real::TIMER_GETOVERRUN.found();
    if real.is_null() {
        return fail(libc::ENOSYS);
    }
    // SAFETY: the program's own timer.
    let plain = || unsafe { call!(real, fn(*mut c_void) -> c_int, timer) };
    let told = asked(What::Timer, &mut [], |_| plain().into());
    told.map_or_else(plain, |result| result as c_int)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getitimer(kind: c_int, at: *mut itimerval) -> c_int {
    // SAFETY: the program's variable.
    let plain =
        |at: *mut itimerval| unsafe { libc::syscall(libc::SYS_getitimer, kind, at) as c_int };
    // SAFETY: the program's variable.
    unsafe { left(at, plain) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_setitimer(
    kind: c_int,
    new: *const itimerval,
    old: *mut itimerval,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { set(old, libc::syscall(libc::SYS_setitimer, kind, new, old) as c_int) }
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_alarm(seconds: c_uint) -> c_uint {
    let zero = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let value = libc::timeval { tv_sec: seconds.into(), tv_usec: 0 };
    let new = itimerval { it_interval: zero, it_value: value };
    let mut old = itimerval { it_interval: zero, it_value: zero };
    // SAFETY: our variables.
    unsafe { libc::syscall(libc::SYS_setitimer, libc::ITIMER_REAL, &raw const new, &raw mut old) };
    // As the kernel rounds it: to the nearest, but none that is left is 0.
    let left = old.it_value;
    let up = left.tv_usec >= 500_000 || left.tv_sec == 0 && left.tv_usec > 0;
    done(What::Timer, &mut [], left.tv_sec + i64::from(up)) as c_uint
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_timerfd_create(id: c_int, flags: c_int) -> c_int {
    // SAFETY: the program's own arguments.
    let fd = unsafe { libc::syscall(libc::SYS_timerfd_create, id, flags) as c_int };
    if let Some(word) = usize::try_from(fd).ok().and_then(|fd| MADE.get(fd / 64)) {
        word.fetch_or(1 << (fd % 64), Relaxed);
    }
    fd
}

fn of_descriptor(fd: c_int, at: *mut itimerspec) -> c_int {
    // SAFETY: by the caller's word.
    unsafe { libc::syscall(libc::SYS_timerfd_gettime, fd, at) as c_int }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_timerfd_gettime(fd: c_int, at: *mut itimerspec) -> c_int {
    // SAFETY: the program's variable.
    unsafe { left(at, |at| of_descriptor(fd, at)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_timerfd_settime(
    fd: c_int,
    flags: c_int,
    new: *const itimerspec,
    old: *mut itimerspec,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe { set(old, libc::syscall(libc::SYS_timerfd_settime, fd, flags, new, old) as c_int) }
}

/// Whether a descriptor was a timer's when it was made.
#[inline]
pub(super) fn is_noted(fd: c_int) -> bool {
    let word = usize::try_from(fd).ok().and_then(|fd| MADE.get(fd / 64));
    word.is_some_and(|word| word.load(Relaxed) & 1 << (fd % 64) != 0)
}

/// What is read of such a descriptor, if it is a timer's still and that is recorded.
pub(super) fn read(fd: c_int, bytes: &mut [u8]) -> Option<isize> {
    let word = MADE.get(usize::try_from(fd).ok()? / 64)?;
    if bytes.len() < COUNT_BYTES {
        return None;
    }
    let zero = timespec { tv_sec: 0, tv_nsec: 0 };
    if of_descriptor(fd, &mut itimerspec { it_interval: zero, it_value: zero }) != 0 {
        // It was closed, and is something else.
        word.fetch_and(!(1 << (fd % 64)), Relaxed);
        return None;
    }
    let plain = |own: &mut [u8]| {
        // SAFETY: so many bytes may be written.
        unsafe { libc::syscall(libc::SYS_read, fd, own.as_mut_ptr(), own.len()) }
    };
    asked(What::Expired, &mut bytes[..COUNT_BYTES], plain).map(|count| count as isize)
}
