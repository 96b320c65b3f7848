//! Functions of MPI that are exported and not there yet.

use std::ffi::{CStr, c_char, c_int};

use eyrie_core::consts::COMM_WORLD;
use eyrie_core::error::class;

use crate::global;
use crate::shim::fail;

/// What functions of the tool interface return, which never call an error handler:
/// `MPI_T_ERR_CANNOT_INIT`.
const T_CANNOT_INIT: c_int = if cfg!(abi_mpich) { 61 } else { 1001 };

/// Where the stubs of `scripts/link-abi` jump to.
///
/// # Safety
/// `name` is a C string that is never freed.
#[unsafe(no_mangle)]
#[cold]
pub unsafe extern "C" fn eyrie_unsupported(name: *const c_char) -> c_int {
    // SAFETY: by the caller's word.
    let name: &'static str = unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("?");
    eprintln!("eyrie: {name} is not supported by this version of Eyrie");
    if name.starts_with("MPI_T_") {
        return T_CANNOT_INIT;
    }
    if !global::running() {
        global::exit();
    }
    fail(name, class::UNSUPPORTED_OPERATION.into(), COMM_WORLD)
}
