//! The kernels in Rust: those of the crate `rusty_erasure`, for the instructions that the processor
//! at hand has (GFNI, AVX2, SSSE3, NEON), and without any.

use super::field::Matrix;
use super::kernel::{Kernel, Product};
use rusty_erasure::kernel::Kernels;
use std::sync::OnceLock;

/// One of its sets of instructions.
pub struct Pure(Kernels);

struct Prepared {
    kernels: Kernels,
    columns: usize,
    tables: Vec<u8>,
}

/// The one that is used.
pub fn best() -> &'static Pure {
    static BEST: OnceLock<Pure> = OnceLock::new();
    BEST.get_or_init(|| Pure(rusty_erasure::best_kernels()))
}

/// All that the processor can run.
pub fn all() -> &'static [Pure] {
    static ALL: OnceLock<Vec<Pure>> = OnceLock::new();
    ALL.get_or_init(|| {
        let named = |name: &&str| rusty_erasure::kernels_named(name).map(Pure);
        ["scalar", "ssse3", "avx2", "gfni", "neon"].iter().filter_map(named).collect()
    })
}

impl Kernel for Pure {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn prepare(&self, factors: &Matrix) -> Box<dyn Product> {
        let tables = (self.0.init)(&factors.cells);
        Box::new(Prepared { kernels: self.0, columns: factors.columns, tables })
    }
}

impl Product for Prepared {
    fn set(&self, sources: &[&[u8]], sums: &mut [&mut [u8]]) {
        (self.kernels.encode)(&self.tables, sources, sums);
    }

    fn add(&self, index: usize, source: &[u8], sums: &mut [&mut [u8]]) {
        (self.kernels.update)(&self.tables, self.columns, index, source, sums);
    }
}
