//! Message logging: the job's shared segment, the send log, the determinants and their replay.
//!
//! The log belongs to the node, not to the rank: everything that must survive a rank lies in one
//! segment (a file in memory held by the node daemon), mapped by every rank of the node and by the
//! daemon.
//! See `docs/formats/segment.md` for its bytes and `docs/internals/overview.md` for the protocol.

#![allow(unsafe_code)] // shared memory

pub mod acked;
pub mod beside;
pub mod clock;
pub mod compare;
pub mod crowd;
pub mod datagram;
pub mod difference;
pub mod dirty;
pub mod divergence;
pub mod door;
pub mod entry;
pub mod failures;
pub mod free;
pub mod futex;
pub mod held;
pub mod memory;
pub mod mirror;
pub mod opened;
pub mod random;
pub mod reader;
pub mod recording;
pub mod replay_end;
pub mod saved;
pub mod segment;
pub mod sendlog;
pub mod unit;
pub mod units;
pub mod walk;
pub mod windows;

#[cfg(test)]
mod door_tests;
#[cfg(test)]
mod log_tests;
#[cfg(test)]
mod mirror_tests;
