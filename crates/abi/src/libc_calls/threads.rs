//! Threads that the program makes, which are known again by a key.
//!
//! Kept true: no frame of this library is between a thread's function and the C library. One that
//! is made where threads do not call MPI at the same time is left to the C library alone.

use std::ffi::{c_int, c_void};

use eyrie_core::threads;

use super::real::{self, call};
use crate::threads::are_many;

/// What a thread begins with.
pub(crate) struct Start {
    run: *mut c_void,
    with: *mut c_void,
    key: u64,
}

/// A thread of the program begins: where, and with what, in `at`.
///
/// # Safety
/// `start` was made by `create`, for this call.
unsafe extern "C" fn eyrie_thread_starts(start: *mut Start, at: *mut [*mut c_void; 2]) {
    // SAFETY: by the caller's word; `at` is the caller's room.
    unsafe {
        let start = Box::from_raw(start);
        threads::thread_begins(start.key);
        *at = [start.run, start.with];
    }
}

// The program's function takes the place of this one, so that no frame of ours is between it and
// the C library: it may end by `pthread_exit`, or be cancelled.
#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".p2align 4",
    ".globl eyrie_thread_begins",
    ".hidden eyrie_thread_begins",
    ".type eyrie_thread_begins,@function",
    "eyrie_thread_begins:",
    "sub rsp, 24",
    "mov rsi, rsp",
    "call {starts}",
    "mov rax, [rsp]",
    "mov rdi, [rsp + 8]",
    "add rsp, 24",
    "jmp rax",
    ".size eyrie_thread_begins, . - eyrie_thread_begins",
    starts = sym eyrie_thread_starts,
);

#[cfg(target_arch = "x86_64")]
unsafe extern "C" {
    fn eyrie_thread_begins(start: *mut c_void) -> *mut c_void;
}

#[cfg(not(target_arch = "x86_64"))]
unsafe extern "C-unwind" fn eyrie_thread_begins(start: *mut c_void) -> *mut c_void {
    type Run = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
    let mut at = [std::ptr::null_mut(); 2];
    // SAFETY: as `pthread_create` was asked to; the first is the program's function.
    unsafe {
        eyrie_thread_starts(start.cast(), &mut at);
        std::mem::transmute::<*mut c_void, Run>(at[0])(at[1])
    }
}

/// `pthread_create`: where threads call MPI at the same time the new one gets a key.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_libc_pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const c_void,
    run: *mut c_void,
    with: *mut c_void,
) -> c_int {
    let key = if are_many() { threads::next_key() } else { 0 };
    if key == 0 {
        // SAFETY: the program's own arguments.
        return unsafe { thread_create(thread, attributes, run, with) };
    }
    let start = Box::into_raw(Box::new(Start { run, with, key }));
    let begins = eyrie_thread_begins as *mut c_void;
    // SAFETY: the program's own arguments but for the function, which is given what it takes.
    unsafe {
        let result = thread_create(thread, attributes, begins, start.cast());
        if result == 0 {
            threads::thread_is_made();
        } else {
            drop(Box::from_raw(start));
        }
        result
    }
}

/// The C library's `pthread_create`.
///
/// # Safety
/// The arguments are those of that function.
pub(super) unsafe fn thread_create(
    thread: *mut libc::pthread_t,
    attributes: *const c_void,
    run: *mut c_void,
    with: *mut c_void,
) -> c_int {
    let real = real::PTHREAD_CREATE.found();
    if real.is_null() {
        return libc::ENOSYS;
    }
    // SAFETY: by the caller's word.
    unsafe {
        call!(
            real,
            fn(*mut libc::pthread_t, *const c_void, *mut c_void, *mut c_void) -> c_int,
            thread,
            attributes,
            run,
            with
        )
    }
}
