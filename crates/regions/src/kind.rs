//! What elements of a region are, as far as that matters on another machine.

use serde::{Deserialize, Serialize};

/// What elements of a region are. The numbers are those of C.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// Nothing is known of them: never converted.
    Bytes,
    Int,
    Uint,
    /// IEEE 754.
    Float,
    /// Two of these.
    Complex,
    /// A file's content.
    File,
}

impl Kind {
    /// The kind of a region that a program declares.
    pub fn of(number: i32) -> Option<Kind> {
        let all = [Kind::Bytes, Kind::Int, Kind::Uint, Kind::Float, Kind::Complex];
        all.get(usize::try_from(number).ok()?).copied()
    }

    /// Whether elements may have so many bytes.
    pub fn takes(self, size: u64) -> bool {
        match self {
            Kind::Bytes => (1..=MAX_ELEMENT_BYTES).contains(&size),
            Kind::Int | Kind::Uint => matches!(size, 1 | 2 | 4 | 8),
            Kind::Float => matches!(size, 2 | 4 | 8),
            Kind::Complex => matches!(size, 8 | 16),
            Kind::File => size == 1,
        }
    }

    /// Bytes of what is turned around between byte orders, in elements of so many bytes.
    pub fn unit(self, size: usize) -> usize {
        match self {
            Kind::Bytes | Kind::File => 1,
            Kind::Int | Kind::Uint | Kind::Float => size,
            Kind::Complex => size / 2,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Kind::Bytes => "bytes",
            Kind::Int => "integers",
            Kind::Uint => "unsigned integers",
            Kind::Float => "floats",
            Kind::Complex => "complex numbers",
            Kind::File => "a file",
        }
    }
}

/// Longest element of a region of no known type.
pub const MAX_ELEMENT_BYTES: u64 = 1 << 31;

/// The type of a region's elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type {
    pub kind: Kind,
    pub size: usize,
}

/// In which order bytes of a number lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Order {
    Little,
    Big,
}

impl Order {
    /// This machine's.
    pub const OWN: Order = if cfg!(target_endian = "big") { Order::Big } else { Order::Little };
}
