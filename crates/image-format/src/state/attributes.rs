//! What an image holds of how the kernel treats a process and its threads. Part of the file format
//! of the `STATE` section (`docs/formats/image.md`): a change here is a change of version.

use crate::bytes::encoding::wire_struct;

wire_struct! {
    /// When and where a thread runs.
    pub struct Schedule {
        /// `SCHED_*`.
        pub policy: u32,
        /// `SCHED_FLAG_*`.
        pub flags: u64,
        /// Nice value.
        pub nice: i32,
        /// Priority of a real-time policy.
        pub priority: u32,
        /// Run time, deadline and period of `SCHED_DEADLINE`, in nanoseconds.
        pub deadline: [u64; 3],
        /// `ioprio_get`.
        pub io_priority: u32,
        /// `PR_GET_TIMERSLACK`.
        pub timer_slack_ns: u64,
    }
}

wire_struct! {
    /// Switches of a process.
    pub struct Attributes {
        /// `/proc/PID/oom_score_adj`.
        pub oom_score_adj: i32,
        /// `PR_GET_SECUREBITS`.
        pub secure_bits: u32,
        /// Processors that the one who took the image could run on, as a bit mask.
        pub allowed: Vec<u8>,
        /// What `mlockall` said of memory to come: one of [`locking`].
        pub lock_future: u32,
        /// Protection keys that are allocated, as a bit mask.
        pub keys: u32,
    }
}

/// Values of [`Attributes::lock_future`].
pub mod locking {
    /// It is not locked.
    pub const NONE: u32 = 0;
    /// It is locked.
    pub const ALL: u32 = 1;
    /// It is locked when it is touched.
    pub const ON_FAULT: u32 = 2;
}

/// Protection keys that there are.
pub const KEYS: u32 = 16;
