//! Links: the streams between ranks of different nodes, over authenticated TCP, or libfabric.
//!
//! The rules are pure (`eyrie_protocol::link`, `gate`, `replicas`); this carries them out between
//! the node's segment and sockets, in threads of its own. The library in a rank knows nothing of
//! it: it marks a stream and rings a bell.

#![allow(unsafe_code)] // the segment, sockets

mod connection;
mod dial;
mod inbound;
mod incoming;
mod lanes;
mod links;
mod outbound;
mod outlog;
mod sending;
mod serve;
mod shared;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod transport;
mod waker;
mod ways;

pub use connection::set_silence;
pub use dial::Unreached;
pub use eyrie_fabric::{Error as ProviderError, Provider};
pub use links::{LinkStatus, Links, Refused, Setup};
pub use transport::LinkTransport;

#[cfg(test)]
mod tests;
