//! Batch systems: which hosts the allocation that this process is in has, how many ranks each is
//! to run, what starts a process there, and when it is over.
//!
//! Kept true: what a batch system says of itself comes from the environment and from its own
//! commands, each asked for a few seconds at most; nothing of it is needed where `--hosts` or
//! `--nodes` is given.

pub mod allocation;
pub mod flux;
pub mod grace;
pub mod host_files;
pub mod kubernetes;
pub mod slurm;
pub mod system;
pub mod time_left;
