//! A client of etcd, by its JSON gateway (`/v3/...`): what it takes to keep a leader's journal
//! there: keys, transactions, leases. It blocks, and belongs in a thread.
//!
//! Kept true: a call ends within its time limits, also where an endpoint is silent; what an
//! endpoint answers is checked before it is believed. A call that failed may have been carried out:
//! whoever repeats it makes sure that this does no harm.

mod answer;
mod client;
mod request;
#[cfg(test)]
mod tests;

pub use answer::{Kv, Outcome, Page};
pub use client::{Client, Config, ConfigError, Limits, Tls};
pub use request::{Compare, Op, after};

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// No endpoint can be talked to, or none can do anything at the time.
    #[error("{0}")]
    Unreachable(String),
    /// An endpoint does not want that.
    #[error("etcd refuses it: {0}")]
    Refused(String),
    #[error("{0} does not answer as etcd does: {1}")]
    Malformed(String, String),
}
