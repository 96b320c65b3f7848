//! The calls of VeloC that programs use most, on the same checkpoints: `include/veloc/veloc.h`.
//! A process has one session; a failure is told in a line on standard error, as VeloC does.

// The header says what a caller has to keep to.
#![allow(clippy::missing_safety_doc)]

use crate::c::{variable, which, words, write_text};
use crate::config::Config;
use crate::error::{RegionsError, note};
use crate::kind::{Kind, Type};
use crate::peers::{Gather, Most, Peers, ReceiveAny, SendTo};
use crate::session::{Region, Session, Which};
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::fs;
use std::path::Path;
use std::sync::Mutex;

const SUCCESS: c_int = 0;
const FAILURE: c_int = -1;
/// Room that a caller has for a path.
const MAX_NAME_BYTES: usize = 1024;
const ALL: c_int = 0;
const SOME: c_int = 1;
const REST: c_int = 2;

/// The session of this process.
struct Global(Session);

// SAFETY: pointers in it are used only by those who call, one at a time, as the header asks.
unsafe impl Send for Global {}

static SESSION: Mutex<Option<Global>> = Mutex::new(None);

fn told<T>(rank: u32, done: Result<T, RegionsError>) -> Option<T> {
    done.map_err(|error| note(rank, &error.to_string())).ok()
}

fn number(done: Option<()>) -> c_int {
    done.map_or(FAILURE, |()| SUCCESS)
}

/// Does something with the session; `None`: it failed, and that was told.
fn with<T>(work: impl FnOnce(&mut Session) -> Result<T, RegionsError>) -> Option<T> {
    // A thread that panicked would have ended the process.
    let mut session = SESSION.lock().ok()?;
    let none = || RegionsError::Use("VELOC_Init was not called, or failed".into());
    match session.as_mut() {
        Some(Global(session)) => {
            let rank = session.peers.rank;
            told(rank, work(session))
        }
        None => told(0, Err(none())),
    }
}

fn open(file: &str, peers: Peers) -> Result<Session, RegionsError> {
    let read = if file.is_empty() {
        Config::read_veloc("", &variable)
    } else {
        let text = fs::read_to_string(file);
        let text = text.map_err(crate::error::file("read", Path::new(file)));
        text.and_then(|text| Config::read_veloc(&text, &variable))
    };
    let config = peers.all(read)?;
    Session::open(config, peers)
}

fn begin(file: Result<&str, RegionsError>, peers: Result<Peers, RegionsError>) -> c_int {
    let Ok(mut session) = SESSION.lock() else { return FAILURE };
    // As VeloC does: the first session stays.
    if session.is_some() {
        return SUCCESS;
    }
    let rank = peers.as_ref().map_or(0, |peers| peers.rank);
    let opened = file.and_then(|file| open(file, peers?));
    *session = told(rank, opened).map(Global);
    if session.is_some() { SUCCESS } else { FAILURE }
}

/// What `VELOC_Init` of the header calls, which knows MPI.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_veloc_init(
    rank: c_int,
    size: c_int,
    most: Option<Most>,
    context: *mut c_void,
    file: *const c_char,
) -> c_int {
    // SAFETY: the header hands over a function that can be called as long as the session is there,
    // and a string or NULL.
    unsafe { begin(words(file), Peers::new((rank, size), most, context)) }
}

/// The same, with the functions by which bytes are passed on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_veloc_init_apart(
    rank: c_int,
    size: c_int,
    most: Option<Most>,
    gather: Option<Gather>,
    send: Option<SendTo>,
    receive: Option<ReceiveAny>,
    context: *mut c_void,
    file: *const c_char,
) -> c_int {
    // SAFETY: the header hands over functions that can be called as long as the session is there,
    // and a string or NULL.
    unsafe {
        let peers = Peers::new((rank, size), most, context);
        begin(words(file), peers.map(|peers| peers.with_post(gather, send, receive)))
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Init_single(id: c_uint, file: *const c_char) -> c_int {
    // SAFETY: the header asks for a string or NULL.
    begin(unsafe { words(file) }, Ok(Peers::standalone(id)))
}

/// `drain`: whether what is left to a thread is waited for; here it always is, so that no thread
/// outlives the session.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Finalize(_drain: c_int) -> c_int {
    let done = with(Session::wait);
    let Ok(mut session) = SESSION.lock() else { return FAILURE };
    *session = None;
    number(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Mem_protect(
    id: c_int,
    at: *mut c_void,
    count: usize,
    size: usize,
) -> c_int {
    number(with(|session| {
        if count == 0 {
            session.unprotect(id).ok();
            return Ok(());
        }
        let element = Type { kind: Kind::Bytes, size };
        // SAFETY: the header asks for memory that is there until it is unprotected.
        unsafe { session.protect(id, Region { at: at.cast(), element, count }) }
    }))
}

#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Mem_unprotect(id: c_int) -> c_int {
    number(with(|session| session.unprotect(id)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Route_file(original: *const c_char, routed: *mut c_char) -> c_int {
    number(with(|session| {
        // SAFETY: the header asks for a string.
        let path = session.route(unsafe { words(original) }?)?;
        // SAFETY: the header asks for so much room.
        unsafe { write_text(&path.to_string_lossy(), routed, MAX_NAME_BYTES) }
    }))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint_begin(name: *const c_char, version: c_int) -> c_int {
    // SAFETY: the header asks for a string.
    number(with(|session| session.begin(unsafe { words(name) }?, i64::from(version))))
}

/// Which regions a mode of VeloC's takes.
///
/// # Safety
///
/// There are as many numbers.
unsafe fn selected(mode: c_int, ids: *const c_int, count: c_int) -> Result<Which, RegionsError> {
    // SAFETY: the caller promises that.
    let some = if count > 0 { unsafe { which(ids, count) } } else { Which::Some([].into()) };
    match (mode, some) {
        (ALL, _) => Ok(Which::All),
        (SOME, some) => Ok(some),
        (REST, Which::Some(ids)) => Ok(Which::Rest(ids)),
        _ => Err(RegionsError::Use(format!("there is no mode {mode} to select regions"))),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint_selective(
    mode: c_int,
    ids: *mut c_int,
    count: c_int,
) -> c_int {
    // SAFETY: the header asks for as many numbers.
    number(with(|session| session.save(&unsafe { selected(mode, ids, count) }?)))
}

#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_mem() -> c_int {
    number(with(|session| session.save(&Which::All)))
}

#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_end(success: c_int) -> c_int {
    number(with(|session| session.end(success != 0)))
}

#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Checkpoint_wait() -> c_int {
    number(with(Session::wait))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Checkpoint(name: *const c_char, version: c_int) -> c_int {
    // SAFETY: the header asks for a string.
    number(with(|session| session.checkpoint(unsafe { words(name) }?, i64::from(version))))
}

/// The newest version below this one; 0: the newest.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart_test(name: *const c_char, version: c_int) -> c_int {
    let found = with(|session| {
        let most = if version == 0 { c_int::MAX } else { version.saturating_sub(1) };
        // SAFETY: the header asks for a string.
        session.newest(unsafe { words(name) }?, i64::from(most))
    });
    found.flatten().and_then(|version| c_int::try_from(version).ok()).unwrap_or(FAILURE)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart_begin(name: *const c_char, version: c_int) -> c_int {
    // SAFETY: the header asks for a string.
    number(with(|session| session.begin_restore(unsafe { words(name) }?, i64::from(version))))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Recover_selective(
    mode: c_int,
    ids: *mut c_int,
    count: c_int,
) -> c_int {
    // SAFETY: the header asks for as many numbers.
    number(with(|session| session.recover(&unsafe { selected(mode, ids, count) }?, false)))
}

/// Bytes of a region in the checkpoint; -1: it is not there.
#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Recover_size(id: c_int) -> c_int {
    let bytes = with(|session| Ok(session.stored(id).map(crate::format::Entry::bytes)));
    bytes.flatten().map_or(FAILURE, |bytes| c_int::try_from(bytes).unwrap_or(c_int::MAX))
}

#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Recover_mem() -> c_int {
    number(with(|session| session.recover(&Which::All, false)))
}

#[unsafe(no_mangle)]
pub extern "C" fn VELOC_Restart_end(success: c_int) -> c_int {
    number(with(|session| session.end_restore(success != 0)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn VELOC_Restart(name: *const c_char, version: c_int) -> c_int {
    number(with(|session| {
        // SAFETY: the header asks for a string.
        session.begin_restore(unsafe { words(name) }?, i64::from(version))?;
        let done = session.recover(&Which::All, false);
        let ended = session.end_restore(done.is_ok());
        done.and(ended)
    }))
}
