//! Cauchy Reed-Solomon codes of `k` members of data and `m` of parity over GF(2^8), polynomial
//! 0x11D, with the matrix of ISA-L's `gf_gen_cauchy1_matrix`: of any `k` of the `k + m` members the
//! others follow. With `m` = 1 a plain sum (XOR) can be had instead.
//!
//! Kept true: members may have unequal lengths, and the shorter ones count as if zeros followed;
//! these zeros are never read, sent or stored. Data are worked in blocks that stay in the cache.

pub mod field;
mod isal;
pub mod kernel;
mod pure;
#[cfg(test)]
pub(crate) mod tests;

use field::Matrix;
use kernel::{Kernel, Product};

/// Bytes of each member that are worked at a time.
pub const BLOCK_BYTES: usize = 32 << 10;
/// Most members of a code: the matrix has a row for each, numbered in the field.
pub const MAX_MEMBERS: usize = 255;

/// How parity is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Each row has factors of its own.
    Cauchy,
    /// All factors are 1; for one member of parity only.
    Sum,
}

/// A code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Code {
    k: usize,
    m: usize,
    /// A row for each member: of data first, where it is that of the identity.
    matrix: Matrix,
}

impl Code {
    /// `None`: there is no such code.
    pub fn new(kind: Kind, k: usize, m: usize) -> Option<Code> {
        let cauchy = kind == Kind::Cauchy;
        if k == 0 || m == 0 || k + m > MAX_MEMBERS || (!cauchy && m > 1) {
            return None;
        }
        let matrix = Matrix::new(k + m, k, |row, column| match row {
            row if row < k => u8::from(row == column),
            _ if !cauchy => 1,
            row => field::inverse(row as u8 ^ column as u8),
        });
        Some(Code { k, m, matrix })
    }

    pub fn k(&self) -> usize {
        self.k
    }

    pub fn m(&self) -> usize {
        self.m
    }

    /// The factor of member of data `data` in member of parity `parity`.
    pub fn factor(&self, parity: usize, data: usize) -> u8 {
        self.matrix.at(self.k + parity, data)
    }

    /// The factors by which the members `want` follow from the members `have`, of which there are
    /// `k`; numbered as the rows of the matrix.
    pub fn express(&self, have: &[usize], want: &[usize]) -> Option<Matrix> {
        let known = |members: &[usize]| members.iter().all(|member| *member < self.k + self.m);
        if have.len() != self.k || !known(have) || !known(want) {
            return None;
        }
        Some(self.matrix.select(want).times(&self.matrix.select(have).inverse()?))
    }

    /// Makes all parity of `data`, of which there are `k`. Members of parity are as long as the
    /// longest of data.
    pub fn encode(&self, kernel: &dyn Kernel, data: &[&[u8]], parity: &mut [&mut [u8]]) {
        let rows: Vec<usize> = (self.k..self.k + self.m).collect();
        Linear::new(kernel, self.matrix.select(&rows)).set(data, parity);
    }

    /// Brings parity up to date when member `index` of data changed by `difference` (new ^ old).
    pub fn update(
        &self,
        kernel: &dyn Kernel,
        index: usize,
        difference: &[u8],
        parity: &mut [&mut [u8]],
    ) {
        let rows: Vec<usize> = (self.k..self.k + self.m).collect();
        Linear::new(kernel, self.matrix.select(&rows)).add(index, difference, parity);
    }

    /// Makes the members `want` of the members `have`, which are there. Returns whether that could
    /// be done.
    pub fn recover(
        &self,
        kernel: &dyn Kernel,
        have: &[(usize, &[u8])],
        want: &[usize],
        to: &mut [&mut [u8]],
    ) -> bool {
        let Some(have) = have.get(..self.k) else { return false };
        let numbers: Vec<usize> = have.iter().map(|(number, _)| *number).collect();
        let Some(factors) = self.express(&numbers, want) else { return false };
        let sources: Vec<&[u8]> = have.iter().map(|(_, bytes)| *bytes).collect();
        Linear::new(kernel, factors).set(&sources, to);
        true
    }
}

/// A matrix that is multiplied with data of unequal lengths, block by block.
pub struct Linear {
    rows: usize,
    columns: usize,
    product: Box<dyn Product>,
}

impl Linear {
    pub fn new(kernel: &dyn Kernel, factors: Matrix) -> Linear {
        let product = kernel.prepare(&factors);
        Linear { rows: factors.rows, columns: factors.columns, product }
    }

    /// One factor.
    pub fn one(kernel: &dyn Kernel, factor: u8) -> Linear {
        Linear::new(kernel, Matrix::new(1, 1, |_, _| factor))
    }

    /// Sets each of `sums`, which have one length, to the sum of the sources times the factors of
    /// its row. What of a source lies beyond that length is left out.
    pub fn set(&self, sources: &[&[u8]], sums: &mut [&mut [u8]]) {
        assert!(
            sources.len() == self.columns && sums.len() == self.rows,
            "a block for each factor"
        );
        let bytes = sums.first().map_or(0, |sum| sum.len());
        for at in (0..bytes).step_by(BLOCK_BYTES) {
            let end = (at + BLOCK_BYTES).min(bytes);
            let mut to: Vec<&mut [u8]> = sums.iter_mut().map(|sum| &mut sum[at..end]).collect();
            if sources.iter().all(|source| source.len() >= end) {
                let from: Vec<&[u8]> = sources.iter().map(|source| &source[at..end]).collect();
                self.product.set(&from, &mut to);
                continue;
            }
            to.iter_mut().for_each(|block| block.fill(0));
            for (index, source) in sources.iter().enumerate() {
                let block = source.get(at..source.len().min(end)).unwrap_or_default();
                self.add_block(index, block, &mut to);
            }
        }
    }

    /// Adds a source times its factors to `sums`, which are not shorter.
    pub fn add(&self, index: usize, source: &[u8], sums: &mut [&mut [u8]]) {
        assert!(index < self.columns && sums.len() == self.rows, "a block for each factor");
        for at in (0..source.len()).step_by(BLOCK_BYTES) {
            let end = (at + BLOCK_BYTES).min(source.len());
            let mut to: Vec<&mut [u8]> = sums.iter_mut().map(|sum| &mut sum[at..end]).collect();
            self.add_block(index, &source[at..end], &mut to);
        }
    }

    fn add_block(&self, index: usize, block: &[u8], sums: &mut [&mut [u8]]) {
        if block.is_empty() {
            return;
        }
        let mut to: Vec<&mut [u8]> = sums.iter_mut().map(|sum| &mut sum[..block.len()]).collect();
        self.product.add(index, block, &mut to);
    }
}
