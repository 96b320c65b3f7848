//! The beginning of the process's machine, by MPI_Init or a session, and its end.
//!
//! Kept true: a process starts MPI once. The program is led to the machine (`CURRENT`) when all of
//! it is there.

use std::ptr::null_mut;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::consts::{ANY_SOURCE, COMM_WORLD, PROC_NULL};
use eyrie_core::consts::{THREAD_MULTIPLE, THREAD_SERIALIZED, THREAD_SINGLE};
use eyrie_core::machine::Machine;

use super::{BEFORE, FINALIZED, FORKED, RUNNING, SESSIONS};
use super::{CURRENT, EARLY_INFOS, FORMER, LEVEL, MAIN_THREAD, PHASE, PLACE, PROCESS};
use super::{describe_program, die, finalized, initialized, level, no_rank, not_running, public};
use super::{running, set_current, this_thread};
use crate::check::level as check;
use crate::libc_calls::{self, tells};
use crate::repr::{BOUNDS, WINDOW_NUMBERS, rank_out};
use crate::threads::{self, Inside};
use crate::tools::numbers;

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

/// The machine is done; every later call but a few is an error.
pub fn stop() {
    tells::end();
    FORMER.store(CURRENT.swap(null_mut(), Relaxed), Relaxed);
    PHASE.store(FINALIZED, Relaxed);
}
