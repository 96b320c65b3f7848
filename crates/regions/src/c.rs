//! The interface for C: `include/eyrie_regions.h`. What each function does is said there.
//!
//! Kept true: what a caller hands over is looked at before it is used; an error is a number, and a
//! line of text that lives until the next call.

// The header says what a caller has to keep to.
#![allow(clippy::missing_safety_doc)]

use crate::config::Config;
use crate::error::RegionsError;
use crate::kind::{Kind, Type};
use crate::peers::{Gather, Most, Peers, ReceiveAny, SendTo};
use crate::session::{Region, Session, Which};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

pub const OK: c_int = 0;
pub const NONE: c_int = -1;
pub const FAILED: c_int = -2;

/// What C calls `eyrie_regions`.
pub struct Handle {
    pub(crate) session: Session,
    error: CString,
}

thread_local! {
    /// Why nothing was opened.
    static UNOPENED: RefCell<CString> = RefCell::default();
}

fn text(error: &RegionsError) -> CString {
    // There is no NUL left that could be refused.
    CString::new(error.to_string().replace('\0', "?")).unwrap_or_default()
}

impl Handle {
    pub(crate) fn new(session: Session) -> Handle {
        Handle { session, error: CString::default() }
    }

    /// The number for C of how something went.
    fn told(&mut self, done: Result<(), RegionsError>) -> c_int {
        match done {
            Ok(()) => OK,
            Err(error) => {
                self.error = text(&error);
                FAILED
            }
        }
    }
}

/// A text of the caller's; empty for NULL.
///
/// # Safety
///
/// `from` is NULL or a string of C's that stays as it is meanwhile.
pub(crate) unsafe fn words<'a>(from: *const c_char) -> Result<&'a str, RegionsError> {
    if from.is_null() {
        return Ok("");
    }
    // SAFETY: the caller promises a string.
    let text = unsafe { CStr::from_ptr(from) }.to_str();
    text.map_err(|_| RegionsError::Use("a name or an option is not UTF-8".into()))
}

/// Variables of the environment.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Does something with a handle.
///
/// # Safety
///
/// `handle` is NULL or one that was opened and is not closed, and no other thread uses it.
unsafe fn with(
    handle: *mut Handle,
    work: impl FnOnce(&mut Session) -> Result<(), RegionsError>,
) -> c_int {
    // SAFETY: the caller promises that it is one, and used by nobody else.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return FAILED };
    let done = work(&mut handle.session);
    handle.told(done)
}

/// Numbers of regions; NULL: all.
///
/// # Safety
///
/// `ids` is NULL or has `count` numbers.
pub(crate) unsafe fn which(ids: *const c_int, count: c_int) -> Which {
    match usize::try_from(count) {
        Ok(count) if !ids.is_null() => {
            // SAFETY: the caller promises so many numbers.
            let ids = unsafe { std::slice::from_raw_parts(ids, count) };
            Which::Some(ids.iter().copied().collect::<BTreeSet<i32>>())
        }
        _ => Which::All,
    }
}

/// Writes a text for C; an error if there is no room.
///
/// # Safety
///
/// `to` is NULL or has room for `room` bytes.
pub(crate) unsafe fn write_text(
    text: &str,
    to: *mut c_char,
    room: usize,
) -> Result<(), RegionsError> {
    if to.is_null() || text.len() >= room {
        return Err(RegionsError::Use(format!("there is no room for '{text}'")));
    }
    // SAFETY: there is room for the text and the NUL behind it.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len());
        to.add(text.len()).write(0);
    }
    Ok(())
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_regions_open(
    options: *const c_char,
    rank: c_int,
    size: c_int,
    most: Option<Most>,
    context: *mut c_void,
    out: *mut *mut Handle,
) -> c_int {
    // SAFETY: the header asks for a function that can be called until the handle is closed.
    let peers = unsafe { Peers::new((rank, size), most, context) };
    // SAFETY: the header asks for a string or NULL, and a place for a handle.
    unsafe { open(options, peers, out) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_regions_open_apart(
    options: *const c_char,
    rank: c_int,
    size: c_int,
    most: Option<Most>,
    gather: Option<Gather>,
    send: Option<SendTo>,
    receive: Option<ReceiveAny>,
    context: *mut c_void,
    out: *mut *mut Handle,
) -> c_int {
    // SAFETY: the header asks for functions that can be called until the handle is closed.
    let peers = unsafe {
        let peers = Peers::new((rank, size), most, context);
        peers.map(|peers| peers.with_post(gather, send, receive))
    };
    // SAFETY: the header asks for a string or NULL, and a place for a handle.
    unsafe { open(options, peers, out) }
}

/// # Safety
///
/// `options` is a string or NULL; `out` is NULL or a place for a handle.
unsafe fn open(
    options: *const c_char,
    peers: Result<Peers, RegionsError>,
    out: *mut *mut Handle,
) -> c_int {
    if out.is_null() {
        return FAILED;
    }
    let open = || {
        let peers = peers?;
        // SAFETY: the caller promises a string or NULL.
        let config = Config::read(unsafe { words(options) }?, &variable);
        let config = peers.all(config)?;
        Session::open(config, peers)
    };
    let (handle, code) = match open() {
        Ok(session) => (Box::into_raw(Box::new(Handle::new(session))), OK),
        Err(error) => {
            UNOPENED.with(|unopened| *unopened.borrow_mut() = text(&error));
            (std::ptr::null_mut(), FAILED)
        }
    };
    // SAFETY: it is not NULL, and the caller promises a place for a handle.
    unsafe { out.write(handle) };
    code
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_regions_close(handle: *mut Handle) -> c_int {
    if handle.is_null() {
        return OK;
    }
    // SAFETY: the header asks for a handle that is not used any more.
    let mut handle = unsafe { Box::from_raw(handle) };
    let done = handle.session.wait();
    if let Err(error) = &done {
        UNOPENED.with(|unopened| *unopened.borrow_mut() = text(error));
    }
    handle.told(done)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_regions_error(handle: *const Handle) -> *const c_char {
    // SAFETY: the header asks for NULL or a handle.
    match unsafe { handle.as_ref() } {
        Some(handle) => handle.error.as_ptr(),
        // It stays where it is until this thread fails to open something again.
        None => UNOPENED.with(|unopened| unopened.borrow().as_ptr()),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_protect(
    handle: *mut Handle,
    id: c_int,
    at: *mut c_void,
    kind: c_int,
    size: usize,
    count: usize,
) -> c_int {
    let work = |session: &mut Session| {
        let why = format!("there is no kind {kind} of elements");
        let kind = Kind::of(kind).ok_or(RegionsError::Region { id, why })?;
        let region = Region { at: at.cast(), element: Type { kind, size }, count };
        // SAFETY: the header asks for memory that is there until it is unprotected.
        unsafe { session.protect(id, region) }
    };
    // SAFETY: as for all functions with a handle.
    unsafe { with(handle, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_unprotect(handle: *mut Handle, id: c_int) -> c_int {
    // SAFETY: as for all functions with a handle.
    unsafe { with(handle, |session| session.unprotect(id)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_checkpoint(
    handle: *mut Handle,
    name: *const c_char,
    version: i64,
) -> c_int {
    // SAFETY: as for all functions with a handle; the name is a string.
    unsafe { with(handle, |session| session.checkpoint(words(name)?, version)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_checkpoint_begin(
    handle: *mut Handle,
    name: *const c_char,
    version: i64,
) -> c_int {
    // SAFETY: as for all functions with a handle; the name is a string.
    unsafe { with(handle, |session| session.begin(words(name)?, version)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_checkpoint_save(
    handle: *mut Handle,
    ids: *const c_int,
    count: c_int,
) -> c_int {
    // SAFETY: as for all functions with a handle; there are as many numbers.
    unsafe { with(handle, |session| session.save(&which(ids, count))) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_checkpoint_end(handle: *mut Handle, success: c_int) -> c_int {
    // SAFETY: as for all functions with a handle.
    unsafe { with(handle, |session| session.end(success != 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_route(
    handle: *mut Handle,
    name: *const c_char,
    path: *mut c_char,
    room: usize,
) -> c_int {
    let work = |session: &mut Session| {
        // SAFETY: the name is a string.
        let routed = session.route(unsafe { words(name) }?)?;
        // SAFETY: there is as much room.
        unsafe { write_text(&routed.to_string_lossy(), path, room) }
    };
    // SAFETY: as for all functions with a handle.
    unsafe { with(handle, work) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_wait(handle: *mut Handle) -> c_int {
    // SAFETY: as for all functions with a handle.
    unsafe { with(handle, Session::wait) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_newest(handle: *mut Handle, name: *const c_char, most: i64) -> i64 {
    let mut version = i64::from(NONE);
    let work = |session: &mut Session| {
        // SAFETY: the name is a string.
        let found = session.newest(unsafe { words(name) }?, most)?;
        version = found.unwrap_or(version);
        Ok(())
    };
    // SAFETY: as for all functions with a handle.
    match unsafe { with(handle, work) } {
        OK => version,
        failed => i64::from(failed),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_restore(
    handle: *mut Handle,
    name: *const c_char,
    version: i64,
) -> c_int {
    // SAFETY: as for all functions with a handle; the name is a string.
    unsafe { with(handle, |session| session.restore(words(name)?, version)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_restore_begin(
    handle: *mut Handle,
    name: *const c_char,
    version: i64,
) -> c_int {
    // SAFETY: as for all functions with a handle; the name is a string.
    unsafe { with(handle, |session| session.begin_restore(words(name)?, version)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_restore_load(
    handle: *mut Handle,
    ids: *const c_int,
    count: c_int,
) -> c_int {
    // SAFETY: as for all functions with a handle; there are as many numbers.
    unsafe { with(handle, |session| session.recover(&which(ids, count), true)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_restore_end(handle: *mut Handle, success: c_int) -> c_int {
    // SAFETY: as for all functions with a handle.
    unsafe { with(handle, |session| session.end_restore(success != 0)) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn eyrie_stored(
    handle: *mut Handle,
    id: c_int,
    kind: *mut c_int,
    size: *mut usize,
    count: *mut usize,
) -> c_int {
    // SAFETY: as for all functions with a handle.
    let Some(handle) = (unsafe { handle.as_ref() }) else { return FAILED };
    let Some(entry) = handle.session.stored(id) else { return NONE };
    let number = |number: u64| usize::try_from(number).unwrap_or(usize::MAX);
    // SAFETY: the header asks for NULL or places for numbers.
    unsafe {
        if !kind.is_null() {
            kind.write(entry.kind as c_int);
        }
        if !size.is_null() {
            size.write(number(entry.size));
        }
        if !count.is_null() {
            count.write(number(entry.count));
        }
    }
    OK
}
