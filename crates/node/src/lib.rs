//! The node daemon: starts and watches ranks, takes checkpoints, detects deaths, recovers.
//!
//! The rules are pure (`monitor`, `output`, `eyrie_protocol`). `job` is the controller, which
//! follows them; `agent` is a node, which carries things out against processes, the job segment
//! and files. They talk by messages (`eyrie_control::node`). `serve` is the daemon around them.

mod agent;
mod allotted;
mod another_mpi;
pub mod at_rest;
mod calls;
mod checkpoint;
mod claims;
mod clock;
mod cores;
mod crew;
pub mod daemon;
pub mod depot;
mod feed;
mod files;
mod futex;
mod gaps;
pub mod gateway;
mod guest;
pub mod ha;
mod hold;
pub mod home;
mod input;
mod invited;
mod job;
pub mod join;
pub mod keeper;
mod lanes;
mod line;
mod loans;
mod lock;
mod lodging;
mod memory;
mod meter;
pub mod monitor;
mod netns;
pub mod notice;
mod outlet;
pub mod output;
mod pipes;
mod points;
mod post;
mod pour;
pub mod program;
mod reap;
pub mod replay;
pub mod saved;
pub mod sealing;
pub mod serve;
mod sign;
pub mod spawn;
mod store;
mod told;
mod tries;
pub mod units;
mod vault;
pub mod way;
mod wire;

/// Whether the logs of jobs lie in huge pages on this machine; else why not.
pub fn huge_logs() -> Result<(), String> {
    eyrie_ledger::memory::huge("eyrie-info").map(drop).map_err(|e| e.to_string())
}

pub use eyrie_protocol::{
    gate, membership, placement, recovery, replicas, retention, routing, scheduler,
};
