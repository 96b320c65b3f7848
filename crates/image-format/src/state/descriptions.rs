//! What an image holds of open file descriptions and the descriptors that lead to them; what is
//! behind a description is in [`crate::state::resources`]. Part of the file format of the `STATE`
//! section (`docs/formats/image.md`): a change here is a change of version.
//!
//! An open file description has a number of its own (`id`), and so has what lies behind several of
//! them (a pipe, a socket, a pair of terminals, a file without a path). Processes that were frozen
//! together use the same numbers for the same things, so that what they share is made once.

use crate::bytes::encoding::wire_struct;
use crate::state::resources::Target;

/// Kinds of [`Lock::kind`].
pub mod lock {
    /// POSIX record lock, held by the process.
    pub const POSIX: u8 = 0;
    /// `flock`, held through the open file description.
    pub const FLOCK: u8 = 1;
    /// Record lock held through the open file description.
    pub const OFD: u8 = 2;
}

wire_struct! {
    /// A file lock.
    pub struct Lock {
        /// One of [`lock`].
        pub kind: u8,
        /// Whether it excludes others.
        pub exclusive: bool,
        /// First byte.
        pub start: u64,
        /// Number of bytes, 0 to the end of the file.
        pub bytes: u64,
    }
}

wire_struct! {
    /// Who is told by a signal that a file has become ready (`F_SETOWN_EX`, `F_SETSIG`).
    pub struct Owner {
        /// Thread, process or group.
        pub kind: i32,
        /// Its number.
        pub pid: i32,
        /// Signal, 0 for `SIGIO`.
        pub signal: i32,
    }
}

wire_struct! {
    /// An open file description.
    pub struct Description {
        /// Its number.
        pub id: u64,
        /// What it refers to.
        pub target: Target,
        /// Access mode and status flags as `F_GETFL` returns them.
        pub flags: u32,
        /// File offset.
        pub offset: u64,
        /// Who is told that it has become ready.
        pub owner: Option<Owner>,
        /// Whether other processes had the file open for writing at the checkpoint too.
        pub shared: bool,
        /// Locks held through it.
        pub locks: Vec<Lock>,
    }
}

wire_struct! {
    /// A file descriptor.
    pub struct Descriptor {
        /// Its number.
        pub fd: u32,
        /// Whether it is closed on exec.
        pub cloexec: bool,
        /// Index in [`crate::state::State::descriptions`].
        pub description: u32,
    }
}
