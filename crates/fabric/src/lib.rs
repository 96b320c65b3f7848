//! Connections over libfabric: an ordered stream of bytes between two connected endpoints
//! (`FI_EP_MSG`) of whatever provider the machine has (`verbs`, `tcp`, ...).
//!
//! libfabric is opened at run time where it is installed (`libfabric1` of Debian), so nothing
//! depends on it. Everything of a connection (domain, queues, endpoint, buffers) is its own: one
//! thread waits for it alone, and what fails or is closed is no other's. Progress is manual, so no
//! provider has to start threads.
//!
//! Kept true: a connection hangs on a *leash*, a descriptor of the caller's (its TCP connection to
//! the same peer). When that ends or becomes readable, who waits in the connection is woken and it
//! is over: so a peer that died is noticed as over TCP, and closing the leash closes all. Nothing
//! is in the process of a rank.

#![allow(unsafe_code)] // a C library that is opened at run time

mod endpoint;
mod error;
mod info;
mod library;
mod meet;
mod pipe;
mod slots;
mod sys;
#[cfg(test)]
mod tests;
mod wait;

pub use error::Error;
pub use info::Provider;
pub use meet::{Listener, TOKEN_BYTES, Token, connect};
pub use pipe::{Piece, Pipe, Timed};
