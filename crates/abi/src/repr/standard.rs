//! The standard ABI of MPI 5.0 (chapter 20): the machine's own integers, handles as pointers.
//!
//! A handle's pointer value is the machine's 32-bit handle, extended with zeros: predefined ones
//! are the header's constants, dynamic ones have bit 31 set.

use std::ffi::c_int;

use eyrie_core::datatype::Bounds;
use eyrie_core::handle::Handle;
use eyrie_core::rma::Numbers;
use eyrie_core::status::Status as CoreStatus;

use super::CHandle;

macro_rules! handles {
    ($($name:ident),*) => {$(
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub usize);

        impl CHandle for $name {
            #[inline]
            fn core(self) -> Handle {
                Handle(u32::try_from(self.0).unwrap_or(0))
            }
            #[inline]
            fn of(handle: Handle) -> Self {
                $name(handle.0 as usize)
            }
            fn bits(self) -> u64 {
                self.0 as u64
            }
        }

        impl $name {
            pub fn int(self) -> c_int {
                self.0 as c_int
            }
            pub fn of_int(value: c_int) -> Self {
                // Dynamic handles have bit 31 set: no sign must be spread over the wider handle.
                $name(value as u32 as usize)
            }
        }
    )*};
}

handles!(Comm, Group, Datatype, Op, Request, Errhandler, Info, Message, Win, File, Session);

/// `MPI_Status`: the count's halves and the cancelled flag are in `internal`.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Status {
    pub(super) source: c_int,
    pub(super) tag: c_int,
    pub(super) error: c_int,
    internal: [c_int; 5],
}

impl Status {
    pub fn store(&mut self, s: &CoreStatus) {
        *self = Status {
            source: s.source,
            tag: s.tag,
            error: s.error,
            internal: [s.bytes as c_int, (s.bytes >> 32) as c_int, c_int::from(s.cancelled), 0, 0],
        };
    }

    pub fn load(&self) -> CoreStatus {
        let [low, high, cancelled, ..] = self.internal;
        CoreStatus {
            source: self.source,
            tag: self.tag,
            error: self.error,
            bytes: u64::from(low as u32) | u64::from(high as u32) << 32,
            cancelled: cancelled != 0,
        }
    }
}

pub const ABI_NAME: &str = "MPI standard ABI 1.0";
/// What `MPI_Abi_get_version` reports.
pub const ABI_VERSION: (c_int, c_int) = (1, 0);
/// How types with resized constituents get their bounds.
pub const BOUNDS: Bounds = Bounds::Standard;
pub const BUFFER_AUTOMATIC: usize = 2;
/// `MPI_WIN_FLAVOR_*` and `MPI_WIN_UNIFIED`.
pub const WINDOW_NUMBERS: Numbers = Numbers { flavors: [311, 312, 313, 314], unified: 321 };
pub const LOCK_EXCLUSIVE: c_int = 301;
pub const LOCK_SHARED: c_int = 302;
pub const IN_PLACE: usize = 1;
pub const MAX_PROCESSOR_NAME_BYTES: usize = 256;
pub const MAX_OBJECT_NAME_BYTES: usize = 128;
pub const MAX_ERROR_STRING_BYTES: usize = 512;
pub const MAX_INFO_KEY_BYTES: usize = 256;
pub const MAX_INFO_VAL_BYTES: usize = 1024;
/// Whether handles are other values in Fortran's functions: never.
pub const fn is_fortran() -> bool {
    false
}

pub const COPY_FN_NULL: usize = 0;
/// Of a key's text with its end, in the program's array.
pub const INFO_KEY_ROOM_BYTES: usize = MAX_INFO_KEY_BYTES;
/// Whether `f` is one of `MPI_DUP_FN`, `MPI_COMM_DUP_FN`, `MPI_TYPE_DUP_FN`, `MPI_WIN_DUP_FN`.
pub fn is_dup_fn(f: usize) -> bool {
    f == 1
}

pub fn is_status_ignore(at: *const Status) -> bool {
    at.is_null()
}

pub fn is_unweighted(at: *const c_int) -> bool {
    at as usize == 10
}

pub fn is_weights_empty(at: *const c_int) -> bool {
    at as usize == 11
}

macro_rules! same {
    ($($name:ident),*) => {$(
        #[inline]
        pub fn $name(value: c_int) -> c_int {
            value
        }
    )*};
}

same!(rank_in, rank_out, tag_in, code_in, code_out, keyval_in, keyval_out);
same!(thread_in, thread_out, comparison_out, combiner_out, split_type_in);
same!(order_in, order_out, distribution_in, distribution_out, darg_in, darg_out);
same!(typeclass_in, topology_out, amode_in, amode_out, whence_in, assert_in);
#[cfg(test)]
same!(tag_out);

/// A displacement that may be `MPI_DISPLACEMENT_CURRENT`.
#[inline]
pub fn displacement_in(disp: i64) -> i64 {
    disp
}
