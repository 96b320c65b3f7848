//! What a completed operation tells (MPI 5.0 section 3.2.5), in ABI-neutral form.

use crate::consts::{ANY_SOURCE, ANY_TAG};

/// Status of a completed receive, send or probe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// Rank in the communicator, or `ANY_SOURCE`/`PROC_NULL`.
    pub source: i32,
    pub tag: i32,
    /// Error class, 0 for success; set by operations on several requests.
    pub error: i32,
    /// Bytes received.
    pub bytes: u64,
    pub cancelled: bool,
}

impl Status {
    /// The empty status: any source, any tag, nothing received.
    pub const EMPTY: Status =
        Status { source: ANY_SOURCE, tag: ANY_TAG, error: 0, bytes: 0, cancelled: false };
    /// Status of a receive from `MPI_PROC_NULL`.
    pub const PROC_NULL: Status = Status {
        source: crate::consts::PROC_NULL,
        tag: ANY_TAG,
        error: 0,
        bytes: 0,
        cancelled: false,
    };
}

impl Default for Status {
    fn default() -> Self {
        Status::EMPTY
    }
}
