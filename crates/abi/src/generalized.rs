//! Generalized requests (MPI 5.0 section 12.2).

use std::ffi::{c_int, c_void};
use std::rc::Rc;

use eyrie_core::error::class;
use eyrie_core::generalized::Generalized;

use crate::arg::put;
use crate::repr::*;
use crate::shim::shims;

type Query = unsafe extern "C" fn(*mut c_void, *mut Status) -> c_int;
type Free = unsafe extern "C" fn(*mut c_void) -> c_int;
type Cancel = unsafe extern "C" fn(*mut c_void, c_int) -> c_int;

shims! {
    fn PMPI_Grequest_start (query: Option<Query>, free: Option<Free>, cancel: Option<Cancel>,
                            extra: *mut c_void, request: *mut Request); |m| {
        let (query, free, cancel) =
            (query.ok_or(class::ARG)?, free.ok_or(class::ARG)?, cancel.ok_or(class::ARG)?);
        let functions = Generalized {
            query: Rc::new(move |status| {
                let mut out = Status::default();
                out.store(status);
                let code = code_in(query(extra, &mut out));
                *status = out.load();
                code
            }),
            free: Rc::new(move || code_in(free(extra))),
            cancel: Rc::new(move |complete| code_in(cancel(extra, complete.into()))),
        };
        put(request, Request::of(m.grequest_start(functions)?))?;
    }
    fn PMPI_Grequest_complete (request: Request); |m| {
        m.grequest_complete(request.core())?;
    }
}
