//! Starting the daemons of a job, on this machine and on others, and what is left of them cleared
//! away: the controller's side (`node_launcher`, `remote_node`), a host's side (`host_supervisor`,
//! `node_storage`), and jobs whose processes a resource manager has started (`join`).
//!
//! Kept true: the job's key goes to a daemon through its standard input only; of a daemon that is
//! gone nothing is left, neither processes nor storage.

#![allow(unsafe_code)] // fork, namespaces, pidfds

pub mod host_supervisor;
pub mod join;
mod netns;
pub mod node_launcher;
pub mod node_storage;
pub mod notice;
pub mod remote_node;
