//! The field GF(2^8) with the polynomial 0x11D, without tables, and the matrices over it.
//!
//! Kept true: this is the plain reference that kernels are held against; it computes factors, of
//! which there are few, and never data.

/// x^8 + x^4 + x^3 + x^2 + 1, without its highest term.
const POLYNOMIAL: u8 = 0x1D;

/// The product of two elements.
pub fn multiply(mut a: u8, mut b: u8) -> u8 {
    let mut product = 0;
    while b != 0 {
        if b & 1 != 0 {
            product ^= a;
        }
        let carry = a & 0x80 != 0;
        a <<= 1;
        if carry {
            a ^= POLYNOMIAL;
        }
        b >>= 1;
    }
    product
}

/// The inverse of an element; of 0, which has none, 0.
pub fn inverse(a: u8) -> u8 {
    // The 254th power, as the 255th of every other element is 1.
    let (mut power, mut result) = (a, 1);
    for _ in 0..7 {
        power = multiply(power, power);
        result = multiply(result, power);
    }
    result
}

/// A matrix, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    pub rows: usize,
    pub columns: usize,
    pub cells: Vec<u8>,
}

impl Matrix {
    pub fn new(rows: usize, columns: usize, cell: impl Fn(usize, usize) -> u8) -> Matrix {
        let cells = (0..rows * columns).map(|at| cell(at / columns, at % columns)).collect();
        Matrix { rows, columns, cells }
    }

    pub fn at(&self, row: usize, column: usize) -> u8 {
        self.cells[row * self.columns + column]
    }

    /// The rows of these numbers.
    pub fn select(&self, rows: &[usize]) -> Matrix {
        Matrix::new(rows.len(), self.columns, |row, column| self.at(rows[row], column))
    }

    pub fn times(&self, other: &Matrix) -> Matrix {
        Matrix::new(self.rows, other.columns, |row, column| {
            let terms = (0..self.columns).map(|i| multiply(self.at(row, i), other.at(i, column)));
            terms.fold(0, |sum, term| sum ^ term)
        })
    }

    /// The inverse of a square matrix, if it has one (Gauss and Jordan).
    pub fn inverse(&self) -> Option<Matrix> {
        let n = self.rows;
        let mut left = self.clone();
        let mut right = Matrix::new(n, n, |row, column| u8::from(row == column));
        for column in 0..n {
            let pivot = (column..n).find(|row| left.at(*row, column) != 0)?;
            left.swap(pivot, column);
            right.swap(pivot, column);
            let factor = inverse(left.at(column, column));
            left.scale(column, factor);
            right.scale(column, factor);
            for row in (0..n).filter(|row| *row != column) {
                let factor = left.at(row, column);
                left.subtract(row, column, factor);
                right.subtract(row, column, factor);
            }
        }
        Some(right)
    }

    fn swap(&mut self, a: usize, b: usize) {
        if a != b {
            for column in 0..self.columns {
                self.cells.swap(a * self.columns + column, b * self.columns + column);
            }
        }
    }

    fn scale(&mut self, row: usize, factor: u8) {
        let cells = &mut self.cells[row * self.columns..(row + 1) * self.columns];
        cells.iter_mut().for_each(|cell| *cell = multiply(*cell, factor));
    }

    fn subtract(&mut self, row: usize, other: usize, factor: u8) {
        for column in 0..self.columns {
            let term = multiply(self.at(other, column), factor);
            self.cells[row * self.columns + column] ^= term;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_field() {
        assert_eq!(multiply(0x80, 2), 0x1D);
        for a in 0..=255u8 {
            assert_eq!(multiply(a, 1), a);
            assert_eq!(multiply(a, inverse(a)), u8::from(a != 0));
            for b in 0..=255u8 {
                assert_eq!(multiply(a, b), multiply(b, a));
                assert_eq!(multiply(a, b ^ 7), multiply(a, b) ^ multiply(a, 7));
            }
        }
    }

    #[test]
    fn a_matrix_times_its_inverse_is_one() {
        let matrix = Matrix::new(5, 5, |row, column| inverse((8 + row) as u8 ^ column as u8));
        let one = Matrix::new(5, 5, |row, column| u8::from(row == column));
        assert_eq!(matrix.times(&matrix.inverse().unwrap()), one);
        assert_eq!(Matrix::new(2, 2, |_, column| column as u8).inverse(), None);
    }
}
