//! Checkpoints of the memory that a program names, in any program, with any MPI or none; see
//! `docs/guides/regions-api.md`. The rooms, each without knowledge of those below it:
//!
//! - `kind`, `convert`: types of elements, and one machine's made into another's
//! - `label`, `format`: what parts are called, and their bytes
//! - `config`: options; `peers`: the other processes; `inputs`: what one finds out by itself, for
//!   when it does that again
//! - `sealed`: parts that are encrypted
//! - `part`, `store`: a process's part of a checkpoint, and folders of them; `second`: the second
//!   level, which is a folder or an object store
//! - `fence`, `guard`: parts protected by parity, in a vault; `apart`: by all nodes together, where
//!   none sees the others' folders
//! - `steps`, `session`, `restart`: what a program does with all that
//! - `c`, `veloc`: the same for C
#![allow(unsafe_code)] // memory of the program, C callers

mod apart;
pub mod c;
pub mod config;
pub mod convert;
mod error;
mod fence;
pub mod format;
pub mod inputs;
pub mod kind;
pub mod label;
mod parity;
pub mod part;
pub mod peers;
mod restart;
pub mod sealed;
mod second;
pub mod session;
mod steps;
mod store;
pub mod veloc;

pub use error::RegionsError;
pub use session::Session;
