//! Elements of one machine's made into another's: byte order and size.
//!
//! Kept true: a value comes out as the same value, or an error names the element that does not fit;
//! nothing is rounded.

use crate::kind::{Kind, Order, Type};

/// Why elements cannot be had as another type.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConvertError {
    #[error("{stored} of {from} bytes cannot become {wanted} of {to} bytes")]
    Kinds { stored: &'static str, from: usize, wanted: &'static str, to: usize },
    #[error("it was stored without a type on a machine of the other byte order")]
    Untyped,
    #[error("the value of element {0} does not fit into {1} bytes")]
    Value(u64, usize),
}

/// How to get from what is stored to what is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conversion {
    from: Type,
    from_order: Order,
    to: Type,
    to_order: Order,
}

impl Conversion {
    pub fn new(
        (from, from_order): (Type, Order),
        (to, to_order): (Type, Order),
    ) -> Result<Conversion, ConvertError> {
        let whole = |kind: Kind| matches!(kind, Kind::Int | Kind::Uint);
        let wide = |kind: Type| kind.kind.unit(kind.size) >= 4;
        let possible = match (from.kind, to.kind) {
            // What has no type has no bytes to turn, and keeps its size.
            (Kind::Bytes, Kind::Bytes) => from.size == to.size,
            (a, b) if whole(a) && whole(b) => true,
            (Kind::Float, Kind::Float) | (Kind::Complex, Kind::Complex) => {
                from.size == to.size || (wide(from) && wide(to))
            }
            _ => false,
        };
        if !possible {
            return Err(ConvertError::Kinds {
                stored: from.kind.word(),
                from: from.size,
                wanted: to.kind.word(),
                to: to.size,
            });
        }
        if from.kind == Kind::Bytes && from.size > 1 && from_order != to_order {
            return Err(ConvertError::Untyped);
        }
        Ok(Conversion { from, from_order, to, to_order })
    }

    /// Whether bytes stay as they are.
    pub fn nothing(&self) -> bool {
        let unit = self.from.kind.unit(self.from.size);
        self.from == self.to && (self.from_order == self.to_order || unit == 1)
    }

    pub fn to_bytes(&self) -> usize {
        self.to.size
    }

    pub fn from_bytes(&self) -> usize {
        self.from.size
    }

    /// Converts whole elements, the first of which is element `first` of its region; `out` is
    /// emptied before.
    pub fn run(&self, first: u64, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), ConvertError> {
        out.clear();
        if self.nothing() {
            out.extend_from_slice(bytes);
            return Ok(());
        }
        let (from, to) = (self.from.kind.unit(self.from.size), self.to.kind.unit(self.to.size));
        for (number, unit) in bytes.chunks_exact(from).enumerate() {
            let element = first + (number * from / self.from.size) as u64;
            self.one(unit, to, out).ok_or(ConvertError::Value(element, to))?;
        }
        Ok(())
    }

    /// Converts one number; `None`: its value does not fit.
    fn one(&self, unit: &[u8], to: usize, out: &mut Vec<u8>) -> Option<()> {
        let mut low_first = [0u8; 16];
        for (at, byte) in in_order(unit, self.from_order).enumerate() {
            *low_first.get_mut(at)? = byte;
        }
        let bits = u128::from_le_bytes(low_first);
        let bits = match (self.from.kind, unit.len() == to) {
            (Kind::Float | Kind::Complex, true) => bits,
            (Kind::Float | Kind::Complex, false) => float(bits as u64, unit.len())?,
            _ => whole(bits, (self.from.kind, unit.len()), (self.to.kind, to))?,
        };
        let low_first = bits.to_le_bytes();
        out.extend(in_order(low_first.get(..to)?, self.to_order));
        Some(())
    }
}

/// Bytes from the lowest on, or such bytes in that order.
fn in_order(bytes: &[u8], order: Order) -> impl Iterator<Item = u8> {
    let last = bytes.len();
    (0..last).filter_map(move |at| {
        bytes.get(if order == Order::Little { at } else { last - 1 - at }).copied()
    })
}

/// A float of 4 bytes as one of 8, or the other way round if it has that value there, too.
fn float(bits: u64, size: usize) -> Option<u128> {
    if size == 4 {
        return Some(u128::from(f64::from(f32::from_bits(bits as u32)).to_bits()));
    }
    let value = f64::from_bits(bits);
    let short = value as f32;
    let same = value.is_nan() || f64::from(short).to_bits() == bits;
    same.then_some(u128::from(short.to_bits()))
}

fn whole(bits: u128, (kind, size): (Kind, usize), (to, bytes): (Kind, usize)) -> Option<u128> {
    let unused = 128 - 8 * u32::try_from(size).ok()?;
    let value = match kind {
        Kind::Int => (bits << unused).cast_signed() >> unused,
        _ => bits.cast_signed(),
    };
    let width = 8 * u32::try_from(bytes).ok()?;
    let (least, most) = match to {
        Kind::Int => (-(1i128 << (width - 1)), (1i128 << (width - 1)) - 1),
        _ => (0, (1i128 << width) - 1),
    };
    (least..=most).contains(&value).then_some(value.cast_unsigned())
}

#[cfg(test)]
#[path = "convert_tests.rs"]
mod tests;
