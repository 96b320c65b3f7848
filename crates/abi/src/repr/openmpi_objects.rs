//! Handles of Open MPI's ABI.
//!
//! A predefined object is a variable of the library, and its handle the variable's address. Linkers
//! may have moved the variable into the program, with what it holds. Kept true: it holds a mark and
//! the machine's handle and nothing is ever written there, so that a handle is read where it points
//! to, wherever that is; sizes are Open MPI's, which programs have room for; addresses are taken as
//! any other library would take them, so that they are the program's. An object that was made at
//! run time has the machine's 32 bits for an address: bit 31 is set, and nothing lies there (what
//! is not at random addresses lies below 2 GiB, all else above 4 GiB).

use std::ffi::{c_int, c_void};

use eyrie_core::handle::Handle;

use super::CHandle;

/// What the variables begin with; the machine's handle follows.
const MARK: u32 = 0x4559_5249;

/// The first bytes of a variable.
#[repr(C, align(8))]
struct Known {
    core: u32,
    mark: u32,
}

/// A handle and what stands for it elsewhere.
struct Row {
    core: u32,
    /// In Fortran; -1: nothing.
    int: c_int,
    at: *const c_void,
}

// SAFETY: addresses only; what is there is never written.
unsafe impl Sync for Row {}

/// The machine's handle of the variable at an address.
///
/// # Safety
/// The address is that of a predefined object, or another that a program has as a handle.
#[inline]
unsafe fn read(at: usize) -> Option<u32> {
    if at < 4096 || !at.is_multiple_of(align_of::<Known>()) {
        return None;
    }
    // SAFETY: by the caller's word there is something at it.
    let known = unsafe { &*(at as *const Known) };
    (known.mark == MARK).then_some(known.core)
}

/// Makes a variable of so many bytes that holds the mark and a handle.
macro_rules! variable {
    ($name:ident, $bytes:literal, $core:literal) => {
        std::arch::global_asm!(
            ".pushsection .data",
            ".balign 64",
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @object"),
            concat!(".size ", stringify!($name), ", ", stringify!($bytes)),
            concat!(stringify!($name), ":"),
            concat!(".long ", stringify!($core), ", {mark}"),
            concat!(".zero ", stringify!($bytes), " - 8"),
            ".popsection",
            mark = const MARK,
        );
    };
}

/// A kind, its rows, bytes of a variable, the machine's handles of that kind; then of each object:
/// the machine's handle, Fortran's integer, the variable.
macro_rules! objects {
    ($($kind:ident $rows:ident $bytes:literal $range:pat =>
       $($core:literal $int:literal $name:ident,)*;)*) => {$(
        $(variable!($name, $bytes, $core);)*

        unsafe extern "C" {
            $(static $name: Known;)*
        }

        static $rows: &[Row] =
            &[$(Row { core: $core, int: $int, at: (&raw const $name).cast() },)*];

        #[derive(Clone, Copy, PartialEq, Eq)]
        #[repr(transparent)]
        pub struct $kind(pub usize);

        impl CHandle for $kind {
            #[inline]
            fn core(self) -> Handle {
                if self.0 >> 31 == 1 {
                    return Handle(self.0 as u32);
                }
                // SAFETY: a program's handle is one of ours.
                match unsafe { read(self.0) } {
                    Some(core @ $range) => Handle(core),
                    _ => Handle(0),
                }
            }
            fn of(handle: Handle) -> Self {
                if handle.0 >> 31 == 1 {
                    return $kind(handle.0 as usize);
                }
                let row = $rows.iter().find(|row| row.core == handle.0);
                $kind(row.map_or(0, |row| row.at as usize))
            }
            fn for_fortran(self) -> Self {
                $kind(self.int() as u32 as usize)
            }
        }

        impl $kind {
            pub fn int(self) -> c_int {
                if self.0 >> 31 == 1 {
                    return self.0 as u32 as c_int;
                }
                let row = $rows.iter().find(|row| row.at as usize == self.0);
                row.map_or(-1, |row| row.int)
            }
            pub fn of_int(value: c_int) -> Self {
                if value < -1 {
                    return $kind(value as u32 as usize);
                }
                let row = $rows.iter().find(|row| value >= 0 && row.int == value);
                $kind(row.map_or(0, |row| row.at as usize))
            }
        }
    )*};
}

objects! {
    Comm COMMS 512 0x100..=0x102 =>
        0x101 0 ompi_mpi_comm_world,
        0x102 1 ompi_mpi_comm_self,
        0x100 2 ompi_mpi_comm_null,;
    Group GROUPS 256 0x108..=0x109 =>
        0x108 0 ompi_mpi_group_null,
        0x109 1 ompi_mpi_group_empty,;
    Win WINS 512 0x110 =>
        0x110 0 ompi_mpi_win_null,;
    File FILES 1536 0x118 =>
        0x118 0 ompi_mpi_file_null,;
    Session SESSIONS 512 0x120 =>
        0x120 0 ompi_mpi_instance_null,;
    Message MESSAGES 256 0x128..=0x129 =>
        0x128 0 ompi_message_null,
        0x129 1 ompi_message_no_proc,;
    Info INFOS 256 0x130..=0x131 =>
        0x130 0 ompi_mpi_info_null,
        0x131 1 ompi_mpi_info_env,;
    Errhandler ERRHANDLERS 1024 0x140..=0x143 =>
        0x140 0 ompi_mpi_errhandler_null,
        0x141 1 ompi_mpi_errors_are_fatal,
        0x143 2 ompi_mpi_errors_return,
        0x142 3 ompi_mpi_errors_abort,;
    Request REQUESTS 256 0x180 =>
        0x180 0 ompi_request_null,;
    Op OPS 2048 0x20..=0x3f =>
        0x20 0 ompi_mpi_op_null,
        0x23 1 ompi_mpi_op_max,
        0x22 2 ompi_mpi_op_min,
        0x21 3 ompi_mpi_op_sum,
        0x24 4 ompi_mpi_op_prod,
        0x30 5 ompi_mpi_op_land,
        0x28 6 ompi_mpi_op_band,
        0x31 7 ompi_mpi_op_lor,
        0x29 8 ompi_mpi_op_bor,
        0x32 9 ompi_mpi_op_lxor,
        0x2a 10 ompi_mpi_op_bxor,
        0x39 11 ompi_mpi_op_maxloc,
        0x38 12 ompi_mpi_op_minloc,
        0x3c 13 ompi_mpi_op_replace,
        0x3d 14 ompi_mpi_op_no_op,;
    Datatype TYPES 512 0x200..=0x2ff =>
        0x200 0 ompi_mpi_datatype_null,
        0x201 66 ompi_mpi_aint,
        0x202 72 ompi_mpi_count,
        0x203 67 ompi_mpi_offset,
        0x207 2 ompi_mpi_packed,
        0x208 37 ompi_mpi_short,
        0x209 39 ompi_mpi_int,
        0x20a 41 ompi_mpi_long,
        0x20b 43 ompi_mpi_long_long_int,
        0x20c 38 ompi_mpi_unsigned_short,
        0x20d 40 ompi_mpi_unsigned,
        0x20e 42 ompi_mpi_unsigned_long,
        0x20f 44 ompi_mpi_unsigned_long_long,
        0x210 45 ompi_mpi_float,
        0x212 69 ompi_mpi_c_float_complex,
        0x213 55 ompi_mpi_cxx_cplex,
        0x214 46 ompi_mpi_double,
        0x216 70 ompi_mpi_c_double_complex,
        0x217 56 ompi_mpi_cxx_dblcplex,
        0x218 6 ompi_mpi_logical,
        0x219 7 ompi_mpi_integer,
        0x21a 13 ompi_mpi_real,
        0x21b 18 ompi_mpi_cplex,
        0x21c 17 ompi_mpi_dblprec,
        0x21d 22 ompi_mpi_dblcplex,
        0x21e 5 ompi_mpi_character,
        0x220 47 ompi_mpi_long_double,
        0x224 71 ompi_mpi_c_long_double_complex,
        0x225 57 ompi_mpi_cxx_ldblcplex,
        0x228 48 ompi_mpi_float_int,
        0x229 49 ompi_mpi_double_int,
        0x22a 51 ompi_mpi_long_int,
        0x22b 52 ompi_mpi_2int,
        0x22c 53 ompi_mpi_short_int,
        0x22d 50 ompi_mpi_longdbl_int,
        0x230 23 ompi_mpi_2real,
        0x231 24 ompi_mpi_2dblprec,
        0x232 25 ompi_mpi_2integer,
        0x238 68 ompi_mpi_c_bool,
        0x239 54 ompi_mpi_cxx_bool,
        0x23c 33 ompi_mpi_wchar,
        0x240 58 ompi_mpi_int8_t,
        0x241 59 ompi_mpi_uint8_t,
        0x243 34 ompi_mpi_char,
        0x244 36 ompi_mpi_signed_char,
        0x245 35 ompi_mpi_unsigned_char,
        0x247 1 ompi_mpi_byte,
        0x248 60 ompi_mpi_int16_t,
        0x249 61 ompi_mpi_uint16_t,
        0x250 62 ompi_mpi_int32_t,
        0x251 63 ompi_mpi_uint32_t,
        0x258 64 ompi_mpi_int64_t,
        0x259 65 ompi_mpi_uint64_t,
        0x2c0 29 ompi_mpi_logical1,
        0x2c1 8 ompi_mpi_integer1,
        0x2c8 30 ompi_mpi_logical2,
        0x2c9 9 ompi_mpi_integer2,
        0x2ca 28 ompi_mpi_real2,
        0x2d0 31 ompi_mpi_logical4,
        0x2d1 10 ompi_mpi_integer4,
        0x2d2 14 ompi_mpi_real4,
        0x2d8 32 ompi_mpi_logical8,
        0x2d9 11 ompi_mpi_integer8,
        0x2d3 -1 ompi_mpi_complex4,
        0x2da 15 ompi_mpi_real8,
        0x2db 19 ompi_mpi_complex8,
        0x2e1 12 ompi_mpi_integer16,
        0x2e2 16 ompi_mpi_real16,
        0x2e3 20 ompi_mpi_complex16,
        0x2eb 21 ompi_mpi_complex32,;
}

// Variables that programs may name and that stand for nothing here, so that they are refused as
// types: MPI_2COMPLEX, MPI_2DOUBLE_COMPLEX, and what MPI-3 removed.
variable!(ompi_mpi_2cplex, 512, 0);
variable!(ompi_mpi_2dblcplex, 512, 0);
variable!(ompi_mpi_ldblcplex, 512, 0);
variable!(ompi_mpi_lb, 512, 0);
variable!(ompi_mpi_ub, 512, 0);
