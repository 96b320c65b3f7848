//! What an image holds of the clocks that a process saw. Part of the file format of the `STATE`
//! section (`docs/formats/image.md`) from version 6 on: a change here is a change of version.

use crate::bytes::encoding::wire_struct;

wire_struct! {
    /// Clocks that begin with their machine's start: `CLOCK_MONOTONIC`, `CLOCK_BOOTTIME`.
    pub struct Clocks {
        /// The kernel's `boot_id`.
        pub boot: [u8; 16],
        /// What they showed to the process, in nanoseconds.
        pub shown_ns: [u64; 2],
        /// How far they were ahead of the machine's (its time namespace), in nanoseconds.
        pub ahead_ns: [i64; 2],
    }
}
