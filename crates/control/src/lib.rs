//! What the node daemon and the CLI say to each other.
//!
//! Kept true: a frame is at most `frame::MAX_FRAME_BYTES` long and holds exactly one message; what
//! does not decode completely is an error, never a guess. No I/O happens here.

pub mod event;
pub mod frame;
pub mod message;
pub mod status;

pub use event::{Event, EventKind};
pub use frame::{Decoder, FrameError, encode};
pub use message::{ClientMsg, Dedup, Ft, JobSpec, NodeMsg, PROTOCOL, Stream};
pub use status::{CheckpointStatus, JobStatus, RankStatus};
