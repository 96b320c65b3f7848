//! A simulated job around the real links (`protocol::link`): what is said on a connection as bytes,
//! its two ends, who may speak (`membership::Roster`) and where streams come from and go to
//! (`routing::Paths`).
//!
//! Modelled: logs and mirrors (of messages instead of memory), programs, processes, the controller,
//! connections and time; what `crates/link` does with the machines is done here in the same order
//! (`inbound`, `outbound`). A connection delivers its bytes in any portions, breaks at any byte, is
//! noticed to be broken by one end long before the other, and is made anew while the old one is
//! still read. Ranks and nodes die, ranks move, and a node that was declared dead goes on as if it
//! had not been.
//!
//! What a rank says beyond what anybody else knows of it may differ in its next life, so whoever
//! takes something from a life that is over is found by what he receives.

mod connection;
mod controller;
mod faults;
mod inbound;
mod log;
mod outbound;
mod outlog;
mod process;
mod program;
mod world;

pub use world::{Mistake, Report, run};
