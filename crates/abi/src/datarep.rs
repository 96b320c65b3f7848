//! Representations of data in files that the program registers (MPI 5.0 section 14.5.3).

use std::ffi::{c_char, c_int, c_void};

use eyrie_core::error::{Res, class};
use eyrie_core::file::{Convert, Datarep, Extent};

use crate::arg::bytes;
use crate::repr::*;
use crate::shim::shims;

/// `MPI_Datarep_conversion_function`, and with 64 bits `MPI_Datarep_conversion_function_c`.
type Conversion<N> =
    unsafe extern "C" fn(*mut c_void, Datatype, N, *mut c_void, Offset, *mut c_void) -> c_int;
/// `MPI_Datarep_extent_function`.
type Extents = unsafe extern "C" fn(Datatype, *mut Aint, *mut c_void) -> c_int;

/// What a function of the program has said.
fn said(code: c_int) -> Res<()> {
    if code == 0 { Ok(()) } else { Err(class::CONVERSION) }
}

fn conversion<N: Num + 'static>(f: Option<Conversion<N>>, state: *mut c_void) -> Option<Convert> {
    let f = f?;
    Some(Box::new(move |user, dt, elements, file| {
        let n = N::narrow(elements).ok_or(class::COUNT)?;
        // SAFETY: the program gave it as a function of this form; the buffers hold the elements.
        said(unsafe { f(user.cast(), Datatype::of(dt), n, file.cast(), 0, state) })
    }))
}

fn extents(f: Extents, state: *mut c_void) -> Extent {
    Box::new(move |dt| {
        let mut extent: Aint = -1;
        // SAFETY: the program gave it as a function of this form.
        said(unsafe { f(Datatype::of(dt), &mut extent, state) })?;
        Ok(extent as i64)
    })
}

shims! {
    fn PMPI_Register_datarep | PMPI_Register_datarep_c (
        name: *const c_char, read: Option<Conversion<Count>>, write: Option<Conversion<Count>>,
        extent: Option<Extents>, state: *mut c_void)
        on crate::file::nobody(); |m| {
        let (name, extent) = (bytes(name)?.to_vec(), extent.ok_or(class::ARG)?);
        let (read, write) = (conversion(read, state), conversion(write, state));
        m.register_datarep(Datarep { name, read, write, extent: extents(extent, state) })?;
    }
}
