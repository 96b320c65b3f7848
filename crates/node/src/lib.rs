//! The daemons of a job: the controller's (`serve`), a node's (`daemon`), a cluster's gateway.
//!
//! `eyrie_controller` decides, and does nothing by itself: `serve` drives it, `outside` is what it
//! acts through. `eyrie_agent` is a node, which carries things out against processes, the job
//! segment and files. They talk by messages (`eyrie_control::node`).

#![allow(unsafe_code)] // fork, the segment

pub mod daemon;
pub mod gateway;
pub mod metrics;
mod outside;
pub mod serve;

pub use outside::point as point_to_etcd;
