//! Ordered, reliable message streams between the ranks of a node, in shared memory.
//!
//! - `endpoint`: one rank's end of all its channels: append, poll, acknowledge.
//! - `join`: who is a rank: the first process that comes, the next one when that has ended.
//! - `launcher`: what another launcher says of a process that is no rank of a job.
//! - `alive`: how the node learns at once that the process ends.
//! - `dormant`: a process that waits, outside of MPI, until something is for its rank.
//! - `counters`: what the rank has done and holds, in numbers.
//! - `crowd`: whether others want the core that the rank runs on.
//! - `datagram`: copies of small messages that are at another node sooner than the links bring
//!   them.
//! - `direct_connection`, `socket`: the same for larger ones, over TCP connections from rank to
//!   rank.
//! - `presence`: where the rank is (in its own code, inside, waiting, parked): the safe points.
//! - `waiting`: the one waiting place: spin, yield, sleep on a futex.
//! - `turn_lock`: who of a rank's threads is in the library.
//! - `quiet`: whether a process stands still.
//! - `remote`: single-copy reads out of a peer's memory, for jobs without protection.
//! - `single_copy`: the same for messages that are being logged meanwhile.

#![allow(unsafe_code)] // shared memory

mod alive;
pub mod counters;
mod crowd;
mod datagram;
mod direct_connection;
pub mod dormant;
pub mod endpoint;
mod join;
pub mod launcher;
mod perturbation;
pub mod presence;
pub mod quiet;
pub mod remote;
mod single_copy;
mod socket;
pub mod turn_lock;
pub mod waiting;

pub use endpoint::Apart;
pub use endpoint::Endpoint;
pub use join::{Before, IDENTITY_BYTES, OpenError, identity};
