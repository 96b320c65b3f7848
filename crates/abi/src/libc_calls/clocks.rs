//! The time: `clock_gettime` and all that come down to it.

use std::ffi::{c_int, c_long, c_void};
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::machine::Machine;
use eyrie_ledger::clock::{self, Which};
use eyrie_ledger::door::What;
use libc::{clock_t, clockid_t, rusage, time_t, timespec, timeval, timezone, tms};

use super::real::{self, call};
use super::tells::{CLOCKS_ARE_OWN, MONOTONIC_IS_OWN, TELLS};
use super::told::{teller, told};
use super::{before, identity};

const SECOND_NS: u64 = 1_000_000_000;
const US_NS: u64 = 1_000;
const SECOND_US: i64 = 1_000_000;
/// Numbers of a `struct rusage` behind its two times.
const COUNTS: usize = 14;

/// The clock of that name; for one that is a process's or a thread's own, if it is this one's.
#[inline]
pub(super) fn which(id: clockid_t) -> Option<Which> {
    Some(match id {
        libc::CLOCK_MONOTONIC => Which::Monotonic,
        libc::CLOCK_REALTIME => Which::Realtime,
        libc::CLOCK_PROCESS_CPUTIME_ID => Which::ProcessCpu,
        libc::CLOCK_THREAD_CPUTIME_ID => Which::ThreadCpu,
        libc::CLOCK_MONOTONIC_RAW => Which::Raw,
        libc::CLOCK_BOOTTIME => Which::Boottime,
        libc::CLOCK_TAI => Which::Tai,
        libc::CLOCK_REALTIME_COARSE => Which::RealtimeCoarse,
        libc::CLOCK_MONOTONIC_COARSE => Which::MonotonicCoarse,
        _ => return of_a_process(id),
    })
}

/// A clock by the number of a process or thread, as `clock_getcpuclockid` makes it: all bits of
/// the number turned, three below, of which 2 is the kind and 4 says that it is a thread.
#[cold]
fn of_a_process(id: clockid_t) -> Option<Which> {
    if id >= 0 || id & 3 != 2 {
        return None;
    }
    let number = !(id >> 3);
    (number == 0 || identity::is_this(number)).then_some(if id & 4 != 0 {
        Which::ThreadCpu
    } else {
        Which::ProcessCpu
    })
}

/// The C library's.
#[inline]
unsafe fn plain(id: clockid_t, at: *mut timespec) -> c_int {
    let real = real::CLOCK_GETTIME.at();
    // SAFETY: by the caller's word.
    unsafe {
        if real.is_null() {
            return libc::syscall(libc::SYS_clock_gettime, c_long::from(id), at) as c_int;
        }
        call!(real, fn(clockid_t, *mut timespec) -> c_int, id, at)
    }
}

/// What the machine's clock says.
#[inline]
fn now(which: Which) -> u64 {
    let mut now = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: fills our variable.
    unsafe { plain(which.id(), &mut now) };
    (now.tv_sec as u64).wrapping_mul(SECOND_NS).wrapping_add(now.tv_nsec as u64)
}

/// What a clock shows, if that is recorded.
#[inline]
fn shown(which: Which) -> Option<u64> {
    let monotonic_is_own = MONOTONIC_IS_OWN.load(Relaxed);
    let is_own = CLOCKS_ARE_OWN.load(Relaxed) || monotonic_is_own && which == Which::Monotonic;
    let teller = if is_own { None } else { teller() };
    let Some(mut m) = teller else { return before::time(which, now) };
    m.enter();
    let time = m.clock(which, || now(which));
    m.leave();
    Some(time)
}

/// What a clock shows, recorded or not.
#[inline]
fn time_of(which: Which) -> u64 {
    shown(which).unwrap_or_else(|| now(which))
}

fn spec(ns: u64) -> timespec {
    timespec { tv_sec: (ns / SECOND_NS) as time_t, tv_nsec: (ns % SECOND_NS) as c_long }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_clock_gettime(id: clockid_t, at: *mut timespec) -> c_int {
    if !at.is_null()
        && (TELLS.load(Relaxed) || before::is_asked())
        && let Some(which) = which(id)
        && let Some(time) = shown(which)
    {
        // SAFETY: the program's variable.
        unsafe { *at = spec(time) };
        return 0;
    }
    // SAFETY: the program's own arguments.
    let result = unsafe { plain(id, at) };
    let ahead = clock::ahead_ns();
    if ahead != 0 && result == 0 && id == libc::CLOCK_MONOTONIC {
        // The thread that is recorded may have shown others a time: theirs is the same clock.
        // SAFETY: it was filled.
        unsafe {
            let ns = ((*at).tv_sec as u64).wrapping_mul(SECOND_NS) as i64 + (*at).tv_nsec;
            *at = spec(ns.wrapping_add(ahead) as u64);
        }
    }
    result
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_gettimeofday(at: *mut timeval, zone: *mut timezone) -> c_int {
    let time = shown(Which::Realtime);
    if !zone.is_null() || time.is_none() {
        let real = real::GETTIMEOFDAY.at();
        // SAFETY: the program's own arguments.
        let result = unsafe {
            if real.is_null() {
                libc::syscall(libc::SYS_gettimeofday, at, zone) as c_int
            } else {
                call!(real, fn(*mut timeval, *mut timezone) -> c_int, at, zone)
            }
        };
        if result != 0 {
            return result;
        }
    }
    if let Some(time) = time
        && !at.is_null()
    {
        let us = (time % SECOND_NS / US_NS) as c_long;
        // SAFETY: the program's variable.
        unsafe { *at = timeval { tv_sec: (time / SECOND_NS) as time_t, tv_usec: us } };
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_time(at: *mut time_t) -> time_t {
    let seconds = (time_of(Which::Realtime) / SECOND_NS) as time_t;
    if !at.is_null() {
        // SAFETY: the program's variable.
        unsafe { *at = seconds };
    }
    seconds
}

#[unsafe(no_mangle)]
pub extern "C" fn eyrie_libc_clock() -> clock_t {
    // CLOCKS_PER_SEC is a million, by POSIX.
    (time_of(Which::ProcessCpu) / US_NS) as clock_t
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_timespec_get(at: *mut timespec, base: c_int) -> c_int {
    const TIME_UTC: c_int = 1;
    if base == TIME_UTC {
        // SAFETY: the program's variable.
        unsafe { *at = spec(time_of(Which::Realtime)) };
        return base;
    }
    let real = real::TIMESPEC_GET.found();
    if real.is_null() {
        return 0;
    }
    // SAFETY: the program's own arguments.
    unsafe { call!(real, fn(*mut timespec, c_int) -> c_int, at, base) }
}

/// Of old programs only: `struct timeb`.
#[repr(C)]
pub struct Timeb {
    seconds: time_t,
    ms: u16,
    zone: i16,
    dst: i16,
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_ftime(at: *mut Timeb) -> c_int {
    let time = time_of(Which::Realtime);
    // Nothing else of it is filled by the C libraries of today.
    let ms = (time % SECOND_NS / 1_000_000) as u16;
    // SAFETY: the program's variable.
    unsafe { *at = Timeb { seconds: (time / SECOND_NS) as time_t, ms, zone: 0, dst: 0 } };
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_times(at: *mut tms) -> clock_t {
    // SAFETY: the program's variable, or none.
    let real = |at: *mut tms| unsafe { libc::syscall(libc::SYS_times, at) };
    let find = |room: &mut [u8]| {
        // SAFETY: it consists of numbers.
        let mut own: tms = unsafe { std::mem::zeroed() };
        let now = real(&mut own);
        pack(room, &[own.tms_utime, own.tms_stime, own.tms_cutime, own.tms_cstime, now])
    };
    let unpack = |bytes: &[u8]| {
        let n = |n| number(bytes, n);
        let own = tms { tms_utime: n(0), tms_stime: n(1), tms_cutime: n(2), tms_cstime: n(3) };
        (own, n(4))
    };
    let Some((own, now)) = told(|m| m.tell(What::Times, find, unpack)) else { return real(at) };
    if !at.is_null() {
        // SAFETY: the program's variable.
        unsafe { *at = own };
    }
    now
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_getrusage(who: c_int, at: *mut rusage) -> c_int {
    let what = match who {
        libc::RUSAGE_SELF => What::UsageSelf,
        libc::RUSAGE_THREAD => What::UsageThread,
        libc::RUSAGE_CHILDREN => What::UsageChildren,
        _ => return plain_usage(who, at),
    };
    if at.is_null() {
        return plain_usage(who, at);
    }
    match told(|m| usage(m, what, who)) {
        Some(own) => {
            // SAFETY: the program's variable.
            unsafe { *at = own };
            0
        }
        None => plain_usage(who, at),
    }
}

fn plain_usage(who: c_int, at: *mut rusage) -> c_int {
    // SAFETY: the program's own arguments, or our variable.
    unsafe { libc::syscall(libc::SYS_getrusage, c_long::from(who), at.cast::<c_void>()) as c_int }
}

/// Its times are numbers that only grow once they are one each.
fn usage(m: &mut Machine, what: What, who: c_int) -> rusage {
    let find = |room: &mut [u8]| {
        // SAFETY: it consists of numbers.
        let mut own: rusage = unsafe { std::mem::zeroed() };
        plain_usage(who, &mut own);
        let us = |t: timeval| t.tv_sec * SECOND_US + t.tv_usec;
        let mut all = [0; 2 + COUNTS];
        (all[0], all[1]) = (us(own.ru_utime), us(own.ru_stime));
        // SAFETY: behind the times there are so many `long`s, by the kernel's interface.
        let counts: &[c_long; COUNTS] = unsafe { &*(&raw const own.ru_maxrss).cast() };
        all[2..].copy_from_slice(counts);
        pack(room, &all)
    };
    m.tell(what, find, |bytes| {
        // SAFETY: as above.
        let mut own: rusage = unsafe { std::mem::zeroed() };
        let time = |us: i64| timeval { tv_sec: us / SECOND_US, tv_usec: us % SECOND_US };
        (own.ru_utime, own.ru_stime) = (time(number(bytes, 0)), time(number(bytes, 1)));
        // SAFETY: as above.
        let counts: &mut [c_long; COUNTS] = unsafe { &mut *(&raw mut own.ru_maxrss).cast() };
        counts.iter_mut().enumerate().for_each(|(n, count)| *count = number(bytes, 2 + n));
        own
    })
}

fn pack(room: &mut [u8], numbers: &[i64]) -> usize {
    for (to, number) in room.chunks_exact_mut(8).zip(numbers) {
        to.copy_from_slice(&number.to_ne_bytes());
    }
    8 * numbers.len()
}

fn number(bytes: &[u8], n: usize) -> i64 {
    bytes.get(8 * n..8 * n + 8).and_then(|b| b.try_into().ok()).map_or(0, i64::from_ne_bytes)
}
