//! The functions on events: kinds, registrations, callbacks, instances.

use std::ffi::{c_char, c_int, c_ulonglong, c_void};

use eyrie_core::datatype::predefined::UNSIGNED_LONG_LONG;
use eyrie_core::handle::Handle;
use eyrie_core::info;

use super::event::{Callback, Called, EVENTS, Instance, Registration, numbers_told};
use super::{Told, Tools, at, lock, name_in, put, put_text, put_wanted, tool_shims};
use crate::global;
use crate::repr::tools::{Bind, SAFETIES, ToolError, Verbosity};
use crate::repr::{Aint, CHandle, Datatype, Info, LargeCount};

/// Called when a registration is freed: the registration, a safety, the tool's data.
type FreeCallback = unsafe extern "C" fn(usize, c_int, *mut c_void);
/// Called when events were dropped, which none is: those between two looks are one, with the newest
/// number.
type DroppedCallback = unsafe extern "C" fn(LargeCount, usize, c_int, c_int, *mut c_void);

/// An info object without hints, as none is taken.
pub fn no_hints() -> Told<Handle> {
    global::infos().insert(info::Info::default()).map_err(|_| ToolError::Invalid)
}

/// Which of `SAFETIES` a level is.
fn safety_in(level: c_int) -> Told<usize> {
    SAFETIES.iter().position(|s| *s == level).ok_or(ToolError::Invalid)
}

impl Tools {
    fn registration(&mut self, id: usize) -> Told<&mut Registration> {
        self.events.registrations.get_mut(&id).ok_or(ToolError::InvalidHandle)
    }

    fn instance(&self, id: usize) -> Told<Instance> {
        self.events.instances.get(&id).copied().ok_or(ToolError::InvalidHandle)
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn PMPI_T_event_handle_free(
    id: usize,
    data: *mut c_void,
    callback: Option<FreeCallback>,
) -> c_int {
    let mut kept = lock();
    if kept.users == 0 {
        return ToolError::NotInitialized.code();
    }
    if kept.events.registrations.remove(&id).is_none() {
        return ToolError::InvalidHandle.code();
    }
    kept.events.watch(None);
    drop(kept);
    if let Some(callback) = callback {
        // SAFETY: the tool gave it for this; the lock is not held, so it may call the interface.
        unsafe { callback(id, SAFETIES[0], data) };
    }
    0
}

tool_shims! {
    fn PMPI_T_event_get_num (number: *mut c_int); |_tools| {
        put(number, EVENTS.len() as c_int)?;
    }
    fn PMPI_T_event_get_info (index: c_int, name: *mut c_char, name_length: *mut c_int,
                              verbosity: *mut c_int, types: *mut Datatype,
                              displacements: *mut Aint, elements: *mut c_int,
                              choices: *mut usize, info: *mut Info, about: *mut c_char,
                              about_length: *mut c_int, bind: *mut c_int); |_tools| {
        let event = at(&EVENTS, index)?;
        put_text(name, name_length, event.name);
        put_text(about, about_length, event.description);
        put_wanted(verbosity, Verbosity::UserBasic.value());
        // One element, for which there may be room.
        let room = elements.as_ref().copied().unwrap_or(0);
        if room > 0 {
            put_wanted(types, Datatype::of(UNSIGNED_LONG_LONG));
            put_wanted(displacements, 0);
        }
        put_wanted(elements, 1);
        put_wanted(choices, 0);
        put_wanted(bind, Bind::Nothing.value());
        if !info.is_null() {
            put(info, Info::of(no_hints()?))?;
        }
    }
    fn PMPI_T_event_get_index (name: *const c_char, index: *mut c_int); |_tools| {
        let name = name_in(name)?;
        let found = EVENTS.iter().position(|e| e.name.as_bytes() == name);
        put(index, found.ok_or(ToolError::InvalidName)? as c_int)?;
    }
    fn PMPI_T_event_handle_alloc (index: c_int, _object: *mut c_void, _info: Info,
                                  handle: *mut usize); |tools| {
        at(&EVENTS, index)?;
        let seen = if tools.events.is_watched() { None } else { Some(numbers_told()?) };
        let id = tools.id();
        put(handle, id)?;
        tools.events.insert(id, index as usize);
        tools.events.watch(seen);
    }
    fn PMPI_T_event_handle_set_info (id: usize, _info: Info); |tools| {
        tools.registration(id)?;
    }
    fn PMPI_T_event_handle_get_info (id: usize, info: *mut Info); |tools| {
        tools.registration(id)?;
        put(info, Info::of(no_hints()?))?;
    }
    fn PMPI_T_event_register_callback (id: usize, level: c_int, _info: Info, data: *mut c_void,
                                       callback: Option<Callback>); |tools| {
        let level = safety_in(level)?;
        let called = callback.map(|callback| Called { callback, data: data as usize });
        tools.registration(id)?.callbacks[level] = called;
    }
    fn PMPI_T_event_callback_set_info (id: usize, level: c_int, _info: Info); |tools| {
        safety_in(level)?;
        tools.registration(id)?;
    }
    fn PMPI_T_event_callback_get_info (id: usize, level: c_int, info: *mut Info); |tools| {
        safety_in(level)?;
        tools.registration(id)?;
        put(info, Info::of(no_hints()?))?;
    }
    fn PMPI_T_event_set_dropped_handler (id: usize, _callback: Option<DroppedCallback>); |tools| {
        tools.registration(id)?;
    }
    fn PMPI_T_event_read (id: usize, element: c_int, to: *mut c_void); |tools| {
        let instance = tools.instance(id)?;
        if element != 0 {
            return Err(ToolError::InvalidIndex);
        }
        put(to.cast::<c_ulonglong>(), instance.number)?;
    }
    fn PMPI_T_event_copy (id: usize, to: *mut c_void); |tools| {
        put(to.cast::<c_ulonglong>(), tools.instance(id)?.number)?;
    }
    fn PMPI_T_event_get_timestamp (id: usize, ticks: *mut LargeCount); |tools| {
        put(ticks, tools.instance(id)?.ticks)?;
    }
    fn PMPI_T_event_get_source (id: usize, source: *mut c_int); |tools| {
        tools.instance(id)?;
        put(source, 0)?;
    }
}
