//! What the controller of a job, its nodes and the CLI say to each other.
//!
//! Kept true: a frame is at most `frame::MAX_FRAME_BYTES` long and holds exactly one message; what
//! does not decode completely is an error, never a guess. No I/O happens here, but on a connection
//! that `auth` is given.

pub mod account;
pub mod auth;
pub mod bind;
pub mod cross_node_sockets;
pub mod event;
pub mod frame;
pub mod gateway;
pub mod ha;
pub mod job;
pub mod message;
pub mod meta;
pub mod node;
pub mod pmi;
pub mod protection;
pub mod second_level;
pub mod signals;
pub mod status;
pub mod transport;
pub mod vault;

pub use account::Account;
pub use bind::{Bind, Slot};
pub use event::{Event, EventKind};
pub use frame::{Decoder, FrameError, encode, encode_within};
pub use ha::Ha;
pub use job::{JobSpec, Older, Placement, Program, Protection, Security, Storage, Timing};
pub use message::{
    Appended, AtRest, CheckpointPolicy, ClientMsg, Dedup, Fallback, Files, Freeze, LeaveStep,
    Leaving, MOST_TARGETS, NodeMsg, Orphans, PROTOCOL, Sent, Stream, Wtime,
};
pub use meta::Meta;
pub use node::{Death, FromNode, Said, ToNode};
pub use protection::Ft;
pub use second_level::{Delivered, Stored, StoredFile, Way};
pub use status::{
    CheckpointStatus, FallbackStatus, HaStatus, JobStatus, NodeStatus, RankStatus, SavedSet,
    SavedTo, SavedWay, Suspension,
};
pub use transport::Transport;
pub use vault::{VaultOrder, VaultStep};
