//! Several threads of the program that call MPI at the same time: the lock that each call holds
//! where MPI_THREAD_MULTIPLE was given, and how threads are known again.
//!
//! Kept true: programs of lower levels pay for one look at a word that nobody writes.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use eyrie_channel::turn_lock::{TurnLock, is_at_lock};
use eyrie_core::machine::Machine;
use eyrie_core::threads;

use crate::libc_calls::thread_create;

static LOCK: TurnLock = TurnLock::new();
/// Threads call MPI at the same time.
static MANY: AtomicBool = AtomicBool::new(false);

/// From now on, with the calling thread as the main one.
pub fn begin(machine: &mut Machine) {
    machine.share(&LOCK);
    MANY.store(true, Release);
}

/// In a child that the program forked, which has one thread and is no rank.
pub fn end() {
    MANY.store(false, Relaxed);
}

#[inline]
pub fn are_many() -> bool {
    MANY.load(Relaxed)
}

/// The calling thread is in the library, and no other, as long as this is there.
pub struct Inside {
    locked: bool,
    /// It was not in it before.
    first: bool,
}

impl Inside {
    #[inline]
    pub fn enter() -> Inside {
        let locked = MANY.load(Relaxed);
        Inside { locked, first: !locked || LOCK.lock() }
    }

    /// The same where a handler of a signal may ask; `None` if it came while its thread was at the
    /// lock.
    pub fn try_enter() -> Option<Inside> {
        if MANY.load(Acquire) && is_at_lock() { None } else { Some(Inside::enter()) }
    }

    /// Whether other threads may be waiting in the library while this one has just come.
    pub fn is_first_of_many(&self) -> bool {
        self.locked && self.first
    }
}

impl Drop for Inside {
    #[inline]
    fn drop(&mut self) {
        if self.locked {
            LOCK.unlock();
        }
    }
}

// ---- threads that the program makes

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
