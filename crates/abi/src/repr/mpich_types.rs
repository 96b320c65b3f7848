//! Datatype handles of MPICH's ABI.
//!
//! MPICH's predefined types are `0x4c00SSii`: size in bytes and number; pairs that are no C type of
//! one size are `0x8c00000i`. Kept true: what is not exactly one of the table's values, nor a
//! handle made at run time, is refused.

use std::ffi::c_int;

use eyrie_core::handle::Handle;

use super::CHandle;

/// Marks a handle that was made at run time.
pub(super) const DYNAMIC: u32 = 1 << 31;

#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub struct Datatype(pub c_int);

/// Predefined datatypes: the machine's handle and MPICH's.
const TYPES: &[(u32, u32)] = &[
    (0x200, 0x0c00_0000), // DATATYPE_NULL
    (0x201, 0x4c00_0843), // AINT
    (0x202, 0x4c00_0845), // COUNT
    (0x203, 0x4c00_0844), // OFFSET
    (0x207, 0x4c00_010f), // PACKED
    (0x208, 0x4c00_0203), // SHORT
    (0x209, 0x4c00_0405), // INT
    (0x20a, 0x4c00_0807), // LONG
    (0x20b, 0x4c00_0809), // LONG_LONG
    (0x20c, 0x4c00_0204), // UNSIGNED_SHORT
    (0x20d, 0x4c00_0406), // UNSIGNED
    (0x20e, 0x4c00_0808), // UNSIGNED_LONG
    (0x20f, 0x4c00_0819), // UNSIGNED_LONG_LONG
    (0x210, 0x4c00_040a), // FLOAT
    (0x212, 0x4c00_0840), // C_FLOAT_COMPLEX
    (0x213, 0x4c00_0834), // CXX_FLOAT_COMPLEX
    (0x214, 0x4c00_080b), // DOUBLE
    (0x216, 0x4c00_1041), // C_DOUBLE_COMPLEX
    (0x217, 0x4c00_1035), // CXX_DOUBLE_COMPLEX
    (0x218, 0x4c00_041d), // LOGICAL
    (0x219, 0x4c00_041b), // INTEGER
    (0x21a, 0x4c00_041c), // REAL
    (0x21b, 0x4c00_081e), // COMPLEX
    (0x21c, 0x4c00_081f), // DOUBLE_PRECISION
    (0x21d, 0x4c00_1022), // DOUBLE_COMPLEX
    (0x21e, 0x4c00_011a), // CHARACTER
    (0x220, 0x4c00_100c), // LONG_DOUBLE
    (0x224, 0x4c00_2042), // C_LONG_DOUBLE_COMPLEX
    (0x225, 0x4c00_2036), // CXX_LONG_DOUBLE_COMPLEX
    (0x228, 0x8c00_0000), // FLOAT_INT
    (0x229, 0x8c00_0001), // DOUBLE_INT
    (0x22a, 0x8c00_0002), // LONG_INT
    (0x22b, 0x4c00_0816), // 2INT
    (0x22c, 0x8c00_0003), // SHORT_INT
    (0x22d, 0x8c00_0004), // LONG_DOUBLE_INT
    (0x230, 0x4c00_0821), // 2REAL
    (0x231, 0x4c00_1023), // 2DOUBLE_PRECISION
    (0x232, 0x4c00_0820), // 2INTEGER
    (0x238, 0x4c00_013f), // C_BOOL
    (0x239, 0x4c00_0133), // CXX_BOOL
    (0x23c, 0x4c00_040e), // WCHAR
    (0x240, 0x4c00_0137), // INT8_T
    (0x241, 0x4c00_013b), // UINT8_T
    (0x243, 0x4c00_0101), // CHAR
    (0x244, 0x4c00_0118), // SIGNED_CHAR
    (0x245, 0x4c00_0102), // UNSIGNED_CHAR
    (0x247, 0x4c00_010d), // BYTE
    (0x248, 0x4c00_0238), // INT16_T
    (0x249, 0x4c00_023c), // UINT16_T
    (0x250, 0x4c00_0439), // INT32_T
    (0x251, 0x4c00_043d), // UINT32_T
    (0x258, 0x4c00_083a), // INT64_T
    (0x259, 0x4c00_083e), // UINT64_T
    (0x2c0, 0x4c00_0147), // LOGICAL1
    (0x2c1, 0x4c00_012d), // INTEGER1
    (0x2c8, 0x4c00_0248), // LOGICAL2
    (0x2c9, 0x4c00_022f), // INTEGER2
    (0x2ca, 0x4c00_0226), // REAL2
    (0x2cb, 0x4c00_0246), // MPIX_C_FLOAT16
    (0x2d0, 0x4c00_0449), // LOGICAL4
    (0x2d1, 0x4c00_0430), // INTEGER4
    (0x2d2, 0x4c00_0427), // REAL4
    (0x2d3, 0x4c00_042e), // COMPLEX4
    (0x2d8, 0x4c00_084a), // LOGICAL8
    (0x2d9, 0x4c00_0831), // INTEGER8
    (0x2da, 0x4c00_0829), // REAL8
    (0x2db, 0x4c00_0828), // COMPLEX8
    (0x2e0, 0x4c00_104b), // LOGICAL16
    (0x2e1, 0x4c00_1032), // INTEGER16
    (0x2e2, 0x4c00_102b), // REAL16
    (0x2e3, 0x4c00_102a), // COMPLEX16
    (0x2eb, 0x4c00_202c), // COMPLEX32
];

/// `FROM_MPICH[i]`: the machine's handle of MPICH's type number `i` (the low byte of `0x4c00SSii`).
const FROM_MPICH: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < TYPES.len() {
        let (core, mpich) = TYPES[i];
        if mpich >> 16 == 0x4c00 {
            table[(mpich & 0xff) as usize] = core;
        }
        i += 1;
    }
    table
};

/// `TO_MPICH[h - 0x200]`: MPICH's value of the machine's predefined type `h`; 0 if it has none.
const TO_MPICH: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < TYPES.len() {
        let (core, mpich) = TYPES[i];
        table[(core - 0x200) as usize] = mpich;
        i += 1;
    }
    table
};

impl CHandle for Datatype {
    fn bits(self) -> u64 {
        u64::from(self.0 as u32)
    }
    #[inline]
    fn core(self) -> Handle {
        let v = self.0 as u32;
        let core = match v {
            0x0c00_0000 => 0x200,
            0x8c00_0000 => 0x228,
            0x8c00_0001 => 0x229,
            0x8c00_0002 => 0x22a,
            0x8c00_0003 => 0x22c,
            0x8c00_0004 => 0x22d,
            _ if v & DYNAMIC != 0 => return Handle(v),
            _ => FROM_MPICH[(v & 0xff) as usize],
        };
        // The size stands in the handle too: a value that only resembles a type is refused.
        if core != 0 && TO_MPICH[(core & 0xff) as usize] == v { Handle(core) } else { Handle(0) }
    }

    #[inline]
    fn of(handle: Handle) -> Self {
        match handle.0 {
            v @ 0x200..=0x2ff => Datatype(TO_MPICH[(v - 0x200) as usize] as c_int),
            v => Datatype(v as c_int),
        }
    }
}

impl Datatype {
    pub fn int(self) -> c_int {
        self.0
    }
    pub fn of_int(value: c_int) -> Self {
        Datatype(value)
    }
}
