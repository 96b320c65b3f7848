//! The vault: checkpoints that survive the nodes that took them.
//!
//! What the members of a group store in a generation is protected by parity on other members of the
//! group, so that any `m` of them may vanish. The rooms, each without knowledge of those above it:
//!
//! - `code`: erasure codes; `scheme`, `layout`, `geometry`: who protects whom, and where it lies
//! - `record`, `seal`, `files`, `disk`: what is written; `hold`: one process at a time; `stream`:
//!   encrypted files beside vaults
//! - `rows`, `block`: what sums are made of, and the memory that they take
//! - `flow`, `coordinator`, `recovery`: encoding, commit and what follows of a crash, as state
//!   machines without I/O; `cost`, `ways`: models of what each way of doing that would take
//! - `member`, `update`: one node's part; `vault`: all members in one process, over folders

pub mod block;
mod change;
pub mod code;
pub mod coordinator;
pub mod cost;
pub mod disk;
pub mod encoding;
pub mod files;
pub mod flow;
pub mod geometry;
pub mod layout;
mod lock;
pub mod member;
mod payload;
pub mod record;
pub mod recovery;
mod rows;
pub mod scheme;
pub mod seal;
pub mod strategy;
pub mod stream;
mod update;
pub mod vault;

pub use change::Runs;
pub use flow::Encoder;
pub use lock::LockError;
pub use scheme::{Scheme, SchemeError};
pub use vault::{Vault, VaultError};
