//! Info objects (MPI 5.0 chapter 10).

use std::ffi::{c_char, c_int};

use eyrie_core::error::{Res, class};

use crate::arg::{bytes, get, put, put_text};
use crate::repr::*;
use crate::shim::shims;

/// A key argument: not empty, not too long.
///
/// # Safety
/// `at` is null or a C string.
unsafe fn key<'a>(at: *const c_char) -> Res<&'a [u8]> {
    // SAFETY: by the caller's word.
    let key = unsafe { bytes(at) }.map_err(|_| class::INFO_KEY)?;
    if key.is_empty() || key.len() >= MAX_INFO_KEY_BYTES + usize::from(cfg!(abi_mpich)) {
        return Err(class::INFO_KEY);
    }
    Ok(key)
}

shims! {
    fn PMPI_Info_create (info: *mut Info); |m| {
        put(info, Info::of(m.info_create()?))?;
    }
    fn PMPI_Info_create_env (_argc: c_int, _argv: *mut *mut c_char, info: *mut Info); |m| {
        put(info, Info::of(m.info_create_env()?))?;
    }
    fn PMPI_Info_dup (info: Info, new: *mut Info); |m| {
        put(new, Info::of(m.info_dup(info.core())?))?;
    }
    fn PMPI_Info_free (info: *mut Info); |m| {
        let mut h = get(info)?.core();
        m.info_free(&mut h)?;
        put(info, Info::of(h))?;
    }
    fn PMPI_Info_set (info: Info, name: *const c_char, value: *const c_char); |m| {
        let value = bytes(value).map_err(|_| class::INFO_VALUE)?;
        if value.len() >= MAX_INFO_VAL_BYTES { Err(class::INFO_VALUE)? }
        m.info_set(info.core(), key(name)?, value)?;
    }
    fn PMPI_Info_delete (info: Info, name: *const c_char); |m| {
        m.info_delete(info.core(), key(name)?)?;
    }
    fn PMPI_Info_get (info: Info, name: *const c_char, length: c_int, value: *mut c_char,
                      flag: *mut c_int); |m| {
        let length = usize::try_from(length).map_err(|_| class::ARG)?;
        let found = m.info_get(info.core(), key(name)?)?;
        put(flag, found.is_some().into())?;
        if let Some(text) = found {
            // The program's array has room for one byte more than it says (MPI 5.0 section 16.1).
            put_text(value, length + 1, text)?;
        }
    }
    fn PMPI_Info_get_string (info: Info, name: *const c_char, length: *mut c_int,
                             value: *mut c_char, flag: *mut c_int); |m| {
        let room = usize::try_from(get(length)?).map_err(|_| class::ARG)?;
        let found = m.info_get(info.core(), key(name)?)?;
        put(flag, found.is_some().into())?;
        if let Some(text) = found {
            if room > 0 {
                put_text(value, room, text)?;
            }
            put(length, text.len() as c_int + 1)?;
        }
    }
    fn PMPI_Info_get_valuelen (info: Info, name: *const c_char, length: *mut c_int,
                               flag: *mut c_int); |m| {
        let found = m.info_get(info.core(), key(name)?)?;
        put(flag, found.is_some().into())?;
        if let Some(text) = found {
            put(length, text.len() as c_int)?;
        }
    }
    fn PMPI_Info_get_nkeys (info: Info, count: *mut c_int); |m| {
        put(count, m.info_nkeys(info.core())?)?;
    }
    fn PMPI_Info_get_nthkey (info: Info, n: c_int, name: *mut c_char); |m| {
        // MPICH's constant leaves out the zero, the standard ABI's counts it.
        let room = MAX_INFO_KEY_BYTES + usize::from(cfg!(abi_mpich));
        put_text(name, room, m.info_nthkey(info.core(), n)?)?;
    }
}
