//! What the controller of a job, its nodes and the CLI say to each other.
//!
//! Kept true: a frame is at most `frame::MAX_FRAME_BYTES` long and holds exactly one message; what
//! does not decode completely is an error, never a guess. No I/O happens here, but on a connection
//! that `auth` is given.

pub mod auth;
pub mod bind;
pub mod depot;
pub mod event;
pub mod far;
pub mod frame;
pub mod gateway;
pub mod ha;
pub mod message;
pub mod meta;
pub mod node;
pub mod pmi;
pub mod status;
pub mod transport;
pub mod vault;

pub use bind::{Bind, Slot};
pub use depot::{Delivered, Stored, StoredFile, Way};
pub use event::{Event, EventKind};
pub use frame::{Decoder, FrameError, encode, encode_within};
pub use ha::Ha;
pub use message::{
    Appended, AtRest, CheckpointPolicy, ClientMsg, Dedup, Fallback, Files, Freeze, Ft, JobSpec,
    LeaveStep, Leaving, NodeMsg, Orphans, PROTOCOL, Stream, Wtime,
};
pub use meta::Meta;
pub use node::{Death, FromNode, Said, ToNode};
pub use status::{
    CheckpointStatus, FallbackStatus, HaStatus, JobStatus, NodeStatus, RankStatus, SavedSet,
    SavedTo, SavedWay, Suspension,
};
pub use transport::Transport;
pub use vault::{VaultOrder, VaultStep};
