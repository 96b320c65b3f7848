//! Open MPI's ABI (libmpi.so.40, Open MPI 3 to 5): handles are addresses, most constants differ
//! from the machine's.
//!
//! Values without a counterpart become `Handle(0)` or an integer that the machine refuses, so that
//! a wrong argument stays wrong.

use std::ffi::{c_int, c_void};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use eyrie_core::datatype::Bounds;
use eyrie_core::rma::Numbers;
use eyrie_core::status::Status as CoreStatus;

pub use super::openmpi_objects::*;
use super::pairs::{NONSENSE, closed, pairs};
pub use super::pairs::{amode_in, amode_out, displacement_in, whence_in};

/// `MPI_Status`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Status {
    pub(super) source: c_int,
    pub(super) tag: c_int,
    pub(super) error: c_int,
    cancelled: c_int,
    bytes: usize,
}

impl Status {
    pub fn store(&mut self, s: &CoreStatus) {
        *self = Status {
            source: rank_out(s.source),
            tag: tag_out(s.tag),
            error: code_out(s.error),
            cancelled: c_int::from(s.cancelled),
            bytes: s.bytes as usize,
        };
    }

    pub fn load(&self) -> CoreStatus {
        CoreStatus {
            source: rank_in(self.source),
            tag: tag_in(self.tag),
            error: code_in(self.error),
            bytes: self.bytes as u64,
            cancelled: self.cancelled != 0,
        }
    }
}

pub const ABI_NAME: &str = "Open MPI ABI (libmpi.so.40)";
/// What `MPI_Abi_get_version` reports: this library is not the standard ABI's.
pub const ABI_VERSION: (c_int, c_int) = (-1, -1);
/// How types with resized constituents get their bounds.
pub const BOUNDS: Bounds = Bounds::Standard;
/// Open MPI 5 has no buffers of its own making: no address.
pub const BUFFER_AUTOMATIC: usize = usize::MAX - 1;
/// `MPI_WIN_FLAVOR_*` and `MPI_WIN_UNIFIED`.
pub const WINDOW_NUMBERS: Numbers = Numbers { flavors: [1, 2, 3, 4], unified: 0 };
pub const LOCK_EXCLUSIVE: c_int = 1;
pub const LOCK_SHARED: c_int = 2;
pub const IN_PLACE: usize = 1;
pub const MAX_PROCESSOR_NAME_BYTES: usize = 256;
pub const MAX_OBJECT_NAME_BYTES: usize = 64;
pub const MAX_ERROR_STRING_BYTES: usize = 256;
pub const MAX_INFO_KEY_BYTES: usize = 36;
pub const MAX_INFO_VAL_BYTES: usize = 256;
pub const COPY_FN_NULL: usize = 0;
pub const INFO_KEY_ROOM_BYTES: usize = MAX_INFO_KEY_BYTES + 1;

/// Assertions of windows: NOCHECK, NOPRECEDE, NOPUT, NOSTORE, NOSUCCEED.
pub fn assert_in(assert: c_int) -> c_int {
    const BITS: [(c_int, c_int); 5] = [(1, 1024), (2, 8192), (4, 4096), (8, 2048), (16, 16384)];
    if assert & !31 != 0 {
        return NONSENSE;
    }
    BITS.iter().filter(|(own, _)| assert & own != 0).fold(0, |sum, (_, core)| sum | core)
}

/// Whether `f` is `MPI_DUP_FN` in one of its forms: never, here they are ordinary functions.
pub fn is_dup_fn(_f: usize) -> bool {
    false
}

pub fn is_status_ignore(at: *const Status) -> bool {
    at.is_null()
}

pub fn is_unweighted(at: *const c_int) -> bool {
    at as usize == 2
}

pub fn is_weights_empty(at: *const c_int) -> bool {
    at as usize == 3
}

/// Attribute functions that Open MPI's headers name by these symbols.
macro_rules! attribute_functions {
    ($($handle:ty: $dup:ident $null_copy:ident $null_delete:ident;)*) => {$(
        /// # Safety
        /// As for every attribute copy function: `value_out` and `flag` can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $dup(
            _object: $handle,
            _keyval: c_int,
            _extra_state: *mut c_void,
            value_in: *mut c_void,
            value_out: *mut c_void,
            flag: *mut c_int,
        ) -> c_int {
            // SAFETY: both are the caller's variables, by the contract of such functions.
            unsafe {
                value_out.cast::<*mut c_void>().write(value_in);
                flag.write(1);
            }
            0
        }
        /// # Safety
        /// As for every attribute copy function: `flag` can be written.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $null_copy(
            _object: $handle,
            _keyval: c_int,
            _extra_state: *mut c_void,
            _value_in: *mut c_void,
            _value_out: *mut c_void,
            flag: *mut c_int,
        ) -> c_int {
            // SAFETY: the caller's variable, by the contract of such functions.
            unsafe { flag.write(0) };
            0
        }
        #[unsafe(no_mangle)]
        pub extern "C" fn $null_delete(
            _object: $handle,
            _keyval: c_int,
            _value: *mut c_void,
            _extra_state: *mut c_void,
        ) -> c_int {
            0
        }
    )*};
}

attribute_functions! {
    Comm: OMPI_C_MPI_DUP_FN OMPI_C_MPI_NULL_COPY_FN OMPI_C_MPI_NULL_DELETE_FN;
    Comm: OMPI_C_MPI_COMM_DUP_FN OMPI_C_MPI_COMM_NULL_COPY_FN OMPI_C_MPI_COMM_NULL_DELETE_FN;
    Datatype: OMPI_C_MPI_TYPE_DUP_FN OMPI_C_MPI_TYPE_NULL_COPY_FN OMPI_C_MPI_TYPE_NULL_DELETE_FN;
    Win: OMPI_C_MPI_WIN_DUP_FN OMPI_C_MPI_WIN_NULL_COPY_FN OMPI_C_MPI_WIN_NULL_DELETE_FN;
}

/// Whether functions that are given to the library now are Fortran's.
static FORTRAN: AtomicBool = AtomicBool::new(false);

pub fn is_fortran() -> bool {
    FORTRAN.load(Relaxed)
}

/// Said by `libmpi_mpifh.so.40` around calls that give a function.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Eyrie_fortran(is: c_int) {
    FORTRAN.store(is != 0, Relaxed);
}

/// Whether buffers may lie in a device's memory: Open MPI's extensions ask it.
#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Query_cuda_support() -> c_int {
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn MPIX_Query_rocm_support() -> c_int {
    0
}

// ANY_SOURCE, PROC_NULL, ROOT, UNDEFINED.
pairs!(rank_in, rank_out: -1 = -1, -3 = -2, -4 = -4, -32766 = -32766);
// ANY_TAG.
pairs!(tag_in, tag_out: -2 = -1);
closed!(comparison_in, comparison_out: 201 = 0, 202 = 1, 203 = 2, 204 = 3);
closed!(thread_in, thread_out: 0 = 0, 1024 = 1, 2048 = 2, 4096 = 3);
closed!(order_in, order_out: 12 = 0, 15 = 1);
closed!(distribution_in, distribution_out: 16 = 2, 17 = 0, 18 = 1);
pairs!(darg_in, darg_out: 19 = -1);
closed!(typeclass_in, typeclass_out: 192 = 1, 193 = 2, 194 = 3);
closed!(topology_in, topology_out: 211 = 1, 212 = 2, 213 = 3, -32766 = -32766);
// TAG_UB, IO, HOST, WTIME_IS_GLOBAL, APPNUM, LASTUSEDCODE, UNIVERSE_SIZE; of windows: BASE,
// DISP_UNIT, SIZE, CREATE_FLAVOR, MODEL. None: MPI_KEYVAL_INVALID.
closed!(keyval_predefined_in, keyval_predefined_out:
    0 = -1, 501 = 0, 502 = 2, 503 = 1, 504 = 3, 505 = 4, 506 = 5, 507 = 6,
    601 = 7, 602 = 9, 603 = 8, 604 = 10, 605 = 11);
closed!(combiner_in, combiner_out:
    101 = 0, 102 = 1, 103 = 2, 104 = 3, 105 = 5, 106 = 6, 107 = 8, 108 = 9, 109 = 18, 110 = 11,
    111 = 12, 112 = 13, 113 = 14, 114 = 15, 115 = 16, 116 = 17, 117 = 19);
// Classes of MPI 4 and 5 have no numbers in Open MPI 4: 58 and 60 are Open MPI 5's, and so are
// those of failures (from 101 on). From 1001 on:
// the tool interface's, of which NOT_ACCESSIBLE and NOT_SUPPORTED have none either.
closed!(class_in, class_out:
    0 = 0, 1 = 1, 2 = 2, 3 = 3, 4 = 4, 5 = 5, 6 = 6, 7 = 7, 8 = 8, 9 = 9, 10 = 10, 11 = 11,
    12 = 12, 13 = 13, 14 = 14, 15 = 15, 16 = 16, 17 = 17, 18 = 19, 19 = 18, 20 = 20, 21 = 21,
    22 = 22, 23 = 23, 24 = 24, 25 = 25, 26 = 26, 27 = 27, 28 = 28, 29 = 29, 30 = 30, 31 = 31,
    32 = 32, 33 = 33, 34 = 34, 35 = 35, 36 = 36, 37 = 37, 38 = 38, 39 = 39, 40 = 40, 41 = 41,
    42 = 42, 43 = 43, 44 = 44, 45 = 45, 46 = 69, 47 = 46, 48 = 68, 49 = 71, 50 = 47, 51 = 48,
    52 = 49, 53 = 50, 54 = 51, 55 = 52, 56 = 53, 57 = 70, 58 = 74, 59 = 79, 60 = 78, 61 = 80,
    62 = 81, 1001 = 56, 1002 = 82, 1003 = 55, 1004 = 83, 1005 = 54, 1006 = 72, 1007 = 57,
    1008 = 58, 1009 = 62, 1010 = 59, 1011 = 73, 1012 = 60, 1013 = 61, 1014 = 63, 1015 = 64,
    1016 = 66, 1017 = 65, 1018 = 67, 101 = 75, 102 = 76, 103 = 77);

/// Kinds of split: SHARED, and Open MPI's own HOST, which says the same. Its parts of a machine
/// (core, cache, socket and so on) are refused.
pub fn split_type_in(kind: c_int) -> c_int {
    match kind {
        0 | 9 => 221,
        -32766 => -32766,
        _ => NONSENSE,
    }
}

/// MPI_ERR_LASTCODE: numbers above it pass as they are. (The machine numbers the classes and codes
/// that the program adds above that of all ABIs.)
const LAST_CODE: c_int = 92;

/// Keys: predefined ones are translated, the program's own are the machine's.
pub fn keyval_in(key: c_int) -> c_int {
    match keyval_predefined_in(key) {
        NONSENSE if key >= 1000 => key,
        known => known,
    }
}

pub fn keyval_out(key: c_int) -> c_int {
    keyval_predefined_out(key)
}

/// Error codes and classes.
#[inline]
pub fn code_in(code: c_int) -> c_int {
    match class_in(code) {
        NONSENSE if code > LAST_CODE => code,
        known => known,
    }
}

#[inline]
pub fn code_out(code: c_int) -> c_int {
    class_out(code)
}

#[cfg(test)]
mod tests {
    use eyrie_core::handle::Handle;

    use super::*;
    use crate::repr::CHandle;

    #[test]
    fn assertions_are_translated() {
        assert_eq!(assert_in(0), 0);
        assert_eq!(assert_in(1 | 16), 1024 | 16384);
        assert_eq!(assert_in(1024), NONSENSE);
    }

    #[test]
    fn what_is_no_handle_is_refused() {
        assert_eq!(Comm::of_int(3).core(), Handle(0));
        assert_eq!(Comm::of_int(0).core(), eyrie_core::consts::COMM_WORLD);
        assert_eq!(Datatype::of_int(7).core(), Handle(0x219));
        // An object of another kind.
        assert_eq!(Comm(Datatype::of_int(7).0).core(), Handle(0));
        assert_eq!(Comm(0).core(), Handle(0));
        assert_eq!(Comm(0x101).core(), Handle(0));
    }
}
