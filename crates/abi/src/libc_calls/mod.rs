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

mod appends;
mod before;
mod clocks;
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
mod temporary;
mod timers;
mod waits;

pub use python::is_alone;

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::machine::Machine;
use eyrie_ledger::door::What;

use crate::global::{self, Outside};

/// What the C library says is recorded.
static TELLS: AtomicBool = AtomicBool::new(false);

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
        let clocks = python::begin(machine) || !has_threads;
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

/// From MPI_Finalize on, and in children.
pub fn end() {
    TELLS.store(false, Relaxed);
}

/// The machine, if what is asked for now is to be recorded.
#[inline]
fn teller() -> Option<Outside> {
    if TELLS.load(Relaxed) { global::outside() } else { None }
}

/// Runs `ask` as a call of MPI, if it is to be recorded. What it came to, or nothing.
#[inline]
fn told<R>(ask: impl FnOnce(&mut Machine) -> R) -> Option<R> {
    let mut m = teller()?;
    m.enter();
    let answer = ask(&mut m);
    m.leave();
    Some(answer)
}

/// What a function returned and the `errno` that it left, before what it filled.
const HEAD_BYTES: usize = 12;

fn errno() -> i32 {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// Asks the C library, outside of this one, as that may wait; in a replay nobody is asked. What
/// `ask` fills and returns is recorded, with `errno`. Nothing is asked where nothing is recorded.
#[inline]
fn asked<A>(what: What, filled: &mut [u8], ask: A) -> Option<i64>
where
    A: FnOnce(&mut [u8]) -> i64,
{
    let repeats = teller()?.repeats();
    let mut ask = Some(ask);
    let early = if repeats { None } else { ask.take().map(|ask| (ask(filled), errno())) };
    recorded(what, filled, early, ask)
}

/// What was done in any case (a timer was set), and is told as it was when it was done first.
#[inline]
fn done(what: What, filled: &mut [u8], result: i64) -> i64 {
    let none = None::<fn(&mut [u8]) -> i64>;
    recorded(what, filled, Some((result, errno())), none).unwrap_or(result)
}

fn recorded<A>(
    what: What,
    filled: &mut [u8],
    early: Option<(i64, i32)>,
    late: Option<A>,
) -> Option<i64>
where
    A: FnOnce(&mut [u8]) -> i64,
{
    let mut own = [0; LONGEST];
    let own = &mut own[..filled.len().min(LONGEST)];
    own.copy_from_slice(&filled[..own.len()]);
    let find = |room: &mut [u8]| {
        let (result, error) = match (early, late) {
            (Some(early), _) => early,
            (None, Some(ask)) => (ask(&mut *own), errno()),
            (None, None) => (-1, libc::ENOSYS),
        };
        room[..8].copy_from_slice(&result.to_ne_bytes());
        room[8..HEAD_BYTES].copy_from_slice(&error.to_ne_bytes());
        room[HEAD_BYTES..HEAD_BYTES + own.len()].copy_from_slice(own);
        HEAD_BYTES + own.len()
    };
    let (result, error) = told(|m| {
        m.tell(what, find, |bytes| {
            let (head, rest) = bytes.split_at_checked(HEAD_BYTES).unwrap_or((&[], &[]));
            let count = rest.len().min(filled.len());
            filled[..count].copy_from_slice(&rest[..count]);
            let result = head.first_chunk::<8>().map_or(-1, |b| i64::from_ne_bytes(*b));
            (result, head.last_chunk::<4>().map_or(libc::EIO, |b| i32::from_ne_bytes(*b)))
        })
    })?;
    if result < 0 {
        fail(error);
    }
    Some(result)
}

/// Most bytes that are filled by a function of a known size.
const LONGEST: usize = 480;

/// The bytes of a variable of the program, which consists of numbers.
///
/// # Safety
/// It may be read and written.
unsafe fn bytes_of<'a, T>(at: *mut T) -> &'a mut [u8] {
    // SAFETY: by the caller's word.
    unsafe { std::slice::from_raw_parts_mut(at.cast(), size_of::<T>()) }
}

/// The C library's `pthread_create`.
///
/// # Safety
/// The arguments are those of that function.
pub unsafe fn thread_create(
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
        real::call!(
            real,
            fn(*mut libc::pthread_t, *const c_void, *mut c_void, *mut c_void) -> c_int,
            thread,
            attributes,
            run,
            with
        )
    }
}

/// Sets `errno`.
fn fail(error: i32) -> i32 {
    // SAFETY: it is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}
