//! Basic elements: what the leaves of every datatype are, by machine representation.
//!
//! Kept true: a `Basic` says how an element lies in memory, how it is written in external32 and
//! which family it belongs to; two predefined datatypes that differ only in name share one.

/// Representation of one basic element.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Basic {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    I128,
    /// C `long`: an `I64` that external32 writes in four bytes.
    Long,
    /// C `unsigned long`: a `U64` that external32 writes in four bytes.
    ULong,
    F16,
    F32,
    F64,
    /// x87 extended precision in 16 bytes.
    F80,
    F128,
    /// Complex numbers, by the width of a component.
    C16,
    C32,
    C64,
    C80,
    C128,
    /// Truth values of 1, 2, 4, 8 and 16 bytes.
    L8,
    L16,
    L32,
    L64,
    L128,
    /// Printable character; no arithmetic.
    Character,
    WChar,
    Byte,
    Packed,
}

/// How external32 writes an element.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Foreign {
    /// `n` big-endian words of the native width.
    Swap { word: usize },
    /// Sign- or zero-extended from the given number of bytes.
    Narrow { bytes: usize, signed: bool },
    /// `n` components of 80-bit floating point, written as binary128.
    Extended { components: usize },
}

impl Basic {
    /// Whether equal values have equal bytes, as MPI_Compare_and_swap wants it: no floating-point
    /// numbers.
    pub(crate) fn is_compared_by_bytes(self) -> bool {
        use Basic::*;
        !matches!(self, F16 | F32 | F64 | F80 | F128 | C16 | C32 | C64 | C80 | C128)
    }

    /// Bytes in memory, padding included (only `F80` and `C80` have padding).
    pub const fn size(self) -> u64 {
        use Basic::*;
        match self {
            I8 | U8 | L8 | Character | Byte | Packed => 1,
            I16 | U16 | F16 | L16 => 2,
            I32 | U32 | F32 | C16 | L32 | WChar => 4,
            I64 | U64 | Long | ULong | F64 | C32 | L64 => 8,
            I128 | F80 | F128 | C64 | L128 => 16,
            C80 | C128 => 32,
        }
    }

    /// Alignment the C compiler gives the element in a struct.
    pub const fn align(self) -> u64 {
        use Basic::*;
        match self {
            C16 => 2,
            C32 => 4,
            C64 => 8,
            C80 | C128 => 16,
            _ => self.size(),
        }
    }

    pub(crate) const fn foreign(self) -> Foreign {
        use Basic::*;
        match self {
            Long => Foreign::Narrow { bytes: 4, signed: true },
            ULong => Foreign::Narrow { bytes: 4, signed: false },
            WChar => Foreign::Narrow { bytes: 2, signed: false },
            F80 => Foreign::Extended { components: 1 },
            C80 => Foreign::Extended { components: 2 },
            C16 | C32 | C64 | C128 => Foreign::Swap { word: self.size() as usize / 2 },
            _ => Foreign::Swap { word: self.size() as usize },
        }
    }

    /// Bytes in external32.
    pub const fn foreign_size(self) -> u64 {
        match self.foreign() {
            Foreign::Narrow { bytes, .. } => bytes as u64,
            _ => self.size(),
        }
    }
}
