//! A deterministic simulation of a job on many nodes, around the real state machines.
//!
//! Real: the gate, the replica store, the recovery planner, retention, the scheduler (all of
//! `eyrie-protocol`), sessions and journal of the controller. Modelled: programs, processes,
//! segments, disks, links, network and clock; `links` simulates the real links. One seed is one
//! run: programs, delays and faults follow from it. A run is right if no check in `checks` fails.

mod agenda;
mod agent;
mod checks;
mod controller;
mod faults;
mod halting;
mod leave;
pub mod led;
pub mod links;
mod net;
mod node;
mod pausing;
mod program;
mod random;
mod reign;
pub mod reigns;
mod routers;
mod segment;
mod sites;
mod stage;
pub mod steps;
pub mod ties;
pub mod together;
mod types;
mod unfit;
mod units;
mod vault;
pub mod watch;
mod world;

pub use types::Mutation;
pub use world::{Config, Report};

/// Runs the simulation of a seed.
pub fn run(config: Config) -> Result<Report, String> {
    world::World::new(config).run()
}
