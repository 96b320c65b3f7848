//! Waits until a time, and children.
//!
//! A rank that went on on another machine is shown a CLOCK_MONOTONIC that is ahead of that one's
//! (or behind); a wait until a time of it is a wait until the machine's own time.

use std::ffi::{c_int, c_void};

use eyrie_ledger::clock;
use libc::{clockid_t, pid_t, timespec};

use super::real::{self, call};
use super::told::fail;
use crate::global;

const SECOND_NS: i64 = 1_000_000_000;

/// A time that the program knows, as the machine's clock will show it.
unsafe fn meant(id: clockid_t, until: *const timespec) -> Option<timespec> {
    let ahead = clock::ahead_ns();
    if ahead == 0 || id != libc::CLOCK_MONOTONIC || until.is_null() {
        return None;
    }
    // SAFETY: the program's own argument.
    let until = unsafe { *until };
    if !(0..SECOND_NS).contains(&until.tv_nsec) {
        return None;
    }
    let ns = i128::from(until.tv_sec) * i128::from(SECOND_NS) + i128::from(until.tv_nsec);
    let ns = (ns - i128::from(ahead)).max(0);
    let (s, ns) = (ns / i128::from(SECOND_NS), ns % i128::from(SECOND_NS));
    Some(timespec { tv_sec: i64::try_from(s).unwrap_or(i64::MAX), tv_nsec: ns as i64 })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_clock_nanosleep(
    id: clockid_t,
    flags: c_int,
    until: *const timespec,
    left: *mut timespec,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let until_then = if flags & libc::TIMER_ABSTIME != 0 { meant(id, until) } else { None };
        let until = until_then.as_ref().map_or(until, std::ptr::from_ref);
        let real = real::CLOCK_NANOSLEEP.found();
        call!(
            real,
            fn(clockid_t, c_int, *const timespec, *mut timespec) -> c_int,
            id,
            flags,
            until,
            left
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_pthread_cond_clockwait(
    condition: *mut c_void,
    mutex: *mut c_void,
    id: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let until_then = meant(id, until);
        let until = until_then.as_ref().map_or(until, std::ptr::from_ref);
        let real = real::COND_CLOCKWAIT.found();
        if real.is_null() {
            return libc::ENOSYS;
        }
        call!(
            real,
            fn(*mut c_void, *mut c_void, clockid_t, *const timespec) -> c_int,
            condition,
            mutex,
            id,
            until
        )
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_sem_clockwait(
    semaphore: *mut c_void,
    id: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let until_then = meant(id, until);
        let until = until_then.as_ref().map_or(until, std::ptr::from_ref);
        let real = real::SEM_CLOCKWAIT.found();
        if real.is_null() {
            return fail(libc::ENOSYS);
        }
        call!(real, fn(*mut c_void, clockid_t, *const timespec) -> c_int, semaphore, id, until)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_pthread_mutex_clocklock(
    mutex: *mut c_void,
    id: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: the program's own arguments.
    unsafe {
        let until_then = meant(id, until);
        let until = until_then.as_ref().map_or(until, std::ptr::from_ref);
        let real = real::MUTEX_CLOCKLOCK.found();
        if real.is_null() {
            return libc::ENOSYS;
        }
        call!(real, fn(*mut c_void, clockid_t, *const timespec) -> c_int, mutex, id, until)
    }
}

/// `fork` without its handlers: the child is no rank all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc__Fork() -> pid_t {
    let real = real::FORK.at();
    if real.is_null() {
        return fail(libc::ENOSYS);
    }
    // SAFETY: it has no arguments; the handler only stores.
    unsafe {
        let child = call!(real, fn() -> pid_t,);
        if child == 0 {
            global::no_rank();
        }
        child
    }
}
