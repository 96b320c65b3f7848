//! What multiplies data: sums of products of blocks with factors, by whichever library is there.
//!
//! Kept true: all kernels give the same bytes. A kernel is asked for whole blocks of one length
//! only; unequal lengths and the division into blocks that fit the cache are [`super::Linear`]'s.

use super::field::Matrix;
use super::{isal, pure};

/// A way to multiply.
pub trait Kernel: Send + Sync {
    fn name(&self) -> &'static str;
    /// Readies the factors of a matrix.
    fn prepare(&self, factors: &Matrix) -> Box<dyn Product>;
}

/// A matrix that is ready to be multiplied with data.
pub trait Product: Send + Sync {
    /// Sets each block of `sums` to the sum of `sources` times the factors of its row. All blocks
    /// have one length.
    fn set(&self, sources: &[&[u8]], sums: &mut [&mut [u8]]);
    /// Adds `source`, which is number `index`, times its factor to each block of `sums`.
    fn add(&self, index: usize, source: &[u8], sums: &mut [&mut [u8]]);
}

/// The one that is used: Intel's library where it is installed.
pub fn best() -> &'static dyn Kernel {
    match isal::load() {
        Ok(isal) => isal,
        Err(_) => pure::best(),
    }
}

/// All that are there.
pub fn all() -> Vec<&'static dyn Kernel> {
    let mut all: Vec<&dyn Kernel> = pure::all().iter().map(|kernel| kernel as _).collect();
    if let Ok(isal) = isal::load() {
        all.push(isal);
    }
    all
}

/// The one in Rust that is used where Intel's library is not installed.
pub fn rust() -> &'static dyn Kernel {
    pure::best()
}

/// The matrix of a code with `k` members of data, of `rows` rows, as Intel's library makes it; or
/// why it is not used.
pub fn isal_matrix(rows: usize, k: usize) -> Result<Matrix, &'static str> {
    Ok(isal::load()?.cauchy(rows, k))
}

/// Why Intel's library is not used, if it is not.
pub fn why_not_isal() -> Option<&'static str> {
    isal::load().err()
}
