//! Several threads of the program that call MPI at the same time: the lock that each call holds
//! where MPI_THREAD_MULTIPLE was given. How threads are known again is `libc_calls::threads`.
//!
//! Kept true: programs of lower levels pay for one look at a word that nobody writes.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use eyrie_channel::turn_lock::{TurnLock, is_at_lock};
use eyrie_core::machine::Machine;

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
