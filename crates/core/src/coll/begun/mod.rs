//! Collectives that are begun in one call and completed in another: non-blocking and persistent
//! ones, and those between neighbours (MPI 5.0 sections 6.12, 6.13, 8.6 and 8.7).
//!
//! Kept true, for replay: all that a rank sends leaves in the call that begins the operation, so
//! its place in each channel follows from the program's calls alone, whenever other ranks' messages
//! come. And for progress: nobody waits for a rank to call MPI again. So none of them has a second
//! round: whoever needs something is sent it by whoever has it at the beginning. A broadcast takes
//! its root as many sends as there are other ranks, and an allreduce each rank as many; between
//! many ranks with large data the blocking forms cost less.
//!
//! Between the groups of an inter-communicator it is the same (`inter`), and the blocking forms
//! there are begun and completed in one call.
//!
//! A reduction combines the operands in rank order, in the call in which the program learns that
//! the operation is complete; all ranks compute the same expression on the same bits.

mod blocks;
mod inter;
mod moved;
mod neighbour;
mod plan;
mod reduced;
#[cfg(test)]
mod tests;

pub use blocks::{Block, Blocks, Layout};
pub(crate) use plan::Plan;

/// When an operation runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum How {
    /// It is begun at once.
    Now,
    /// Whenever its request is started.
    Started,
}
