//! Functions of the C library that this library has, too: what a program is told by them is an
//! outcome like others, so that a rank that comes back is told the same.
//!
//! `scripts/link-abi` exports each `eyrie_libc_X` here as `X`. As programs name this library before
//! the C library, their references, and those of the libraries after it (C++'s, Fortran's), come
//! here; what of this is recorded goes through the machine's door, all else straight on.
//!
//! Kept true: recorded is what the thread that called MPI_Init asks for, in its own code, between
//! init and finalize, where MPI_Wtime is (`teller`), and a little of what it asks before init
//! (`before`). Everybody else gets what the C library says: other threads, callbacks, children,
//! this library itself. Most functions here may be called in handlers of signals, before `main` and
//! from an allocator: they take no lock, allocate nothing and do without what is not there yet.

mod before;
mod clocks;
mod identity;
mod names;
mod random;
mod real;
mod waits;

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::machine::Machine;

use crate::global;

/// What the C library says is recorded.
static TELLS: AtomicBool = AtomicBool::new(false);

/// As MPI_Init begins: what was asked before is over.
pub fn init() {
    before::stop();
}

/// From MPI_Init on.
pub fn begin(machine: &mut Machine) {
    if machine.tells() && !has_regions() {
        before::record(machine);
        identity::begin(machine);
        TELLS.store(true, Relaxed);
    }
}

/// Whether the program has libeyrie_regions.so, which asks for the time as often as it happens to
/// wait: what it is told cannot be told apart from what the program is told.
fn has_regions() -> bool {
    // SAFETY: a constant string; only whether there is such a symbol is asked.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"eyrie_regions_open".as_ptr()).is_null() }
}

/// From MPI_Finalize on, and in children.
pub fn end() {
    TELLS.store(false, Relaxed);
}

/// The machine, if what is asked for now is to be recorded.
#[inline]
fn teller() -> Option<&'static mut Machine> {
    if TELLS.load(Relaxed) { global::outside() } else { None }
}

/// Runs `ask` as a call of MPI, if it is to be recorded. What it came to, or nothing.
#[inline]
fn told<R>(ask: impl FnOnce(&mut Machine) -> R) -> Option<R> {
    let m = teller()?;
    m.enter();
    let answer = ask(m);
    m.leave();
    Some(answer)
}

/// Sets `errno`.
fn fail(error: i32) -> i32 {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}
