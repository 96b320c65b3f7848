//! The process's one machine, and the ends of the process.
//!
//! Kept true: `CURRENT` points to the machine between init and finalize. A function of MPI
//! reborrows it for its own duration; while a callback of the program runs, `CURRENT` is derived
//! from the borrow that the machine lent for it (`Machine::lend`), so that a call from the callback
//! is a reborrow too. So it is while a call waits and lets other threads in (MPI_THREAD_MULTIPLE:
//! `threads`). Else the program serialises its calls.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicUsize};

use eyrie_core::consts::{ANY_SOURCE, COMM_WORLD, PROC_NULL};
use eyrie_core::consts::{THREAD_MULTIPLE, THREAD_SERIALIZED, THREAD_SINGLE};
use eyrie_core::info::InfoTable;
use eyrie_core::machine::Machine;
use eyrie_ledger::segment::{LIB_OUT, LIB_WAIT};

pub use eyrie_channel::turn_lock::this_thread;

use crate::check::level as check;
use crate::libc_calls;
use crate::repr::{BOUNDS, WINDOW_NUMBERS, code_out, rank_out};
use crate::threads::{self, Inside};
use crate::tools::numbers;

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

/// Starts the machine; returns the thread level provided.
pub fn start(name: &'static str, required: i32) -> i32 {
    if PHASE.load(Relaxed) == FORKED {
        not_running(name);
    }
    if initialized() {
        let how = if finalized() { "after MPI_Finalize" } else { "twice" };
        die(&format!("{} was called {how}; it may be called once", public(name)));
    }
    if running() {
        PHASE.store(RUNNING, Relaxed);
        return level();
    }
    begin(name, required, RUNNING)
}

/// The same for a session: there may be several, and MPI_Init beside them. A machine that they
/// started goes when the process ends.
pub fn start_session(name: &'static str, required: i32) -> i32 {
    match PHASE.load(Relaxed) {
        FORKED => not_running(name),
        FINALIZED => die(&format!(
            "{} was called after MPI_Finalize: this version of Eyrie starts MPI once in a process",
            public(name)
        )),
        BEFORE => begin(name, required, SESSIONS),
        _ => level(),
    }
}

fn begin(name: &'static str, required: i32, phase: i32) -> i32 {
    // The library asks for the time itself from here on.
    libc_calls::init();
    check::begin();
    let machine = match Machine::from_env() {
        Ok(machine) => Box::leak(Box::new(machine)),
        Err(e) => die(&format!("{} cannot join its job: {e}", public(name))),
    };
    machine.set_reentry_hook(set_current);
    machine.types.set_rule(BOUNDS);
    machine.windows.set_numbers(WINDOW_NUMBERS);
    machine.attrs.set_ranks(rank_out(ANY_SOURCE), rank_out(PROC_NULL));
    let early = EARLY_INFOS.swap(null_mut(), Relaxed);
    if !early.is_null() {
        // SAFETY: made by `Box::into_raw` in `infos`, and nothing else points to it any more.
        machine.infos = *unsafe { Box::from_raw(early) };
    }
    let provided = required.min(THREAD_MULTIPLE);
    describe(machine);
    numbers::joined(machine);
    // Where other threads may be in MPI, who only asks for the time stays out of the machine,
    // unless it has to be recorded.
    let is_one = provided < THREAD_SERIALIZED || libc_calls::is_alone();
    if is_one || machine.threaded() {
        PLACE.store(std::ptr::from_ref(machine.endpoint.place()).cast_mut(), Relaxed);
    }
    // SAFETY: the first handler only stores, the other runs where the program calls `exit`. The
    // daemon's twins are made without them. If there is no memory for them, a program is on its own
    // whose children call MPI, and one that ends without MPI_Finalize counts as killed.
    unsafe {
        libc::pthread_atfork(None, None, Some(no_rank));
        libc::atexit(leaves);
    }
    PROCESS.store(std::ptr::from_ref(machine.endpoint.process()).cast_mut(), Relaxed);
    LEVEL.store(provided, Relaxed);
    MAIN_THREAD.store(this_thread(), Relaxed);
    if provided == THREAD_MULTIPLE {
        threads::begin(machine);
    }
    if !PLACE.load(Relaxed).is_null() {
        libc_calls::begin(machine, provided > THREAD_SINGLE);
    }
    CURRENT.store(machine, Relaxed);
    PHASE.store(phase, Relaxed);
    provided
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
    libc_calls::end();
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

/// The program has called `exit`.
extern "C" fn leaves() {
    let at = CURRENT.load(Relaxed);
    let Some(_inside) = Inside::try_enter() else { return };
    if running() && !at.is_null() {
        // SAFETY: as in `machine`: exit handlers run in one thread. Where that was in the library
        // all the same (a signal's handler called `exit`), only what is told to others is written.
        let machine = unsafe { &mut *at };
        if PHASE.load(Relaxed) != RUNNING && machine.sessions.is_empty() {
            machine.enter();
            machine.finalize();
            machine.leave();
        } else {
            machine.left();
        }
    }
}

/// Fills MPI_INFO_ENV (MPI 5.0 section 11.2.2). `thread_level` would be what was asked for before
/// the program was started: nobody can.
fn describe(m: &mut Machine) {
    describe_program(&mut m.infos);
    if let Ok(size) = m.comm_size(COMM_WORLD) {
        m.infos.set_env(b"maxprocs", size.to_string().as_bytes());
    }
    let spares = m.spare_ranks();
    if !spares.is_empty() {
        let own: &[u8] = if spares.contains(&m.world().0) { b"true" } else { b"false" };
        m.infos.set_env(b"eyrie_spare", own);
        m.infos.set_env(b"eyrie_spare_ranks", spares.len().to_string().as_bytes());
    }
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

/// The machine is done; every later call but a few is an error.
pub fn stop() {
    libc_calls::end();
    FORMER.store(CURRENT.swap(null_mut(), Relaxed), Relaxed);
    PHASE.store(FINALIZED, Relaxed);
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
