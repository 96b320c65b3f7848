//! What the nodes of a job agree on: rules without I/O, clock or randomness of their own.
//!
//! Inputs come in, actions and answers come out; others carry them out (`link`, `node`) or play
//! them against a simulated world (`tests/sim`). `docs/protocols.md` says what holds and why.

pub mod cut;
pub mod gate;
pub mod halt;
pub mod interval;
pub mod joints;
pub mod journal;
pub mod led;
pub mod link;
pub mod machine;
pub mod membership;
pub mod muster;
pub mod patience;
pub mod pause;
pub mod placement;
pub mod reach;
pub mod recovery;
pub mod reign;
pub mod rejoin;
pub mod replicas;
pub mod retention;
pub mod routing;
pub mod scheduler;
pub mod session;
pub mod sets;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
