//! What a machine knows of its program's threads (`threads`): whose turn it is, who looks for
//! messages, and how a thread is known again.

use std::cell::Cell;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_channel::quiet::Quiet;
use eyrie_channel::turn_lock::TurnLock;

pub(crate) const NONE: u32 = u32::MAX;
/// Keys of the thread that initialised MPI and, with a count, of those that nobody knows.
pub(crate) const MAIN_KEY: u64 = 1;
pub(crate) const STRANGER_KEY: u64 = 2;

/// A thread was made.
static ANY_MADE: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Number of this thread, its key (0: not known), and the threads that it has made.
    pub(crate) static NUMBER: Cell<u32> = const { Cell::new(NONE) };
    pub(crate) static KEY: Cell<u64> = const { Cell::new(0) };
    static MADE: Cell<u64> = const { Cell::new(0) };
}

/// The key of number `n` of what has this key.
pub(crate) fn mixed(key: u64, n: u64) -> u64 {
    let x = (key ^ n.rotate_left(32)).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ n;
    (x ^ (x >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) | 4
}

/// The key of the next thread that this one makes; 0 if that could not be found again.
pub fn next_key() -> u64 {
    match KEY.get() {
        0 => 0,
        key => mixed(key, MADE.get()),
    }
}

/// A thread was made with it, which may call MPI from now on.
pub fn thread_is_made() {
    ANY_MADE.store(true, Relaxed);
    MADE.set(MADE.get() + 1);
}

/// In a thread that begins: its key.
pub fn thread_begins(key: u64) {
    KEY.set(key);
}

/// What a machine knows of its program's threads.
#[derive(Default)]
pub(crate) struct Threads {
    pub lock: Option<&'static TurnLock>,
    /// Their order is recorded.
    pub recorded: bool,
    /// Threads that have called MPI, and of these those without a key.
    pub known: u32,
    pub strangers: u64,
    /// Whose turn it is, how many steps of it were made, and its number.
    pub current: u32,
    pub done: u64,
    pub turn: u32,
    /// The thread that looks for messages (0: none), and whether it sleeps.
    pub poller: usize,
    pub asleep: bool,
    /// The thread that applies operations of others to windows.
    pub server: usize,
    /// Something has moved that others may wait for.
    pub stirred: bool,
    /// Numbers of those that wait in MPI.
    pub waiting: Vec<u32>,
    pub quiet: Quiet,
}

impl Threads {
    #[inline]
    pub fn are_many(&self) -> bool {
        self.lock.is_some()
    }

    /// More than one has called MPI.
    #[inline]
    pub fn several(&self) -> bool {
        self.known > 1
    }

    /// The same, or another one may at any time.
    #[inline]
    pub fn may_be_several(&self) -> bool {
        self.known > 1 || ANY_MADE.load(Relaxed)
    }

    #[inline]
    pub fn stir(&mut self) {
        self.stirred = true;
    }

    /// Something moved, if so.
    #[inline]
    pub fn note(&mut self, moved: bool) -> bool {
        self.stirred |= moved;
        moved
    }
}
