//! The TCP connections of a job: authenticated with its key, and encrypted (`--tls`) or not.
//!
//! Encrypted ones speak TLS 1.3. Nobody signs certificates: the job's key makes one pair of keys
//! (`identity`), which each end has, proves to have, and asks of the other. Inside follow hello and
//! proof of `eyrie_control::auth`, as on a connection that is not encrypted.
//!
//! Kept true: there is no way from a socket to a `Stream` but through `Secret`, so what is to be
//! encrypted is; nothing of this is in a rank's process.

mod call;
mod callers;
mod identity;
mod route;
mod secret;
mod session;
mod stream;
#[cfg(test)]
mod tests;

pub use call::Call;
pub use callers::{Caller, Callers, next_call};
pub use route::{CONTROLLER, End, Routes, prepare};
pub use secret::Secret;
pub use session::Session;
pub use stream::Stream;
