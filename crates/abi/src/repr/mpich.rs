//! MPICH's ABI (libmpi.so.12): handles and most constants differ from the machine's.
//!
//! Handles are `int`. A dynamic handle passes as the machine's 32 bits; predefined ones are
//! translated by the tables here. Values without a counterpart become `Handle(0)` or an integer
//! that the machine refuses, so that a wrong argument stays wrong.

use std::ffi::c_int;

use eyrie_core::datatype::Bounds;
use eyrie_core::handle::Handle;
use eyrie_core::rma::Numbers;
use eyrie_core::status::Status as CoreStatus;

use super::CHandle;
use super::mpich_types::DYNAMIC;
pub use super::mpich_types::Datatype;
use super::pairs::{NONSENSE, closed, pairs};
pub use super::pairs::{amode_in, amode_out, displacement_in, whence_in};

macro_rules! handles {
    ($($name:ident: $($core:literal = $mpich:literal),*;)*) => {$(
        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $name(pub c_int);

        impl CHandle for $name {
            #[inline]
            fn core(self) -> Handle {
                match self.0 as u32 {
                    $($mpich => Handle($core),)*
                    v if v & DYNAMIC != 0 => Handle(v),
                    _ => Handle(0),
                }
            }
            #[inline]
            fn of(handle: Handle) -> Self {
                match handle.0 {
                    $($core => $name($mpich as c_int),)*
                    v => $name(v as c_int),
                }
            }
            fn bits(self) -> u64 {
                u64::from(self.0 as u32)
            }
        }

        impl $name {
            pub fn int(self) -> c_int {
                self.0
            }
            pub fn of_int(value: c_int) -> Self {
                $name(value)
            }
        }
    )*};
}

handles! {
    Comm: 0x100 = 0x0400_0000, 0x101 = 0x4400_0000, 0x102 = 0x4400_0001;
    Group: 0x108 = 0x0800_0000, 0x109 = 0x4800_0000;
    Win: 0x110 = 0x2000_0000;
    Session: 0x120 = 0x3800_0000;
    Message: 0x128 = 0x2c00_0000, 0x129 = 0x6c00_0000;
    Info: 0x130 = 0x1c00_0000, 0x131 = 0x5c00_0001;
    Errhandler: 0x140 = 0x1400_0000, 0x141 = 0x5400_0000, 0x142 = 0x5400_0003, 0x143 = 0x5400_0001;
    Request: 0x180 = 0x2c00_0000;
    Op: 0x20 = 0x1800_0000, 0x21 = 0x5800_0003, 0x22 = 0x5800_0002, 0x23 = 0x5800_0001,
        0x24 = 0x5800_0004, 0x28 = 0x5800_0006, 0x29 = 0x5800_0008, 0x2a = 0x5800_000a,
        0x30 = 0x5800_0005, 0x31 = 0x5800_0007, 0x32 = 0x5800_0009, 0x38 = 0x5800_000b,
        0x39 = 0x5800_000c, 0x3c = 0x5800_000d, 0x3d = 0x5800_000e;
}

/// `MPI_File` is a pointer in MPICH.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct File(pub usize);

impl CHandle for File {
    fn core(self) -> Handle {
        if self.0 == 0 { Handle(0x118) } else { Handle(u32::try_from(self.0).unwrap_or(0)) }
    }
    fn of(handle: Handle) -> Self {
        File(if handle.0 == 0x118 { 0 } else { handle.0 as usize })
    }
    fn bits(self) -> u64 {
        self.0 as u64
    }
}

impl File {
    pub fn int(self) -> c_int {
        self.0 as c_int
    }
    pub fn of_int(value: c_int) -> Self {
        // Dynamic handles have bit 31 set: no sign must be spread over the wider handle.
        File(value as u32 as usize)
    }
}

/// `MPI_Status`: bit 0 of `count_hi_and_cancelled` is the cancelled flag.
#[derive(Clone, Copy, Default)]
#[repr(C)]
pub struct Status {
    count_lo: c_int,
    count_hi_and_cancelled: c_int,
    pub(super) source: c_int,
    pub(super) tag: c_int,
    pub(super) error: c_int,
}

impl Status {
    pub fn store(&mut self, s: &CoreStatus) {
        *self = Status {
            count_lo: s.bytes as c_int,
            count_hi_and_cancelled: (s.bytes >> 32 << 1) as c_int | c_int::from(s.cancelled),
            source: rank_out(s.source),
            tag: tag_out(s.tag),
            error: code_out(s.error),
        };
    }

    pub fn load(&self) -> CoreStatus {
        let high = self.count_hi_and_cancelled as u32;
        CoreStatus {
            source: rank_in(self.source),
            tag: tag_in(self.tag),
            error: code_in(self.error),
            bytes: u64::from(self.count_lo as u32) | u64::from(high >> 1) << 32,
            cancelled: high & 1 != 0,
        }
    }
}

pub const ABI_NAME: &str = "MPICH ABI (libmpi.so.12)";
/// What `MPI_Abi_get_version` reports: this library is not the standard ABI's.
pub const ABI_VERSION: (c_int, c_int) = (-1, -1);
/// How types with resized constituents get their bounds.
pub const BOUNDS: Bounds = Bounds::Mpich;
pub const BUFFER_AUTOMATIC: usize = usize::MAX - 1;
/// `MPI_WIN_FLAVOR_*` and `MPI_WIN_UNIFIED`.
pub const WINDOW_NUMBERS: Numbers = Numbers { flavors: [1, 2, 3, 4], unified: 2 };
pub const LOCK_EXCLUSIVE: c_int = 234;
pub const LOCK_SHARED: c_int = 235;
pub const IN_PLACE: usize = usize::MAX;
pub const MAX_PROCESSOR_NAME_BYTES: usize = 128;
pub const MAX_OBJECT_NAME_BYTES: usize = 128;
pub const MAX_ERROR_STRING_BYTES: usize = 512;
pub const MAX_INFO_KEY_BYTES: usize = 255;
pub const MAX_INFO_VAL_BYTES: usize = 1024;
/// Whether handles are other values in Fortran's functions: never.
pub const fn is_fortran() -> bool {
    false
}

pub const COPY_FN_NULL: usize = 0;
pub const INFO_KEY_ROOM_BYTES: usize = MAX_INFO_KEY_BYTES + 1;

/// MPICH's headers name its `MPI_DUP_FN` by this symbol.
///
/// # Safety
/// As for every attribute copy function: `value_out` and `flag` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn MPIR_Dup_fn(
    _comm: c_int,
    _keyval: c_int,
    _extra_state: *mut std::ffi::c_void,
    value_in: *mut std::ffi::c_void,
    value_out: *mut std::ffi::c_void,
    flag: *mut c_int,
) -> c_int {
    // SAFETY: both are the caller's variables, by the contract of attribute copy functions.
    unsafe {
        value_out.cast::<*mut std::ffi::c_void>().write(value_in);
        flag.write(1);
    }
    0
}

/// Assertions of windows have the machine's values.
pub fn assert_in(assert: c_int) -> c_int {
    assert
}

/// Whether `f` is `MPI_DUP_FN` in one of its forms: never, here it is an ordinary function.
pub fn is_dup_fn(_f: usize) -> bool {
    false
}

pub fn is_status_ignore(at: *const Status) -> bool {
    at as usize == 1
}

/// The program has the address from a variable of the library.
pub fn is_unweighted(at: *const c_int) -> bool {
    crate::variables::is(&crate::variables::MPI_UNWEIGHTED, at)
}

pub fn is_weights_empty(at: *const c_int) -> bool {
    crate::variables::is(&crate::variables::MPI_WEIGHTS_EMPTY, at)
}

// ANY_SOURCE, PROC_NULL, ROOT, UNDEFINED.
pairs!(rank_in, rank_out: -1 = -2, -3 = -1, -4 = -3, -32766 = -32766);
// ANY_TAG.
pairs!(tag_in, tag_out: -2 = -1);
closed!(comparison_in, comparison_out: 201 = 0, 202 = 1, 203 = 2, 204 = 3);
closed!(thread_in, thread_out: 0 = 0, 1024 = 1, 2048 = 2, 4096 = 3);
closed!(split_type_in, split_type_out: 221 = 1, 222 = 3, 223 = 2, 224 = 4, -32766 = -32766);
closed!(order_in, order_out: 12 = 56, 15 = 57);
closed!(distribution_in, distribution_out: 16 = 123, 17 = 121, 18 = 122);
pairs!(darg_in, darg_out: 19 = -49767);
closed!(typeclass_in, typeclass_out: 192 = 2, 193 = 1, 194 = 3);
closed!(topology_in, topology_out: 211 = 2, 212 = 1, 213 = 3, -32766 = -32766);
closed!(keyval_predefined_in, keyval_predefined_out:
    0 = 0x2400_0000, 501 = 0x6440_0001, 502 = 0x6440_0005, 503 = 0x6440_0003, 504 = 0x6440_0007,
    505 = 0x6440_000d, 506 = 0x6440_000b, 507 = 0x6440_0009, 601 = 0x6600_0001,
    602 = 0x6600_0005, 603 = 0x6600_0003, 604 = 0x6600_0007, 605 = 0x6600_0009);
closed!(combiner_in, combiner_out:
    101 = 1, 102 = 2, 103 = 3, 104 = 4, 105 = 6, 106 = 7, 107 = 9, 108 = 10, 109 = 19, 110 = 12,
    111 = 13, 112 = 14, 113 = 15, 114 = 16, 115 = 17, 116 = 18, 117 = 20);
closed!(class_in, class_out:
    0 = 0, 1 = 1, 2 = 2, 3 = 3, 4 = 4, 5 = 5, 6 = 6, 7 = 19, 8 = 7, 9 = 8, 10 = 9, 11 = 10, 12 = 11,
    13 = 12, 14 = 13, 15 = 14, 16 = 15, 17 = 16, 18 = 18, 19 = 17, 20 = 20, 21 = 21, 22 = 53,
    23 = 22, 24 = 46, 25 = 23, 26 = 52, 27 = 24, 28 = 25, 29 = 26, 30 = 27, 31 = 29, 32 = 31,
    33 = 30, 34 = 28, 35 = 32, 36 = 48, 37 = 47, 38 = 33, 39 = 34, 40 = 35, 41 = 36, 42 = 37,
    43 = 38, 44 = 39, 45 = 40, 46 = 56, 47 = 49, 48 = 55, 49 = 57, 50 = 50, 51 = 41, 52 = 51,
    53 = 42, 54 = 43, 55 = 44, 56 = 45, 57 = 58, 58 = 76, 59 = 77, 60 = 75, 61 = 80, 62 = 81,
    1001 = 61, 1002 = 79, 1003 = 60, 1004 = 78, 1005 = 59, 1006 = 74, 1007 = 62, 1008 = 63,
    1009 = 67, 1010 = 64, 1011 = 73, 1012 = 65, 1013 = 66, 1014 = 68, 1015 = 69, 1016 = 71,
    1017 = 70, 1018 = 72, 101 = 101, 102 = 102, 103 = 103);

/// Numbers above this are no classes of MPICH: they pass as they are. (The machine numbers the
/// classes and codes that the program adds above MPI_ERR_LASTCODE of both ABIs.)
const MPICH_LAST_CLASS: c_int = 81;

/// Keys: predefined ones are translated, the program's own are the machine's.
pub fn keyval_in(key: c_int) -> c_int {
    match keyval_predefined_in(key) {
        NONSENSE if !(0..1000).contains(&key) => key,
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
        NONSENSE if code > MPICH_LAST_CLASS => code,
        known => known,
    }
}

#[inline]
pub fn code_out(code: c_int) -> c_int {
    class_out(code)
}
