//! Rows of a position of a stripe that a sum is made of, with their lengths.
//!
//! Kept true: it takes no memory for each row, unless some are left out in between.

use crate::geometry::CHUNK_BYTES;
use std::collections::BTreeMap;

/// Rows; each has at least one byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rows {
    /// So many bytes from the first row on: all rows are chunks but the last.
    First(u64),
    /// These, with their lengths.
    Some(BTreeMap<u64, u64>),
}

impl Rows {
    pub fn is_empty(&self) -> bool {
        self.next(0).is_none()
    }

    /// Bytes of a row; 0: it is not among them.
    pub fn bytes(&self, row: u64) -> u64 {
        match self {
            Rows::First(bytes) => {
                bytes.saturating_sub(row.saturating_mul(CHUNK_BYTES)).min(CHUNK_BYTES)
            }
            Rows::Some(rows) => rows.get(&row).copied().unwrap_or(0),
        }
    }

    /// The first row from this one on.
    pub fn next(&self, row: u64) -> Option<u64> {
        match self {
            Rows::First(_) => Some(row).filter(|row| self.bytes(*row) > 0),
            Rows::Some(rows) => rows.range(row..).next().map(|(row, _)| *row),
        }
    }

    /// All of them, with their lengths.
    pub fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        let rows = std::iter::successors(self.next(0), |row| self.next(row + 1));
        rows.map(|row| (row, self.bytes(row)))
    }

    /// Bytes of all of them.
    pub fn total(&self) -> u64 {
        match self {
            Rows::First(bytes) => *bytes,
            Rows::Some(rows) => rows.values().sum(),
        }
    }

    /// The rows of either; each is as long as the longer one.
    #[must_use]
    pub fn or(&self, other: &Rows) -> Rows {
        match (self, other) {
            (Rows::First(one), Rows::First(other)) => Rows::First(*one.max(other)),
            _ => {
                let mut all: BTreeMap<u64, u64> = self.iter().collect();
                for (row, bytes) in other.iter() {
                    let longer = all.entry(row).or_default();
                    *longer = bytes.max(*longer);
                }
                Rows::Some(all)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rows_are_as_if_they_were_told_one_by_one() {
        let lengths = [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, 3 * CHUNK_BYTES, 3 * CHUNK_BYTES + 5];
        let told = |rows: &Rows| Rows::Some(rows.iter().collect());
        for one in lengths.map(Rows::First) {
            let Rows::First(bytes) = one else { unreachable!() };
            let same = told(&one);
            assert_eq!((one.total(), one.is_empty()), (bytes, bytes == 0));
            assert_eq!((same.total(), same.is_empty()), (bytes, bytes == 0));
            for row in [0, 1, 2, 3, 4, u64::MAX] {
                assert_eq!(one.bytes(row), same.bytes(row), "{bytes}: {row}");
                assert_eq!(one.next(row), same.next(row), "{bytes}: {row}");
            }
            for other in lengths.map(Rows::First) {
                assert_eq!(told(&one.or(&other)), same.or(&other), "{one:?} {other:?}");
            }
        }
        let some = Rows::Some([(1, 7), (3, CHUNK_BYTES)].into());
        assert_eq!(Rows::First(9).or(&some), Rows::Some([(0, 9), (1, 7), (3, CHUNK_BYTES)].into()));
    }
}
