//! Processes of this machine, as a node has them: found, started in sessions of their own, bound to
//! processors, watched and collected; pipes to them, and what they take of memory and processors.
//!
//! Kept true: nothing here knows of a job's course; nobody is killed but descendants of this
//! process, or processes that bear the mark of the job that is named.

#![allow(unsafe_code)] // fork, exec, pidfds, affinity, futexes

pub mod allocation;
pub mod clock;
pub mod core_claims;
pub mod cores;
pub mod cpu_meter;
pub mod foreign_mpi;
pub mod futex;
pub mod memory;
pub mod pipes;
pub mod program;
pub mod reap;
pub mod session;
pub mod signals;
pub mod slice;
pub mod spawn;
pub mod stop_points;
