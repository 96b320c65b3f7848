//! Ordered, reliable message streams between the ranks of a node, in shared memory.
//!
//! - `endpoint`: one rank's end of all its channels: append, poll, acknowledge.
//! - `join`: who is a rank: the first process that comes, the next one when that has ended.
//! - `alive`: how the node learns at once that the process ends.
//! - `crowd`: whether others want the core that the rank runs on.
//! - `early`: copies of small messages that are at another node sooner than the links bring them.
//! - `wire`, `socket`: the same for larger ones, over TCP connections from rank to rank.
//! - `presence`: where the rank is (in its own code, inside, waiting, parked): the safe points.
//! - `waiting`: the one waiting place: spin, yield, sleep on a futex.
//! - `remote`: single-copy reads out of a peer's memory, for jobs without protection.
//! - `shown`: the same for messages that are being logged meanwhile.

mod alive;
mod crowd;
mod early;
pub mod endpoint;
mod join;
pub mod presence;
pub mod remote;
mod shown;
mod socket;
pub mod waiting;
mod whim;
mod wire;

pub use endpoint::Endpoint;
pub use join::OpenError;
