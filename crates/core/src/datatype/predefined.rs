//! The predefined datatypes of the MPI-5 standard ABI: handle value, name, elements.
//!
//! Kept true: handle values are those of the standard ABI, but for MPICH's own type; sizes are
//! those of the x86-64 System V ABI and of Fortran compilers with default kinds of 4 and 8 bytes.

use super::basic::Basic;
use crate::handle::Handle;

/// What a predefined datatype is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Element {
    One(Basic),
    /// A value and an index, laid out as a C struct (for `MPI_MINLOC` and `MPI_MAXLOC`).
    Pair(Basic, Basic),
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Predefined {
    pub handle: Handle,
    pub name: &'static str,
    pub element: Element,
}

macro_rules! predefined {
    ($($id:ident $value:literal $name:literal $element:expr;)*) => {
        $(pub const $id: Handle = Handle($value);)*
        /// All predefined datatypes but `MPI_DATATYPE_NULL`.
        pub static PREDEFINED: &[Predefined] = &{
            use Basic::*;
            use Element::*;
            [$(Predefined { handle: Handle($value), name: $name, element: $element }),*]
        };
    };
}

predefined! {
    AINT 0x201 "MPI_AINT" One(I64);
    COUNT 0x202 "MPI_COUNT" One(I64);
    OFFSET 0x203 "MPI_OFFSET" One(I64);
    PACKED 0x207 "MPI_PACKED" One(Packed);
    SHORT 0x208 "MPI_SHORT" One(I16);
    INT 0x209 "MPI_INT" One(I32);
    LONG 0x20a "MPI_LONG" One(Long);
    LONG_LONG 0x20b "MPI_LONG_LONG_INT" One(I64);
    UNSIGNED_SHORT 0x20c "MPI_UNSIGNED_SHORT" One(U16);
    UNSIGNED 0x20d "MPI_UNSIGNED" One(U32);
    UNSIGNED_LONG 0x20e "MPI_UNSIGNED_LONG" One(ULong);
    UNSIGNED_LONG_LONG 0x20f "MPI_UNSIGNED_LONG_LONG" One(U64);
    FLOAT 0x210 "MPI_FLOAT" One(F32);
    C_FLOAT_COMPLEX 0x212 "MPI_C_COMPLEX" One(C32);
    CXX_FLOAT_COMPLEX 0x213 "MPI_CXX_FLOAT_COMPLEX" One(C32);
    DOUBLE 0x214 "MPI_DOUBLE" One(F64);
    C_DOUBLE_COMPLEX 0x216 "MPI_C_DOUBLE_COMPLEX" One(C64);
    CXX_DOUBLE_COMPLEX 0x217 "MPI_CXX_DOUBLE_COMPLEX" One(C64);
    LOGICAL 0x218 "MPI_LOGICAL" One(L32);
    INTEGER 0x219 "MPI_INTEGER" One(I32);
    REAL 0x21a "MPI_REAL" One(F32);
    COMPLEX 0x21b "MPI_COMPLEX" One(C32);
    DOUBLE_PRECISION 0x21c "MPI_DOUBLE_PRECISION" One(F64);
    DOUBLE_COMPLEX 0x21d "MPI_DOUBLE_COMPLEX" One(C64);
    CHARACTER 0x21e "MPI_CHARACTER" One(Character);
    LONG_DOUBLE 0x220 "MPI_LONG_DOUBLE" One(F80);
    C_LONG_DOUBLE_COMPLEX 0x224 "MPI_C_LONG_DOUBLE_COMPLEX" One(C80);
    CXX_LONG_DOUBLE_COMPLEX 0x225 "MPI_CXX_LONG_DOUBLE_COMPLEX" One(C80);
    FLOAT_INT 0x228 "MPI_FLOAT_INT" Pair(F32, I32);
    DOUBLE_INT 0x229 "MPI_DOUBLE_INT" Pair(F64, I32);
    LONG_INT 0x22a "MPI_LONG_INT" Pair(Long, I32);
    TWO_INT 0x22b "MPI_2INT" Pair(I32, I32);
    SHORT_INT 0x22c "MPI_SHORT_INT" Pair(I16, I32);
    LONG_DOUBLE_INT 0x22d "MPI_LONG_DOUBLE_INT" Pair(F80, I32);
    TWO_REAL 0x230 "MPI_2REAL" Pair(F32, F32);
    TWO_DOUBLE_PRECISION 0x231 "MPI_2DOUBLE_PRECISION" Pair(F64, F64);
    TWO_INTEGER 0x232 "MPI_2INTEGER" Pair(I32, I32);
    C_BOOL 0x238 "MPI_C_BOOL" One(L8);
    CXX_BOOL 0x239 "MPI_CXX_BOOL" One(L8);
    WCHAR 0x23c "MPI_WCHAR" One(WChar);
    INT8_T 0x240 "MPI_INT8_T" One(I8);
    UINT8_T 0x241 "MPI_UINT8_T" One(U8);
    CHAR 0x243 "MPI_CHAR" One(I8);
    SIGNED_CHAR 0x244 "MPI_SIGNED_CHAR" One(I8);
    UNSIGNED_CHAR 0x245 "MPI_UNSIGNED_CHAR" One(U8);
    BYTE 0x247 "MPI_BYTE" One(Byte);
    INT16_T 0x248 "MPI_INT16_T" One(I16);
    UINT16_T 0x249 "MPI_UINT16_T" One(U16);
    INT32_T 0x250 "MPI_INT32_T" One(I32);
    UINT32_T 0x251 "MPI_UINT32_T" One(U32);
    INT64_T 0x258 "MPI_INT64_T" One(I64);
    UINT64_T 0x259 "MPI_UINT64_T" One(U64);
    LOGICAL1 0x2c0 "MPI_LOGICAL1" One(L8);
    INTEGER1 0x2c1 "MPI_INTEGER1" One(I8);
    LOGICAL2 0x2c8 "MPI_LOGICAL2" One(L16);
    INTEGER2 0x2c9 "MPI_INTEGER2" One(I16);
    REAL2 0x2ca "MPI_REAL2" One(F16);
    C_FLOAT16 0x2cb "MPIX_C_FLOAT16" One(F16);
    LOGICAL4 0x2d0 "MPI_LOGICAL4" One(L32);
    INTEGER4 0x2d1 "MPI_INTEGER4" One(I32);
    REAL4 0x2d2 "MPI_REAL4" One(F32);
    COMPLEX4 0x2d3 "MPI_COMPLEX4" One(C16);
    LOGICAL8 0x2d8 "MPI_LOGICAL8" One(L64);
    INTEGER8 0x2d9 "MPI_INTEGER8" One(I64);
    REAL8 0x2da "MPI_REAL8" One(F64);
    COMPLEX8 0x2db "MPI_COMPLEX8" One(C32);
    LOGICAL16 0x2e0 "MPI_LOGICAL16" One(L128);
    INTEGER16 0x2e1 "MPI_INTEGER16" One(I128);
    REAL16 0x2e2 "MPI_REAL16" One(F128);
    COMPLEX16 0x2e3 "MPI_COMPLEX16" One(C64);
    COMPLEX32 0x2eb "MPI_COMPLEX32" One(C128);
}

/// Handles at and above this value and below `LIMIT` are datatypes.
pub(crate) const FIRST: u32 = 0x200;
pub(crate) const LIMIT: u32 = 0x300;

/// The sized datatype of a class for `MPI_Type_match_size`.
pub(crate) fn sized(class: TypeClass, bytes: i32) -> Option<Handle> {
    Some(match (class, bytes) {
        (TypeClass::Logical, 1) => LOGICAL1,
        (TypeClass::Logical, 2) => LOGICAL2,
        (TypeClass::Logical, 4) => LOGICAL4,
        (TypeClass::Logical, 8) => LOGICAL8,
        (TypeClass::Logical, 16) => LOGICAL16,
        (TypeClass::Integer, 1) => INTEGER1,
        (TypeClass::Integer, 2) => INTEGER2,
        (TypeClass::Integer, 4) => INTEGER4,
        (TypeClass::Integer, 8) => INTEGER8,
        (TypeClass::Integer, 16) => INTEGER16,
        (TypeClass::Real, 2) => REAL2,
        (TypeClass::Real, 4) => REAL4,
        (TypeClass::Real, 8) => REAL8,
        (TypeClass::Real, 16) => REAL16,
        (TypeClass::Complex, 4) => COMPLEX4,
        (TypeClass::Complex, 8) => COMPLEX8,
        (TypeClass::Complex, 16) => COMPLEX16,
        (TypeClass::Complex, 32) => COMPLEX32,
        _ => return None,
    })
}

/// `MPI_TYPECLASS_*`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TypeClass {
    Logical,
    Integer,
    Real,
    Complex,
}

impl TypeClass {
    pub(crate) fn from_abi(value: i32) -> Option<TypeClass> {
        Some(match value {
            191 => TypeClass::Logical,
            192 => TypeClass::Integer,
            193 => TypeClass::Real,
            194 => TypeClass::Complex,
            _ => return None,
        })
    }
}
