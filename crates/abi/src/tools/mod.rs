//! The tool information interface, MPI_T (MPI 5.0 chapter 15).
//!
//! It works before MPI_Init, after MPI_Finalize and in every thread: what it keeps lies behind a
//! lock of its own, and it asks the machine only where `global::outside` lends it. Kept true:
//! variables are what they happen to be, so what the main thread reads between init and finalize is
//! recorded, and a rank that comes back reads it again; others read what there is. No handle is a
//! pointer: each is a number that is never given twice, and looked up. No error handler is called.

mod about;
mod category;
mod choices;
mod cvar;
mod cvar_table;
mod event;
mod event_handle;
pub mod numbers;
mod pvar;
mod pvar_table;
mod source;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_char, c_int};
use std::sync::{Mutex, MutexGuard, PoisonError};

use eyrie_core::handle::Handle;

use crate::arg;
use crate::global;
use crate::repr::tools::ToolError;
use crate::repr::{CHandle, Comm, thread_in, thread_out};

pub use event::after_call;

/// Result of a function of the interface.
type Told<T> = Result<T, ToolError>;

/// All that the interface keeps.
pub struct Tools {
    /// How often it was initialized and not finalized.
    users: u32,
    last_id: usize,
    /// By handle, the variable.
    cvars: BTreeMap<usize, usize>,
    sessions: BTreeSet<usize>,
    pvars: BTreeMap<usize, pvar::PvarHandle>,
    events: event::Events,
}

static TOOLS: Mutex<Tools> = Mutex::new(Tools {
    users: 0,
    last_id: 0,
    cvars: BTreeMap::new(),
    sessions: BTreeSet::new(),
    pvars: BTreeMap::new(),
    events: event::Events::new(),
});

/// Handles are multiples of this: none is a constant of the standard's.
const ID_STEP: usize = 64;

impl Tools {
    /// A value for a new handle.
    fn id(&mut self) -> usize {
        self.last_id += ID_STEP;
        self.last_id
    }

    fn clear(&mut self) {
        self.cvars.clear();
        self.sessions.clear();
        self.pvars.clear();
        self.events.clear();
    }
}

/// A panic ends the process, so what is behind the lock is whole.
fn lock() -> MutexGuard<'static, Tools> {
    TOOLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A number that the program reads.
fn told(now: impl FnOnce() -> u64) -> Told<u64> {
    let Some(mut m) = global::outside() else { return Ok(now()) };
    m.enter();
    let told = m.number_for_tool(now());
    m.leave();
    told.map_err(|_| ToolError::Invalid)
}

/// Bytes that the program reads.
fn told_bytes(now: Vec<u8>) -> Told<Vec<u8>> {
    let Some(mut m) = global::outside() else { return Ok(now) };
    m.enter();
    let told = m.read_by_tool(&now);
    m.leave();
    told.map_err(|_| ToolError::Invalid)
}

/// The object that a handle is to be bound to.
///
/// # Safety
/// `object` is null or points to an object of the kind that the variable is bound to.
unsafe fn communicator(object: *const Comm) -> Told<Handle> {
    // SAFETY: by the caller's word.
    let comm = unsafe { arg::get(object) }.map_err(|_| ToolError::InvalidHandle)?.core();
    let m = global::outside().ok_or(ToolError::NotAccessible)?;
    m.comm_size(comm).map_err(|_| ToolError::InvalidHandle)?;
    Ok(comm)
}

/// Element `index` of a table.
fn at<T>(table: &'static [T], index: c_int) -> Told<&'static T> {
    let index = usize::try_from(index).map_err(|_| ToolError::InvalidIndex)?;
    table.get(index).ok_or(ToolError::InvalidIndex)
}

/// Stores a result that is to be stored: null stands for one that is not wanted.
///
/// # Safety
/// `to` is null or may be written.
unsafe fn put_wanted<T>(to: *mut T, value: T) {
    if !to.is_null() {
        // SAFETY: by the caller's word.
        unsafe { to.write(value) };
    }
}

/// Stores a result that has to be stored.
///
/// # Safety
/// As `put_wanted`.
unsafe fn put<T>(to: *mut T, value: T) -> Told<()> {
    // SAFETY: by the caller's word.
    unsafe { arg::put(to, value) }.map_err(|_| ToolError::Invalid)
}

/// Reads an argument that is passed by address.
///
/// # Safety
/// `from` is null or points to a `T`.
unsafe fn get<T: Copy>(from: *const T) -> Told<T> {
    // SAFETY: by the caller's word.
    unsafe { arg::get(from) }.map_err(|_| ToolError::Invalid)
}

/// A name that is looked for.
///
/// # Safety
/// `name` is null or a C string that lives as long as the result.
unsafe fn name_in<'a>(name: *const c_char) -> Told<&'a [u8]> {
    // SAFETY: by the caller's word.
    unsafe { arg::bytes(name) }.map_err(|_| ToolError::InvalidName)
}

/// Returns a text by the convention of MPI 5.0 section 15.3.3: `length` holds the room and then
/// what the whole text takes, with its zero; without room only that is told.
///
/// # Safety
/// `length` is null or may be read and written; `to` is null or has so many bytes.
unsafe fn put_text(to: *mut c_char, length: *mut c_int, text: &str) {
    if length.is_null() {
        return;
    }
    // SAFETY: by the caller's word.
    unsafe {
        let room = usize::try_from(*length).unwrap_or(0);
        if room > 0 && !to.is_null() {
            let _ = arg::put_text(to, room, text.as_bytes());
        }
        *length = text.len() as c_int + 1;
    }
}

/// Stores as many of the indices as there is room for.
///
/// # Safety
/// `to` is null or has room for `room` numbers.
unsafe fn put_indices(to: *mut c_int, room: c_int, all: impl Iterator<Item = usize>) {
    let room = usize::try_from(room).unwrap_or(0);
    if to.is_null() {
        return;
    }
    for (n, index) in all.take(room).enumerate() {
        // SAFETY: `n` is below the room.
        unsafe { to.add(n).write(index as c_int) };
    }
}

/// Defines exported functions of the interface: `|tools|` is what it keeps, once it is initialized.
macro_rules! tool_shims {
    ($(fn $name:ident ($($a:ident: $t:ty),* $(,)?); |$tools:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> std::ffi::c_int {
            let mut kept = $crate::tools::lock();
            if kept.users == 0 {
                return $crate::repr::tools::ToolError::NotInitialized.code();
            }
            #[allow(unused_variables)]
            let $tools = &mut *kept;
            // SAFETY: the program keeps to MPI's contract; what can be checked is checked.
            #[allow(clippy::redundant_closure_call, unused_unsafe)]
            let told = (|| -> $crate::tools::Told<()> { unsafe { $body }; Ok(()) })();
            told.map_or_else(|error| error.code(), |()| 0)
        }
    )*};
}
use tool_shims;

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_T_init_thread(required: c_int, provided: *mut c_int) -> c_int {
    // The lock makes all levels alike.
    let level = thread_in(required);
    let level = if thread_in(thread_out(level)) == level { level.max(0) } else { 0 };
    lock().users += 1;
    // SAFETY: null or the program's variable, by MPI's contract.
    unsafe { put_wanted(provided, thread_out(level)) };
    0
}

tool_shims! {
    fn PMPI_T_finalize (); |tools| {
        tools.users -= 1;
        if tools.users == 0 {
            tools.clear();
        }
    }
}
