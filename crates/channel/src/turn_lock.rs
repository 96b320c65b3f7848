//! The lock of the library where several threads of a rank call it at the same time: held by the
//! one that is inside, given in the order of asking, let go where a thread waits.
//!
//! Kept true: who asks first is served first, so that no thread is kept out by others that come
//! again and again; what is read or written of the library lies between `lock` and `unlock`, or
//! `take_back` and `give_way`. Where nobody else asks, both are a few instructions.
//!
//! Beside it is what threads sleep on that wait for the same rank's messages, of which only one at
//! a time looks for them: a count that whoever has moved something raises (`stir`).

use std::cell::Cell;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicUsize};
use std::time::Duration;

use crate::waiting::{futex_wait, futex_wake};

/// How often the next in line looks before it sleeps: a call of MPI is mostly short.
const LOOKS: u32 = 200;
/// Longest sleep; only a backstop, nothing depends on it.
const SLEEP: Duration = Duration::from_millis(500);

thread_local! {
    /// This thread takes the lock, lets it go, or waits without it: a handler of a signal that
    /// comes now has to do without.
    static AT_LOCK: Cell<bool> = const { Cell::new(false) };
}

/// What `pthread_self` returns: the same after a restore, unlike the thread's number.
#[inline]
pub fn this_thread() -> usize {
    #[cfg(target_arch = "x86_64")]
    {
        let own: usize;
        // SAFETY: reads the thread's own block, whose first word is its address: what
        // `pthread_self` returns.
        unsafe {
            std::arch::asm!("mov {}, fs:0", out(reg) own,
                options(nostack, preserves_flags, readonly));
        }
        own
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: has no preconditions.
    unsafe {
        libc::pthread_self() as usize
    }
}

/// Whether this thread is at a lock, and must not ask for it.
pub fn is_at_lock() -> bool {
    AT_LOCK.get()
}

/// See above.
#[derive(Debug, Default)]
pub struct TurnLock {
    /// The number that who asks next gets, and that of who is served.
    next: AtomicU32,
    served: AtomicU32,
    /// Who holds it (`this_thread`), and how often: callbacks of the program may call MPI.
    holder: AtomicUsize,
    depth: AtomicU32,
    /// How often something has moved, and how many sleep until it does.
    moved: AtomicU32,
    sleepers: AtomicU32,
}

impl TurnLock {
    pub const fn new() -> TurnLock {
        TurnLock {
            next: AtomicU32::new(0),
            served: AtomicU32::new(0),
            holder: AtomicUsize::new(0),
            depth: AtomicU32::new(0),
            moved: AtomicU32::new(0),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Waits until the calling thread holds it. True: it did not before.
    pub fn lock(&self) -> bool {
        let me = this_thread();
        if self.holder.load(Relaxed) == me {
            self.depth.store(self.depth.load(Relaxed) + 1, Relaxed);
            return false;
        }
        AT_LOCK.set(true);
        self.queue();
        self.hold(me, 1);
        AT_LOCK.set(false);
        true
    }

    pub fn unlock(&self) {
        let depth = self.depth.load(Relaxed) - 1;
        self.depth.store(depth, Relaxed);
        if depth == 0 {
            AT_LOCK.set(true);
            self.pass_on();
            AT_LOCK.set(false);
        }
    }

    /// Lets others in, however often it is held. How often that was.
    pub fn give_way(&self) -> u32 {
        AT_LOCK.set(true);
        let depth = self.depth.swap(0, Relaxed);
        self.pass_on();
        depth
    }

    /// Takes it again, as often as before.
    pub fn take_back(&self, depth: u32) {
        self.queue();
        self.hold(this_thread(), depth);
        AT_LOCK.set(false);
    }

    /// Whether another thread asks for it, as its holder sees.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.next.load(Relaxed) != self.served.load(Relaxed).wrapping_add(1)
    }

    fn hold(&self, me: usize, depth: u32) {
        self.holder.store(me, Relaxed);
        self.depth.store(depth, Relaxed);
    }

    fn queue(&self) {
        let own = self.next.fetch_add(1, SeqCst);
        let mut looks = 0;
        loop {
            let now = self.served.load(SeqCst);
            if now == own {
                return;
            }
            if own.wrapping_sub(now) == 1 && looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
            } else {
                futex_wait(&self.served, now, SLEEP);
            }
        }
    }

    fn pass_on(&self) {
        self.holder.store(0, Relaxed);
        // Who asks raises `next` before it looks at `served`: one of the two sees the other.
        let next = self.served.load(Relaxed).wrapping_add(1);
        self.served.store(next, SeqCst);
        if self.next.load(SeqCst) != next {
            futex_wake(&self.served);
        }
    }

    // ---- what is slept on; all by the holder, but for `sleep`

    /// One more is going to sleep until something moves; what to give to `sleep`.
    pub fn await_stir(&self) -> u32 {
        self.sleepers.store(self.sleepers.load(Relaxed) + 1, Relaxed);
        self.moved.load(Relaxed)
    }

    /// Without the lock.
    pub fn sleep(&self, seen: u32) {
        futex_wait(&self.moved, seen, SLEEP);
    }

    pub fn is_awake(&self) {
        self.sleepers.store(self.sleepers.load(Relaxed) - 1, Relaxed);
    }

    /// Wakes all that sleep here: something has moved.
    pub fn stir(&self) {
        if self.sleepers.load(Relaxed) > 0 {
            self.moved.store(self.moved.load(Acquire).wrapping_add(1), SeqCst);
            futex_wake(&self.moved);
        }
    }
}

#[cfg(test)]
#[path = "turn_lock_tests.rs"]
mod tests;
