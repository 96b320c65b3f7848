//! What the ABI of MPI 5.0 left out and programs still use: functions that MPI-3 removed, and
//! statuses as Fortran arrays.

use std::ffi::{c_int, c_void};

use eyrie_core::error::{Res, class};

use crate::arg::{get, put};
use crate::errhandler::HandlerC;
use crate::repr::*;
use crate::shim::shims;

shims! {
    fn PMPI_Address (location: *const c_void, address: *mut Aint); |_m| {
        put(address, location as Aint)?;
    }
    fn PMPI_Type_extent (datatype: Datatype, extent: *mut Aint); |m| {
        put(extent, m.types.get_ref(datatype.core())?.extent as Aint)?;
    }
    fn PMPI_Type_lb (datatype: Datatype, lb: *mut Aint); |m| {
        put(lb, m.types.get_ref(datatype.core())?.lb as Aint)?;
    }
    fn PMPI_Type_ub (datatype: Datatype, ub: *mut Aint); |m| {
        let t = m.types.get_ref(datatype.core())?;
        put(ub, (t.lb + t.extent) as Aint)?;
    }
}

/// A removed name for a function that is still there.
macro_rules! renamed {
    ($($old:ident = $module:ident::$new:ident ($($a:ident: $t:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $old($($a: $t),*) -> c_int {
            // SAFETY: the same contract.
            unsafe { crate::$module::$new::$new($($a),*) }
        }
    )*};
}

renamed! {
    PMPI_Errhandler_create = errhandler::PMPI_Comm_create_errhandler(
        f: Option<HandlerC<Comm>>, eh: *mut Errhandler);
    PMPI_Errhandler_set = errhandler::PMPI_Comm_set_errhandler(comm: Comm, eh: Errhandler);
    PMPI_Errhandler_get = errhandler::PMPI_Comm_get_errhandler(comm: Comm, eh: *mut Errhandler);
    PMPI_Type_hindexed = datatype::PMPI_Type_create_hindexed(
        n: c_int, blocks: *const c_int, displs: *const Aint, old: Datatype, new: *mut Datatype);
    PMPI_Type_hvector = datatype::PMPI_Type_create_hvector(
        n: c_int, block: c_int, stride: Aint, old: Datatype, new: *mut Datatype);
    PMPI_Type_struct = datatype::PMPI_Type_create_struct(
        n: c_int, blocks: *const c_int, displs: *const Aint, types: *const Datatype,
        new: *mut Datatype);
}

/// Statuses have the same integers in C and in both Fortran forms.
///
/// # Safety
/// The addresses are null or point to statuses.
unsafe fn copy(from: *const Status, to: *mut Status) -> c_int {
    let result: Res<()> = if is_status_ignore(from) || is_status_ignore(to) {
        Err(class::ARG)
    } else {
        // SAFETY: by the caller's word.
        unsafe { get(from).and_then(|status| put(to, status)) }
    };
    result.map_or_else(|e| code_out(e.0), |()| 0)
}

macro_rules! copies {
    ($($name:ident)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(from: *const Status, to: *mut Status) -> c_int {
            // SAFETY: MPI's contract for these functions.
            unsafe { copy(from, to) }
        }
    )*};
}

copies! {
    PMPI_Status_c2f PMPI_Status_f2c PMPI_Status_c2f08 PMPI_Status_f082c PMPI_Status_f082f
    PMPI_Status_f2f08
}
