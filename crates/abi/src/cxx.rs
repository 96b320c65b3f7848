//! What Open MPI's library for C++ (libmpi_cxx.so.40) needs beside MPI: functions of its own that
//! are called for the program's, with the program's function as one more argument.

use std::ffi::{c_int, c_void};
use std::rc::Rc;
use std::sync::OnceLock;

use eyrie_core::errhandler::{ErrFn, ErrKind};
use eyrie_core::error::class;
use eyrie_core::handle::Handle;

use crate::arg::put;
use crate::op;
use crate::repr::*;
use crate::shim::shims;

/// What calls a reduction of the program's in C++, which is its last argument.
pub type Reduction =
    unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut Datatype, *mut c_void);

/// What calls an error handler of the program's in C++, which is its last argument; the object is a
/// handle of the handler's kind.
pub type Handler = unsafe extern "C" fn(*mut c_void, *mut c_int, *mut c_void);

/// Said by libmpi_cxx when it is loaded.
static REDUCTION: OnceLock<Reduction> = OnceLock::new();

#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Eyrie_cxx_reduction(call: Reduction) {
    // The same each time.
    let _ = REDUCTION.set(call);
}

shims! {
    // Open MPI's headers for C++ call it after MPI_Op_create, which they give a function of
    // libmpi_cxx that has an argument more than MPI passes.
    fn ompi_op_set_cxx_callback (op: Op, function: *mut c_void); |m| {
        let call = *REDUCTION.get().ok_or(class::OTHER)?;
        let f = move |a, b, n: *mut c_int, dt: *mut Datatype| {
            // SAFETY: libmpi_cxx gave it as a function of this form, with the program's own.
            unsafe { call(a, b, n, dt, function) }
        };
        let call = Box::new(move |a, b, n, dt| op::apply(f, a, b, n, (dt, false)));
        m.ops.replace_user(op.core(), call)?;
    }
    // Kinds: 0 communicators, 1 windows, 2 files, 3 all of them.
    fn MPIX_Eyrie_cxx_errhandler (
        kind: c_int, call: Option<Handler>, function: *mut c_void, eh: *mut Errhandler); |m| {
        let call = call.ok_or(class::ARG)?;
        let (of, kind): (fn(Handle) -> usize, _) = match kind {
            0 => (|h| Comm::of(h).0, ErrKind::Comm),
            1 => (|h| Win::of(h).0, ErrKind::Win),
            2 => (|h| File::of(h).0, ErrKind::File),
            _ => (|_| 0, ErrKind::Any),
        };
        let handler: ErrFn = Rc::new(move |object, code| {
            let (mut object, mut code) = (of(object), code_out(code));
            // SAFETY: libmpi_cxx gave it as a function of this form, with the program's own.
            unsafe { call((&raw mut object).cast(), &mut code, function) };
            code_in(code)
        });
        put(eh, Errhandler::of(m.errhandler_create(kind, handler)?))?;
    }
}
