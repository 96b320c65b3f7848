//! Functions of the C library that this library has, too: what a program is told by them is an
//! outcome like others, so that a rank that comes back is told the same.
//!
//! `scripts/link-abi` exports each `eyrie_libc_X` here as `X`. As programs name this library before
//! the C library, their references, and those of the libraries after it (C++'s, Fortran's), come
//! here; what of this is recorded goes through the machine's door, all else straight on.
//!
//! Kept true: recorded is what the thread that called MPI_Init asks for, in its own code, between
//! init and finalize, where MPI_Wtime is (`told::teller`), and a little of what it asks before init
//! (`before`). Everybody else gets what the C library says: other threads, callbacks, children,
//! this library itself. Most functions here may be called in handlers of signals, before `main` and
//! from an allocator: they take no lock, allocate nothing and do without what is not there yet.

mod appends;
mod before;
mod clocks;
mod entries;
mod identity;
mod machine;
mod names;
mod points;
mod print;
mod python;
mod random;
mod real;
mod rebound;
mod resolved;
mod resolver;
mod streams;
pub mod tells;
mod temporary;
mod threads;
mod timers;
mod told;
mod waits;

pub use python::is_alone;

use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::machine::Machine;

use self::tells::TELLS;

/// As MPI_Init begins: what was asked before is over.
pub fn init() {
    before::stop();
}

/// From MPI_Init on; `has_threads`: the program has said that it has several.
pub fn begin(machine: &mut Machine, has_threads: bool) {
    let tells = machine.tells() && !has_regions();
    if machine.records() {
        before::record(machine);
    }
    if tells {
        identity::begin(machine);
        appends::begin();
        let clocks = python::begin(machine, has_threads) || !has_threads;
        rebound::begin(clocks);
        TELLS.store(true, Relaxed);
    }
}

/// Whether the program has libeyrie_regions.so, which asks for the time as often as it happens to
/// wait: what it is told cannot be told apart from what the program is told.
fn has_regions() -> bool {
    // SAFETY: a constant string; only whether there is such a symbol is asked.
    unsafe { !libc::dlsym(libc::RTLD_DEFAULT, c"eyrie_regions_open".as_ptr()).is_null() }
}

/// When this library is loaded; the C library has been by then.
extern "C" fn set_up() {
    real::find_all();
    crate::launched::join();
    before::begin();
}

#[used]
#[unsafe(link_section = ".init_array")]
static SET_UP: extern "C" fn() = set_up;
