//! Control variables: listed, read and set.

use std::ffi::{CStr, OsStr, c_char, c_int, c_ulonglong, c_void};
use std::os::unix::ffi::OsStrExt;

use eyrie_core::datatype::predefined::{CHAR, INT, UNSIGNED_LONG_LONG};
use eyrie_core::handle::Handle;

use super::choices::{PROTECTION, handle_of};
use super::cvar_table::{CVARS, Cvar, From, Kind, TEXT_BYTES};
use super::numbers::{self, gauge};
use super::tool_shims;
use super::{Told, at, get, name_in, put, put_text, put_wanted, told, told_bytes};
use crate::check::level as check;
use crate::global;
use crate::repr::tools::{Bind, Scope, ToolError};
use crate::repr::{CHandle, Datatype};

/// What is only read when MPI starts.
const READ_BY_INIT: [&str; 2] = ["EYRIE_ALONE", check::VARIABLE];

impl Cvar {
    fn datatype(&self) -> Handle {
        match self.kind {
            Kind::Text => CHAR,
            Kind::Number | Kind::Choice(_) => INT,
            Kind::Bytes => UNSIGNED_LONG_LONG,
        }
    }

    fn elements(&self) -> c_int {
        if let Kind::Text = self.kind { TEXT_BYTES as c_int } else { 1 }
    }

    /// Its text in the environment; what does not fit is cut.
    fn text(&self) -> Vec<u8> {
        let text = std::env::var_os(self.name).unwrap_or_default();
        text.as_bytes().iter().copied().take(TEXT_BYTES - 1).collect()
    }

    fn number(&self) -> u64 {
        match self.from {
            From::Environment => {
                let number = str::from_utf8(&self.text()).ok().and_then(|t| t.parse::<i32>().ok());
                i64::from(number.unwrap_or(-1)) as u64
            }
            From::Job(of) => gauge(of),
            From::Protection => protection() as u64,
            From::Check => check::asked().into(),
        }
    }

    /// Whether it may be set, and now.
    fn settable(&self) -> Told<()> {
        match self.scope {
            Scope::Constant | Scope::ReadOnly => Err(ToolError::CvarSetNever),
            Scope::Local if READ_BY_INIT.contains(&self.name) && global::running() => {
                Err(ToolError::CvarSetNotNow)
            }
            Scope::Local => Ok(()),
        }
    }
}

fn protection() -> c_int {
    let recording = numbers::all().map(|g| g.recording()).unwrap_or_default();
    let name = match (recording.outcomes(), recording.protects()) {
        (true, _) => "logged",
        (false, true) => "coordinated",
        (false, false) => "none",
    };
    PROTECTION.items.iter().find(|item| item.name == name).map_or(0, |item| item.value)
}

/// # Safety
/// `to` has room for the elements of the variable.
unsafe fn read(cvar: &Cvar, to: *mut c_void) -> Told<()> {
    // SAFETY: by the caller's word.
    unsafe {
        match cvar.kind {
            Kind::Text => {
                let text = told_bytes(cvar.text())?;
                crate::arg::put_text(to.cast(), TEXT_BYTES, &text)
                    .map(|_| ())
                    .map_err(|_| ToolError::Invalid)
            }
            Kind::Number | Kind::Choice(_) => {
                put(to.cast::<c_int>(), told(|| cvar.number())? as c_int)
            }
            Kind::Bytes => put(to.cast::<c_ulonglong>(), told(|| cvar.number())?),
        }
    }
}

/// Only what is of the environment is ever set.
///
/// # Safety
/// `from` is null or points to a value of the variable's type: for a text, a C string.
unsafe fn write(cvar: &Cvar, from: *const c_void) -> Told<()> {
    cvar.settable()?;
    if from.is_null() {
        return Err(ToolError::Invalid);
    }
    let text = match cvar.kind {
        Kind::Choice(choices) => {
            // SAFETY: by the caller's word.
            let value = unsafe { get(from.cast::<c_int>()) }?;
            let found = choices.items.iter().find(|item| item.value == value);
            found.ok_or(ToolError::Invalid)?.name.as_bytes()
        }
        // SAFETY: by the caller's word.
        _ => unsafe { CStr::from_ptr(from.cast()) }.to_bytes(),
    };
    if text.len() >= TEXT_BYTES {
        return Err(ToolError::Invalid);
    }
    // SAFETY: the program calls this, and knows whether another of its threads uses its
    // environment; the library's own threads do not.
    unsafe {
        if text.is_empty() {
            std::env::remove_var(cvar.name);
        } else {
            std::env::set_var(cvar.name, OsStr::from_bytes(text));
        }
    }
    Ok(())
}

tool_shims! {
    fn PMPI_T_cvar_get_num (number: *mut c_int); |_tools| {
        put(number, CVARS.len() as c_int)?;
    }
    fn PMPI_T_cvar_get_info (index: c_int, name: *mut c_char, name_length: *mut c_int,
                             verbosity: *mut c_int, datatype: *mut Datatype,
                             choices: *mut usize, about: *mut c_char, about_length: *mut c_int,
                             bind: *mut c_int, scope: *mut c_int); |_tools| {
        let cvar = at(&CVARS, index)?;
        put_text(name, name_length, cvar.name);
        put_text(about, about_length, cvar.description);
        put_wanted(verbosity, cvar.verbosity.value());
        put_wanted(datatype, Datatype::of(cvar.datatype()));
        let own = if let Kind::Choice(own) = cvar.kind { Some(own) } else { None };
        put_wanted(choices, handle_of(own));
        put_wanted(bind, Bind::Nothing.value());
        put_wanted(scope, cvar.scope.value());
    }
    fn PMPI_T_cvar_get_index (name: *const c_char, index: *mut c_int); |_tools| {
        let name = name_in(name)?;
        let found = CVARS.iter().position(|v| v.name.as_bytes() == name);
        put(index, found.ok_or(ToolError::InvalidName)? as c_int)?;
    }
    fn PMPI_T_cvar_handle_alloc (index: c_int, _object: *mut c_void, handle: *mut usize,
                                 count: *mut c_int); |tools| {
        let cvar = at(&CVARS, index)?;
        let id = tools.id();
        put(handle, id)?;
        put_wanted(count, cvar.elements());
        tools.cvars.insert(id, index as usize);
    }
    fn PMPI_T_cvar_handle_free (handle: *mut usize); |tools| {
        tools.cvars.remove(&get(handle)?).ok_or(ToolError::InvalidHandle)?;
        put(handle, 0)?;
    }
    fn PMPI_T_cvar_read (handle: usize, to: *mut c_void); |tools| {
        let index = *tools.cvars.get(&handle).ok_or(ToolError::InvalidHandle)?;
        read(&CVARS[index], to)?;
    }
    fn PMPI_T_cvar_write (handle: usize, from: *const c_void); |tools| {
        let index = *tools.cvars.get(&handle).ok_or(ToolError::InvalidHandle)?;
        write(&CVARS[index], from)?;
    }
}
