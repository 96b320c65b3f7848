//! The process's one machine, and the ends of the process. How the machine begins and ends is
//! `lifetime`.
//!
//! Kept true: `CURRENT` points to the machine between init and finalize. A function of MPI
//! reborrows it for its own duration; while a callback of the program runs, `CURRENT` is derived
//! from the borrow that the machine lent for it (`Machine::lend`), so that a call from the callback
//! is a reborrow too. So it is while a call waits and lets other threads in (MPI_THREAD_MULTIPLE:
//! `threads`). Else the program serialises its calls.

pub mod lifetime;

use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize};

use eyrie_core::info::InfoTable;
use eyrie_core::machine::Machine;
use eyrie_ledger::segment::{LIB_OUT, LIB_WAIT};

pub use eyrie_channel::turn_lock::this_thread;

use crate::libc_calls::tells;
use crate::repr::code_out;
use crate::threads::{self, Inside};

static CURRENT: AtomicPtr<Machine> = AtomicPtr::new(null_mut());
/// The machine after finalize: only its info objects are used.
static FORMER: AtomicPtr<Machine> = AtomicPtr::new(null_mut());
/// Info objects that were made before init.
static EARLY_INFOS: AtomicPtr<InfoTable> = AtomicPtr::new(null_mut());
static PHASE: AtomicI32 = AtomicI32::new(BEFORE);
/// Thread level that was provided.
static LEVEL: AtomicI32 = AtomicI32::new(0);
/// `pthread_self` of the thread that called init. (Not its number: that changes with a restore.)
static MAIN_THREAD: AtomicUsize = AtomicUsize::new(0);

/// Where the rank is, in its control block; null where MPI_Wtime asks no machine.
static PLACE: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());
/// The number of its process, there.
static PROCESS: AtomicPtr<AtomicU32> = AtomicPtr::new(null_mut());

const BEFORE: i32 = 0;
const RUNNING: i32 = 1;
const FINALIZED: i32 = 2;
/// Sessions have started the machine, MPI_Init has not been called.
const SESSIONS: i32 = 4;
/// MPI_Finalize has been called while sessions are open, which go on.
const SESSIONS_LEFT: i32 = 5;
/// In a child that the program forked while it was in MPI, which is no rank.
const FORKED: i32 = 3;

/// The machine, for the duration of a call.
#[inline]
#[allow(clippy::mut_from_ref)] // the name is not where it comes from
pub fn machine(name: &'static str) -> &'static mut Machine {
    let at = CURRENT.load(Relaxed);
    if at.is_null() {
        not_running(name);
    }
    // SAFETY: see above: it points to a live machine, and calls are serialised and properly nested:
    // by the program, or by the lock that the caller holds (`Inside`).
    unsafe { &mut *at }
}

/// The machine, for who is in no call of MPI.
pub struct Outside {
    machine: &'static mut Machine,
    _inside: Inside,
}

impl std::ops::Deref for Outside {
    type Target = Machine;
    fn deref(&self) -> &Machine {
        self.machine
    }
}

impl std::ops::DerefMut for Outside {
    fn deref_mut(&mut self) -> &mut Machine {
        self.machine
    }
}

/// The machine, if the program's main thread asks and is in no call of MPI: not in a callback, and
/// no other thread is in one. Where a program calls MPI in several threads, one at a time, the last
/// is chance; the machine has been told (`threaded`).
#[inline]
pub fn outside() -> Option<Outside> {
    let at = CURRENT.load(Relaxed);
    let place = PLACE.load(Relaxed);
    if at.is_null() || place.is_null() || !is_main_thread() {
        return None;
    }
    let inside = Inside::try_enter()?;
    // SAFETY: `PLACE` points into the segment, which stays mapped.
    match unsafe { &*place }.load(Relaxed) {
        LIB_OUT => {}
        // Other threads.
        LIB_WAIT if inside.is_first_of_many() => {}
        _ => return None,
    }
    // SAFETY: as in `machine`; nobody else is in the library.
    Some(Outside { machine: unsafe { &mut *at }, _inside: inside })
}

/// The table of info objects, which is there at all times.
pub fn infos() -> &'static mut InfoTable {
    for at in [CURRENT.load(Relaxed), FORMER.load(Relaxed)] {
        if !at.is_null() {
            // SAFETY: as in `machine`; a former machine is never freed and has no other user.
            return unsafe { &mut (*at).infos };
        }
    }
    if EARLY_INFOS.load(Relaxed).is_null() {
        let mut infos = InfoTable::new();
        describe_program(&mut infos);
        EARLY_INFOS.store(Box::into_raw(Box::new(infos)), Relaxed);
    }
    // SAFETY: not null, and `start` moves it away only when `CURRENT` is there to be used.
    unsafe { &mut *EARLY_INFOS.load(Relaxed) }
}

/// The hook of `Machine::lend`.
fn set_current(at: *mut Machine) -> *mut Machine {
    CURRENT.swap(at, Relaxed)
}

pub fn initialized() -> bool {
    !matches!(PHASE.load(Relaxed), BEFORE | SESSIONS)
}

pub fn finalized() -> bool {
    // In a forked child, too, nothing is left to do: libraries that finalize at exit ask this.
    matches!(PHASE.load(Relaxed), FINALIZED | FORKED | SESSIONS_LEFT)
}

pub fn running() -> bool {
    matches!(PHASE.load(Relaxed), RUNNING | SESSIONS | SESSIONS_LEFT)
}

pub fn level() -> i32 {
    LEVEL.load(Relaxed)
}

pub fn is_main_thread() -> bool {
    MAIN_THREAD.load(Relaxed) == this_thread()
}

/// The program has one thread no longer.
pub fn has_threads() {
    if outside().is_none_or(|mut o| !o.threaded()) {
        PLACE.store(null_mut(), Relaxed);
    }
}

/// In a child that the program forked, which is no rank: its times are its own.
pub unsafe extern "C" fn no_rank() {
    PLACE.store(null_mut(), Relaxed);
    tells::end();
    threads::end();
    CURRENT.store(null_mut(), Relaxed);
    if running() {
        PHASE.store(FORKED, Relaxed);
    }
}

/// The number of this process, or of the rank that it is a child of; 0 where there is none.
pub fn process() -> i32 {
    let at = PROCESS.load(Relaxed);
    // SAFETY: it points into the segment, which stays mapped.
    if at.is_null() { 0 } else { unsafe { &*at }.load(Relaxed) as i32 }
}

/// What is known before MPI_Init, too.
fn describe_program(infos: &mut InfoTable) {
    use std::os::unix::ffi::OsStrExt;
    let mut args = std::env::args_os();
    if let Some(command) = args.next() {
        infos.set_env(b"command", command.as_bytes());
    }
    let rest: Vec<Vec<u8>> = args.map(|a| a.as_bytes().to_vec()).collect();
    infos.set_env(b"argv", &rest.join(&b' '));
    if let Ok(size) = std::env::var("EYRIE_SIZE") {
        infos.set_env(b"maxprocs", size.as_bytes());
    }
    if let Ok(dir) = std::env::current_dir() {
        infos.set_env(b"wdir", dir.as_os_str().as_bytes());
    }
    infos.set_env(b"arch", std::env::consts::ARCH.as_bytes());
    infos.set_env(b"mpi_memory_alloc_kinds", b"mpi,system");
}

/// MPI_Finalize leaves the machine to sessions.
pub fn leave_to_sessions() {
    PHASE.store(SESSIONS_LEFT, Relaxed);
}

/// A function's name without the P of its profiling twin.
pub fn public(name: &str) -> &str {
    name.strip_prefix('P').unwrap_or(name)
}

#[cold]
fn not_running(name: &str) -> ! {
    if PHASE.load(Relaxed) == FORKED {
        die(&format!(
            "{} was called in process {}, a child that a rank forked: it is no rank, and has no \
             part in its parent's MPI; a program that it executes (fork and exec) may call \
             MPI_Init",
            public(name),
            std::process::id(),
        ));
    }
    let when = if finalized() { "after MPI_Finalize" } else { "before MPI_Init" };
    die(&format!("{} was called {when}", public(name)))
}

/// Ends the process with a line of explanation; there is no machine to end the job with.
pub fn die(text: &str) -> ! {
    eprintln!("eyrie: {text}");
    exit()
}

/// Ends a process that has no machine, and failed.
pub fn exit() -> ! {
    flush();
    // SAFETY: ends the process; exit handlers are left out, for they may call MPI.
    unsafe { libc::_exit(1) }
}

/// Writes out what the program's C streams hold.
fn flush() {
    // SAFETY: null stands for all streams.
    unsafe { libc::fflush(null_mut()) };
}

/// Ends the job because of an error that is fatal. `code` is a class or code of the machine, `told`
/// what is known besides.
#[cold]
pub fn fatal(name: &'static str, code: i32, told: &str) -> ! {
    let m = machine(name);
    let text = m.error_string(code).map_or_else(|_| Vec::new(), <[u8]>::to_vec);
    let text = String::from_utf8_lossy(&text);
    let (rank, _) = m.world();
    let mut line = format!("rank {rank}: {}: {text} (error {})", public(name), code_out(code));
    if !told.is_empty() {
        line.push_str(&format!(": {told}"));
    }
    flush();
    let exit = if code & 0xff == 0 { 1 } else { code };
    end_job(m, exit, &line, &line)
}

/// `MPI_Abort`.
pub fn abort(m: &mut Machine, code: i32) -> ! {
    flush();
    let (rank, _) = m.world();
    end_job(m, code, &format!("rank {rank} called MPI_Abort with code {code}"), "")
}

/// Its node's daemon tells why, once; of a job without one the process does.
fn end_job(m: &mut Machine, code: i32, line: &str, why: &str) -> ! {
    if m.endpoint.is_unwatched() {
        eprintln!("eyrie: {line}");
    }
    m.abort(code, why)
}
