//! What an image holds of files with a path, and of timers. Part of the file format of the `STATE`
//! section (`docs/formats/image.md`): a change here is a change of version.

use crate::bytes::encoding::{wire_enum, wire_struct};
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

wire_struct! {
    /// Identity of a file, checked before it is used again.
    pub struct FileId {
        /// Absolute path.
        pub path: Vec<u8>,
        /// Device number.
        pub dev: u64,
        /// Inode number.
        pub ino: u64,
        /// Size in bytes.
        pub size: u64,
        /// Modification time, nanoseconds since 1970.
        pub mtime_ns: i64,
    }
}

wire_enum! {
    /// What tells the content of a mapped file, together with its size.
    pub enum Fingerprint {
        /// Nothing: only that very file counts.
        Unknown = 0 {},
        /// XXH3-128 of what is mapped of it, in the order of the file.
        Hash = 1 {
            /// The hash.
            hash: [u8; 16],
        },
        /// The build-id of an ELF file of which too much is mapped to be hashed.
        Build = 2 {
            /// The build-id.
            id: Vec<u8>,
        },
    }
}

wire_struct! {
    /// A timer made by `timer_create`.
    pub struct PosixTimer {
        /// Its number.
        pub id: i32,
        /// Clock.
        pub clock: i32,
        /// Thread whose time a clock of thread time counts; 0 for other clocks.
        pub clock_tid: i32,
        /// `SIGEV_*`.
        pub notify: u32,
        /// Signal.
        pub signal: u32,
        /// The value that comes with it.
        pub value: u64,
        /// Thread that is told with `SIGEV_THREAD_ID`.
        pub tid: i32,
        /// Interval in nanoseconds, 0 for none.
        pub interval_ns: u64,
        /// Nanoseconds until it expires, 0 if it is not armed.
        pub left_ns: u64,
        /// Whether its signal is pending.
        pub pending: bool,
    }
}

/// Highest number of a descriptor, and one.
pub const MAX_DESCRIPTORS: u32 = 1 << 20;
/// Nanoseconds are fewer.
pub const NANOSECONDS_END: u64 = 1 << 63;
/// Length of a path, and one.
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest build-id.
pub const MAX_BUILD_BYTES: usize = 64;

pub fn path_of(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}

/// Whether it is an absolute path that system calls take.
pub fn path_holds(path: &[u8]) -> bool {
    path.starts_with(b"/") && path.len() < MAX_PATH_BYTES && !path.contains(&0)
}
