//! Error handlers, classes, codes and texts (MPI 5.0 chapter 9).

use std::ffi::{c_char, c_int};
use std::rc::Rc;

use eyrie_core::errhandler::{Action, ErrFn, ErrKind};
use eyrie_core::error::{Class, class};
use eyrie_core::handle::Handle;

use crate::arg::{bytes, get, put, put_text};
use crate::check;
use crate::repr::*;
use crate::shim::shims;

/// A handler of the program; more arguments are the library's affair, we pass none.
pub type HandlerC<H> = unsafe extern "C" fn(*mut H, *mut c_int, ...);

fn handler<H: CHandle + 'static>(f: Option<HandlerC<H>>) -> Result<ErrFn, Class> {
    let f = f.ok_or(class::ARG)?;
    let fortran = is_fortran();
    Ok(Rc::new(move |object: Handle, code| {
        let object = H::of(object);
        let mut object = if fortran { object.for_fortran() } else { object };
        let mut code = code_out(code);
        // SAFETY: the program gave it as a handler for this kind of object.
        unsafe { f(&mut object, &mut code) };
        code_in(code)
    }))
}

shims! {
    fn PMPI_Comm_create_errhandler (f: Option<HandlerC<Comm>>, eh: *mut Errhandler); |m| {
        put(eh, Errhandler::of(m.errhandler_create(ErrKind::Comm, handler(f)?)?))?;
    }
    fn PMPI_Win_create_errhandler (f: Option<HandlerC<Win>>, eh: *mut Errhandler); |m| {
        put(eh, Errhandler::of(m.errhandler_create(ErrKind::Win, handler(f)?)?))?;
    }
    fn PMPI_File_create_errhandler (f: Option<HandlerC<File>>, eh: *mut Errhandler); |m| {
        put(eh, Errhandler::of(m.errhandler_create(ErrKind::File, handler(f)?)?))?;
    }
    fn PMPI_Session_create_errhandler (f: Option<HandlerC<Session>>, eh: *mut Errhandler); |m| {
        put(eh, Errhandler::of(m.errhandler_create(ErrKind::Session, handler(f)?)?))?;
    }
    fn PMPI_Comm_set_errhandler (comm: Comm, eh: Errhandler) on comm; |m| {
        m.comm_set_errhandler(comm.core(), eh.core())?;
    }
    fn PMPI_Comm_get_errhandler (comm: Comm, eh: *mut Errhandler) on comm; |m| {
        put(eh, Errhandler::of(m.comm_get_errhandler(comm.core())?))?;
    }
    fn PMPI_Errhandler_free (eh: *mut Errhandler); |m| {
        let mut h = get(eh)?.core();
        m.errhandler_free(&mut h)?;
        put(eh, Errhandler::of(h))?;
    }
    fn PMPI_Comm_call_errhandler (comm: Comm, code: c_int) on comm; |m| {
        m.comm_size(comm.core())?;
        let code = code_in(code);
        call("PMPI_Comm_call_errhandler", m.raise(comm.core(), Class(code)), code);
    }
    fn PMPI_Error_class (code: c_int, class: *mut c_int); |m| {
        put(class, code_out(m.error_class(code_in(code))?))?;
    }
    fn PMPI_Error_string (code: c_int, text: *mut c_char, length: *mut c_int); |m| {
        let code = code_in(code);
        let mut found = m.error_string(code)?.to_vec();
        // Of the last error it is known which call it was, and why.
        if let Some(told) = check::last(code) {
            found.extend_from_slice(b"; ");
            found.extend_from_slice(told.as_bytes());
        }
        put(length, put_text(text, MAX_ERROR_STRING_BYTES, &found)?)?;
    }
    fn PMPI_Add_error_class (class: *mut c_int); |m| {
        put(class, code_out(m.add_error_class()?))?;
    }
    fn PMPI_Add_error_code (class: c_int, code: *mut c_int); |m| {
        put(code, code_out(m.add_error_code(code_in(class))?))?;
    }
    fn PMPI_Add_error_string (code: c_int, text: *const c_char); |m| {
        let text = bytes(text)?;
        if text.len() >= MAX_ERROR_STRING_BYTES { Err(class::ARG)? }
        m.add_error_string(code_in(code), text)?;
    }
    fn PMPI_Remove_error_class (class: c_int); |m| {
        m.remove_error_class(code_in(class))?;
    }
    fn PMPI_Remove_error_code (code: c_int); |m| {
        m.remove_error_code(code_in(code))?;
    }
    fn PMPI_Remove_error_string (code: c_int); |m| {
        m.remove_error_string(code_in(code))?;
    }
}

/// Does what a handler says, as `MPI_Comm_call_errhandler` and its kin ask for it.
pub(crate) fn call(name: &'static str, action: Action, code: c_int) {
    match action {
        Action::Return => {}
        Action::Call(f, object) => drop(f(object, code)),
        Action::Abort => crate::global::fatal(name, code, ""),
    }
}
