//! Collectives on intra-communicators (MPI 5.0 chapter 6): the blocking ones; `begun` has those
//! that are begun in one call and completed in another.
//!
//! All are made of point-to-point messages on the communicator's collective context. Kept true,
//! for replay: who sends what to whom, and in which order, follows from the arguments alone; all
//! receives name their source; the order of a reduction is fixed by rank, and allreduce gives all
//! ranks the same bits. No rank waits for a send to complete while another may wait for it to
//! receive: exchanges start the send, receive, then complete the send. An exchange is complete,
//! even when it fails, before its buffers go.
//!
//! Algorithms: `exchange` has the patterns (pairwise, collect, distribute), in which sends go ahead
//! of what is waited for; on shared memory every message costs two copies whatever the route, so
//! large data goes straight to where it belongs, and only small data between many ranks takes the
//! logarithmic routes. Between few ranks (`brief`) it takes one delay. Which of them is taken is
//! decided by the number of ranks and of bytes alone: all must choose alike, and a rank that is
//! restored elsewhere as before.
//!
//! Where a communicator spans clusters (`clusters`), what is large crosses between them once,
//! in parts that several ranks send side by side (`wide`, `wide_reduce`).

mod agreeing;
mod allgather;
mod alltoall;
mod bcast;
mod begun;
mod brief;
mod data;
mod exchange;
mod gather;
mod reduce;
mod reduce_scatter;
mod scan;
pub mod told;
mod wide;
mod wide_reduce;

#[cfg(test)]
mod tests;

pub(crate) use begun::Plan;
pub use begun::{Block, Blocks, How, Layout};

use crate::error::{Res, class};
use crate::handle::Handle;

/// More ranks than this take logarithmic routes for small data.
const FEW_RANKS: u32 = 8;
/// Reductions and broadcasts of at least this many bytes are cut into a part per rank.
const LARGE_BYTES: u64 = 32 << 10;

/// An array of counts or displacements as the program passed it: `int` or `MPI_Count`/`MPI_Aint`.
/// May be null where the standard says that the argument is not significant.
#[derive(Clone, Copy, Debug)]
pub enum Ints {
    I32(*const i32),
    I64(*const i64),
}

impl Ints {
    /// # Safety
    /// The array has more than `i` readable entries.
    unsafe fn at(self, i: u32) -> i64 {
        // SAFETY: the caller's promise.
        unsafe {
            match self {
                Ints::I32(p) => i64::from(p.add(i as usize).read_unaligned()),
                Ints::I64(p) => p.add(i as usize).read_unaligned(),
            }
        }
    }

    fn is_null(self) -> bool {
        match self {
            Ints::I32(p) => p.is_null(),
            Ints::I64(p) => p.is_null(),
        }
    }

    /// Refuses a null array and negative entries among the first `n`.
    ///
    /// # Safety
    /// If not null, the array has `n` readable entries.
    unsafe fn check_counts(self, n: u32) -> Res<()> {
        if self.is_null() {
            return Err(class::ARG);
        }
        // SAFETY: the caller's promise.
        let negative = (0..n).any(|i| unsafe { self.at(i) } < 0);
        if negative { Err(class::COUNT) } else { Ok(()) }
    }

    fn check_displs(self) -> Res<()> {
        if self.is_null() { Err(class::ARG) } else { Ok(()) }
    }
}

/// The types of alltoallw by rank.
pub type TypesOf<'a> = &'a dyn Fn(usize) -> Handle;
