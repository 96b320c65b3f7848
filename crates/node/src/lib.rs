//! The node daemon: starts and watches ranks, takes checkpoints, detects deaths, recovers.

pub mod monitor;
pub mod output;
pub mod retention;
pub mod scheduler;
#[cfg(test)]
mod testing;
