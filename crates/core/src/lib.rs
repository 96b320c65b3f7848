//! The MPI machine: communicators, matching, requests, datatypes, operations and collectives.
//!
//! One `Machine` is one rank. It holds no global state, so that tests run many in one process; the
//! ABI crates keep the one of the process. No shared memory and no system call is touched here, but
//! for those on files (`file::disk`) and the memory of windows (`rma::near`): messages go through
//! `eyrie_channel::Endpoint`, chance goes through `eyrie_ledger::door`.

#![allow(unsafe_code)] // user buffers are raw memory

pub mod consts;
pub mod datatype;
pub mod error;
pub mod handle;
pub mod op;
pub mod status;
mod streaming;

pub mod machine;
pub mod made;
pub mod p2p;

pub mod bsend;
mod coll_p2p;
mod completion;
mod direct;
mod engine;
mod env;
mod failures;
mod matching;
mod neighbours;
#[cfg(test)]
mod p2p_tests;
pub mod partitioned;
#[cfg(test)]
mod partitioned_tests;
mod parts;
mod pending;
#[cfg(test)]
mod pending_tests;
mod persistent;
mod probe;
mod receiving;
mod request;
mod sending;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod world_tests;

pub mod agreement;
pub mod append;
pub mod attr;
pub mod callback;
pub mod clusters;
pub mod coll;
pub mod comm;
pub mod dynamic;
pub mod errcode;
pub mod errhandler;
pub mod file;
pub mod generalized;
pub mod group;
pub mod info;
pub mod leaks;
pub mod rma;
pub mod session;
pub mod threads;
pub mod tools;
pub mod topo_cart;
pub mod topo_dims;
pub mod topo_dist_graph;
pub mod topo_graph;
mod topology;
mod turns;
