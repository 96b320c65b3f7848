//! A deterministic simulation of a job on many nodes, around the real state machines.
//!
//! Real: the controller with its journal, and all of `eyrie-protocol`: gate, replica store,
//! recovery planner, retention, scheduler. Modelled: agents, programs, processes, segments, disks,
//! links, network and clock; `links` simulates the real links. One seed is one run: programs,
//! delays and faults follow from it. A run is right if no check in `checks` and `real` fails.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod agenda;
mod agent;
mod checks;
pub mod consensus;
mod controller;
pub mod election;
mod faults;
pub mod heartbeat;
pub mod lease;
mod leave;
pub mod links;
mod net;
mod node;
mod pausing;
mod peers;
mod program;
mod random;
pub mod real;
pub mod returns;
pub mod revocation;
mod routers;
mod segment;
mod sites;
mod stage;
mod suspending;
mod timing;
mod types;
mod unfit;
mod units;
mod vault;
pub mod watchdog;
mod world;

pub use types::Mutation;
pub use world::Report;
