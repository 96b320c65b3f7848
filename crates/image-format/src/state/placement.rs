//! What an image holds of where a process wants its memory (NUMA), and of switches that are seldom
//! used. Part of the file format of the `STATE` section (`docs/formats/image.md`) from version 5
//! on: a change here is a change of version.

use crate::bytes::encoding::wire_struct;

wire_struct! {
    /// A memory policy. The default one has mode 0 and no nodes.
    #[derive(Default)]
    pub struct Policy {
        /// `MPOL_*` with its `MPOL_F_*` flags.
        pub mode: u32,
        /// Nodes, as a bit mask.
        pub nodes: Vec<u8>,
    }
}

wire_struct! {
    /// A mapping, or neighbours, with a policy of its own (`mbind`).
    pub struct RangePolicy {
        /// First address.
        pub start: u64,
        /// One past the last.
        pub end: u64,
        /// The policy.
        pub policy: Policy,
    }
}

wire_struct! {
    /// Memory policies of a process.
    #[derive(Default)]
    pub struct Placement {
        /// Nodes whose memory the one who took the image could use, as a bit mask.
        pub allowed: Vec<u8>,
        /// Those of its threads, in their order; none if all have the default one.
        pub threads: Vec<Policy>,
        /// Those of its mappings, in order of address.
        pub ranges: Vec<RangePolicy>,
    }
}

wire_struct! {
    /// A switch that is not as a new process has it.
    pub struct Switch {
        /// One of [`switch`].
        pub which: u32,
        /// Its value, as `prctl` returns it.
        pub value: u32,
    }
}

wire_struct! {
    /// Switches of a process that are seldom used.
    #[derive(Default)]
    pub struct Switches {
        /// `/proc/PID/coredump_filter`.
        pub core_filter: Option<u32>,
        /// Those that are not as a new process has them, in order of their numbers.
        pub set: Vec<Switch>,
    }
}

/// Values of [`Switch::which`].
pub mod switch {
    /// `PR_SET_THP_DISABLE` with flags (Linux 6.18).
    pub const HUGE_PAGES: u32 = 1;
    /// `PR_SET_TSC`: the time stamp counter is not to be read.
    pub const TIME_STAMPS: u32 = 2;
    /// `PR_MCE_KILL`.
    pub const MEMORY_FAULTS: u32 = 3;
    /// `PR_SET_SPECULATION_CTRL` of store bypass.
    pub const STORE_BYPASS: u32 = 4;
    /// The same of indirect branches.
    pub const INDIRECT_BRANCH: u32 = 5;
    /// `PR_SET_MEMORY_MERGE`.
    pub const MERGE: u32 = 6;
    /// `PR_SET_MDWE`.
    pub const NO_NEW_CODE: u32 = 7;
    /// `MEMBARRIER_CMD_REGISTER_*`: which registrations, as a bit mask.
    pub const BARRIERS: u32 = 8;
}

/// Most nodes of a policy, and what the kernel is told: it takes the last bit for one too many.
pub const NODES: u64 = 1024;

pub const MPOL_F_STATIC_NODES: u32 = 1 << 15;

pub const MPOL_F_RELATIVE_NODES: u32 = 1 << 14;

pub const MPOL_F_NUMA_BALANCING: u32 = 1 << 13;

/// Words of a mask of nodes.
pub const WORDS: usize = NODES as usize / 64;

pub const MAX_NODES_BYTES: usize = WORDS * 8;

/// Bits that the mode of a policy may have.
pub const MODES: u32 = MPOL_F_STATIC_NODES | MPOL_F_RELATIVE_NODES | MPOL_F_NUMA_BALANCING | 0xff;
