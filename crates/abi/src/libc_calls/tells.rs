//! Whether what the C library says is recorded. Who sets it is left to MPI_Init, MPI_Finalize and
//! `fork`; it is asked by each function here, and by nobody else.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// What the C library says is recorded.
pub(super) static TELLS: AtomicBool = AtomicBool::new(false);

/// Clocks are the interpreter's own affair: it asks them as often as its threads wait.
pub(super) static CLOCKS_ARE_OWN: AtomicBool = AtomicBool::new(false);

/// The same of the clock by which it sleeps: a program that waits for a file asks by chance.
pub(super) static MONOTONIC_IS_OWN: AtomicBool = AtomicBool::new(false);

/// From MPI_Finalize on, and in children.
pub fn end() {
    TELLS.store(false, Relaxed);
}
