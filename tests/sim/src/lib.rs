//! A deterministic simulation of a job on many nodes, around the real state machines.
//!
//! Real: the gate, the replica store, the recovery planner, retention, the scheduler (all of
//! `eyrie-protocol`), sessions and journal of the controller. Modelled: programs, processes,
//! segments, disks, links, network and clock; `links` simulates the real links. One seed is one
//! run: programs, delays and faults follow from it. A run is right if no check in `checks` fails.

#![allow(clippy::unwrap_used, clippy::expect_used)] // it fails the test

mod agenda;
mod agent;
mod checks;
pub mod consensus;
mod controller;
pub mod coordinated;
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
mod routers;
mod segment;
mod sites;
mod stage;
pub mod steps;
mod suspending;
mod term;
mod timing;
mod types;
mod unfit;
mod units;
mod vault;
pub mod watchdog;
mod world;

pub use types::Mutation;
pub use world::{Config, Report};

/// Runs the simulation of a seed.
pub fn run(config: Config) -> Result<Report, String> {
    world::World::new(config).run()
}
