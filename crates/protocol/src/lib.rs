//! What the nodes of a job agree on: rules without I/O, clock or randomness of their own.
//!
//! Inputs come in, actions and answers come out; others carry them out (`link`, `node`) or play
//! them against a simulated world (`tests/sim`). `docs/internals/simulation.md` says what holds and
//! why.

pub mod barrier;
pub mod connectivity;
pub mod consensus;
pub mod consistent_cut;
pub mod coordinated_snapshot;
pub mod cross_node_sockets;
pub mod election;
pub mod failure_detector;
pub mod gate;
pub mod image_references;
pub mod interval;
pub mod journal;
pub mod leader_lease;
pub mod link;
pub mod machine;
pub mod membership;
pub mod output;
pub mod placement;
pub mod recovery;
pub mod replicas;
pub mod retention;
pub mod revocation;
pub mod router_pause;
pub mod routing;
pub mod scheduler;
pub mod session;
pub mod socket_restore;
pub mod suspend;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timing;
pub mod vacated;

pub use eyrie_ledger::units;
