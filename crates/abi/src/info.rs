//! Info objects (MPI 5.0 chapter 10). They may be used before MPI_Init and after MPI_Finalize, so
//! these functions work on the table of info objects, wherever that is, and not on the machine.

use std::ffi::{c_char, c_int};

use eyrie_core::consts::{INFO_ENV, INFO_NULL};
use eyrie_core::error::{Class, Res, class};
use eyrie_core::handle::Handle;
use eyrie_core::info::Info as Object;

use crate::arg::{bytes, get, put, put_text};
use crate::global;
use crate::repr::*;

/// A key argument: not empty, not too long.
///
/// # Safety
/// `at` is null or a C string.
unsafe fn key<'a>(at: *const c_char) -> Res<&'a [u8]> {
    // SAFETY: by the caller's word.
    let key = unsafe { bytes(at) }.map_err(|_| class::INFO_KEY)?;
    if key.is_empty() || key.len() >= INFO_KEY_ROOM_BYTES {
        return Err(class::INFO_KEY);
    }
    Ok(key)
}

/// As `shims`, with the table of info objects in the machine's place.
macro_rules! info_shims {
    ($(fn $name:ident ($($a:ident: $t:ty),* $(,)?); |$table:ident| $body:block)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> c_int {
            let inside = $crate::threads::Inside::enter();
            let $table = global::infos();
            // SAFETY: the program keeps to MPI's contract; what can be checked is checked.
            #[allow(clippy::redundant_closure_call)]
            let result = (|| -> Res<()> { unsafe { $body }; Ok(()) })();
            drop(inside);
            result.map_or_else(|class| failed(stringify!($name), class), |()| 0)
        }
    )*};
}

/// Gives an error to its handler; without a machine the one handler there is ends the process.
#[cold]
fn failed(name: &'static str, class: Class) -> c_int {
    if global::running() {
        return crate::shim::fail(name, class.into(), Handle(0), &[]);
    }
    global::die(&format!("{}: error {}", global::public(name), code_out(class.0)))
}

info_shims! {
    fn PMPI_Info_create (info: *mut Info); |t| {
        put(info, Info::of(t.insert(Object::default())?))?;
    }
    fn PMPI_Info_create_env (_argc: c_int, _argv: *mut *mut c_char, info: *mut Info); |t| {
        let copy = t.get(INFO_ENV)?.clone();
        put(info, Info::of(t.insert(copy)?))?;
    }
    fn PMPI_Info_dup (info: Info, new: *mut Info); |t| {
        let copy = t.get(info.core())?.clone();
        put(new, Info::of(t.insert(copy)?))?;
    }
    fn PMPI_Info_free (info: *mut Info); |t| {
        t.remove(get(info)?.core())?;
        put(info, Info::of(INFO_NULL))?;
    }
    fn PMPI_Info_set (info: Info, name: *const c_char, value: *const c_char); |t| {
        let value = bytes(value).map_err(|_| class::INFO_VALUE)?;
        if value.len() >= MAX_INFO_VAL_BYTES {
            return Err(class::INFO_VALUE);
        }
        t.get_mut(info.core())?.set(key(name)?, value);
    }
    fn PMPI_Info_delete (info: Info, name: *const c_char); |t| {
        if !t.get_mut(info.core())?.delete(key(name)?) {
            return Err(class::INFO_NOKEY);
        }
    }
    fn PMPI_Info_get (info: Info, name: *const c_char, length: c_int, value: *mut c_char,
                      flag: *mut c_int); |t| {
        let length = usize::try_from(length).map_err(|_| class::ARG)?;
        let found = t.get(info.core())?.get(key(name)?);
        put(flag, found.is_some().into())?;
        if let Some(text) = found {
            // The program's array has room for one byte more than it says (MPI 5.0 section 16.1).
            put_text(value, length + 1, text)?;
        }
    }
    fn PMPI_Info_get_string (info: Info, name: *const c_char, length: *mut c_int,
                             value: *mut c_char, flag: *mut c_int); |t| {
        let room = usize::try_from(get(length)?).map_err(|_| class::ARG)?;
        let found = t.get(info.core())?.get(key(name)?);
        put(flag, found.is_some().into())?;
        if let Some(text) = found {
            if room > 0 {
                put_text(value, room, text)?;
            }
            put(length, text.len() as c_int + 1)?;
        }
    }
    fn PMPI_Info_get_valuelen (info: Info, name: *const c_char, length: *mut c_int,
                               flag: *mut c_int); |t| {
        let found = t.get(info.core())?.get(key(name)?);
        put(flag, found.is_some().into())?;
        if let Some(text) = found {
            put(length, text.len() as c_int)?;
        }
    }
    fn PMPI_Info_get_nkeys (info: Info, count: *mut c_int); |t| {
        put(count, t.get(info.core())?.iter().count() as c_int)?;
    }
    fn PMPI_Info_get_nthkey (info: Info, n: c_int, name: *mut c_char); |t| {
        let n = usize::try_from(n).map_err(|_| class::ARG)?;
        let (found, _) = t.get(info.core())?.iter().nth(n).ok_or(class::ARG)?;
        put_text(name, INFO_KEY_ROOM_BYTES, found)?;
    }
}
