//! The node daemon: starts and watches ranks, takes checkpoints, detects deaths, recovers.
//!
//! The rules are pure (`monitor`, `scheduler`, `retention`, `output`); `job` carries them out
//! against processes, the job segment and files; `serve` is the daemon around it.

mod checkpoint;
mod futex;
pub mod home;
mod input;
mod job;
mod loans;
pub mod meta;
pub mod monitor;
mod outlet;
pub mod output;
pub mod program;
mod reap;
pub mod replay;
pub mod retention;
pub mod scheduler;
pub mod serve;
pub mod spawn;
#[cfg(test)]
mod testing;
