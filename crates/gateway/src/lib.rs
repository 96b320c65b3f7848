//! The multiplexer of a gateway: many streams of bytes over one connection between two clusters.
//!
//! Pure: bytes, targets and orders in, bytes and events out; no socket, clock or thread. Kept true:
//! each stream's bytes come out as they went in, in order, or the stream is known to be broken; a
//! receiver's memory is bounded by the credit that it granted; who may send gets its turn.

pub mod frame;
mod limits;
mod mux;
mod stream;

pub use frame::{Frame, FrameError, Reason};
pub use limits::Limits;
pub use mux::{Event, Fault, Mux, Refusal, Side};
