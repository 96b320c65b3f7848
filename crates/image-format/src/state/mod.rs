//! What an image holds of a process besides the content of its memory.
//!
//! These types are the file format of the `STATE` section (`docs/formats/image.md`): a change here
//! is a change of version.

pub mod attributes;
pub mod clocks;
pub mod descriptions;
pub mod files;
pub mod objects;
pub mod placement;
pub mod process_tree;
pub mod processor;
pub mod resources;

use crate::bytes::encoding::{Wire, wire_enum, wire_struct};
pub use crate::state::attributes::*;
pub use crate::state::clocks::*;
pub use crate::state::descriptions::*;
pub use crate::state::files::*;
pub use crate::state::objects::*;
pub use crate::state::placement::*;
use crate::state::process_tree::TreeNode;
pub use crate::state::processor::*;
use crate::state::resources::Around;
pub use crate::state::resources::{Target, terminal};

/// Protection bits of [`Region::prot`], as `mmap` takes them.
pub const PROT_MASK: u32 = 7;

/// Bits of [`Region::flags`].
pub mod region {
    /// Shared mapping.
    pub const SHARED: u32 = 1 << 0;
    /// Grows downwards (a stack).
    pub const GROWSDOWN: u32 = 1 << 1;
    /// Not accounted for.
    pub const NORESERVE: u32 = 1 << 2;
    /// The kernel may drop its pages at any time (vgetrandom).
    pub const DROPPABLE: u32 = 1 << 3;
    /// A shared file mapping that may be made writable later (its file was open for writing).
    pub const MAY_WRITE: u32 = 1 << 4;
    /// `MADV_HUGEPAGE`.
    pub const HUGE: u32 = 1 << 5;
    /// `MADV_NOHUGEPAGE`.
    pub const NO_HUGE: u32 = 1 << 6;
    /// `MADV_DONTDUMP`.
    pub const DONT_DUMP: u32 = 1 << 7;
    /// `MADV_DONTFORK`.
    pub const DONT_FORK: u32 = 1 << 8;
    /// `MADV_WIPEONFORK`.
    pub const WIPE_ON_FORK: u32 = 1 << 9;
    /// `MADV_MERGEABLE`.
    pub const MERGEABLE: u32 = 1 << 10;
    /// `MADV_RANDOM`.
    pub const RANDOM: u32 = 1 << 11;
    /// `MADV_SEQUENTIAL`.
    pub const SEQUENTIAL: u32 = 1 << 12;
    /// `mlock`.
    pub const LOCKED: u32 = 1 << 13;
    /// Pages are locked when they are touched.
    pub const LOCKED_ON_FAULT: u32 = 1 << 14;
    /// Huge pages of 2 MiB, reserved by the administrator.
    pub const HUGE_2M: u32 = 1 << 15;
    /// The same of 1 GiB.
    pub const HUGE_1G: u32 = 1 << 16;
    /// `mseal`.
    pub const SEALED: u32 = 1 << 17;
    /// All bits that have a meaning.
    pub const ALL: u32 = (1 << 18) - 1;
}

wire_enum! {
    /// What lies behind a region.
    pub enum Backing {
        /// Nothing: zeros.
        Anon = 0 {},
        /// A file.
        File = 1 {
            /// Index in [`State::files`].
            file: u32,
            /// Offset of the region's start in it.
            offset: u64,
        },
        /// A shared segment that is handed over at restore and not part of the image.
        Segment = 2 {
            /// Name of its memfd.
            name: Vec<u8>,
            /// Offset of the region's start in it.
            offset: u64,
        },
        /// A shared object without a path.
        Object = 3 {
            /// Index in [`State::anonymous`].
            object: u32,
            /// Offset of the region's start in it.
            offset: u64,
        },
    }
}

wire_struct! {
    /// One mapping.
    pub struct Region {
        /// First address.
        pub start: u64,
        /// One past the last.
        pub end: u64,
        /// `PROT_*` bits.
        pub prot: u32,
        /// Bits of [`region`].
        pub flags: u32,
        /// What lies behind it.
        pub backing: Backing,
        /// Name given by `PR_SET_VMA_ANON_NAME`, or empty.
        pub name: Vec<u8>,
        /// Protection key.
        pub key: u32,
    }
}

wire_struct! {
    /// A range of guard pages (`MADV_GUARD_INSTALL`).
    pub struct Guard {
        /// First address.
        pub start: u64,
        /// One past the last.
        pub end: u64,
    }
}

wire_struct! {
    /// A mapping that the kernel made (vdso, vvar).
    pub struct Special {
        /// Its name in `/proc/PID/maps`, with brackets.
        pub name: Vec<u8>,
        /// First address.
        pub start: u64,
        /// One past the last.
        pub end: u64,
    }
}

wire_struct! {
    /// Disposition of one signal, as `rt_sigaction` takes it.
    pub struct Action {
        /// Signal number.
        pub signal: u32,
        /// Handler, or `SIG_IGN`.
        pub handler: u64,
        /// `SA_*` flags.
        pub flags: u64,
        /// Return trampoline.
        pub restorer: u64,
        /// Signals blocked while it runs.
        pub mask: u64,
    }
}

wire_struct! {
    /// A pending signal.
    pub struct Pending {
        /// `siginfo_t`.
        pub info: [u64; 16],
    }
}

wire_struct! {
    /// Registration of restartable sequences.
    pub struct Rseq {
        /// Address of the area.
        pub addr: u64,
        /// Its length.
        pub bytes: u32,
        /// Signature before abort handlers.
        pub signature: u32,
    }
}

wire_struct! {
    /// What `PR_SET_MM_MAP` sets.
    pub struct Layout {
        /// Code.
        pub start_code: u64,
        /// End of code.
        pub end_code: u64,
        /// Data.
        pub start_data: u64,
        /// End of data.
        pub end_data: u64,
        /// Heap.
        pub start_brk: u64,
        /// End of the heap.
        pub brk: u64,
        /// Bottom of the stack.
        pub start_stack: u64,
        /// Arguments.
        pub arg_start: u64,
        /// End of arguments.
        pub arg_end: u64,
        /// Environment.
        pub env_start: u64,
        /// End of environment.
        pub env_end: u64,
        /// Auxiliary vector.
        pub auxv: Vec<u8>,
    }
}

wire_struct! {
    /// The kernel's side of a thread.
    pub struct Thread {
        /// Its number.
        pub tid: i32,
        /// Name shown by `ps`.
        pub comm: Vec<u8>,
        /// CPUs that it may run on, as a bit mask.
        pub affinity: Vec<u8>,
        /// When and how it runs.
        pub schedule: Schedule,
        /// `user_regs_struct`.
        pub regs: [u64; 27],
        /// XSAVE area in ptrace's layout.
        pub xstate: Vec<u8>,
        /// Blocked signals.
        pub sigmask: u64,
        /// Alternate stack: address, flags, size.
        pub altstack: [u64; 3],
        /// Robust futex list: head, length.
        pub robust: [u64; 2],
        /// Address that is cleared at exit.
        pub tid_address: u64,
        /// Restartable sequences.
        pub rseq: Option<Rseq>,
        /// Signals pending for it alone, in order.
        pub pending: Vec<Pending>,
    }
}

wire_struct! {
    /// Everything but the content of memory.
    pub struct State {
        /// Process number.
        pub pid: i32,
        /// Its relatives among the processes that are checkpointed together.
        pub tree_node: TreeNode,
        /// Path of the program.
        pub exe: Vec<u8>,
        /// Working folder.
        pub cwd: Vec<u8>,
        /// File mode creation mask.
        pub umask: u32,
        /// `personality`.
        pub personality: u32,
        /// `PR_SET_DUMPABLE`.
        pub dumpable: u32,
        /// `PR_SET_NO_NEW_PRIVS`.
        pub no_new_privs: bool,
        /// `PR_SET_THP_DISABLE`.
        pub thp_disable: bool,
        /// Soft and hard limits by number.
        pub limits: Vec<[u64; 2]>,
        /// Dynamic CPU features that it has permission for.
        pub xcomp_perm: u64,
        /// How the kernel treats it.
        pub attributes: Attributes,
        /// The processor that it ran on.
        pub processor: Processor,
        /// Its threads; the first is the one that it was started with.
        pub threads: Vec<Thread>,
        /// Signals whose disposition is not the default.
        pub actions: Vec<Action>,
        /// Signals pending for the process as a whole, in order.
        pub pending: Vec<Pending>,
        /// `setitimer` timers: interval s, us, value s, us.
        pub timers: [[i64; 4]; 3],
        /// `timer_create` timers in order of number.
        pub posix_timers: Vec<PosixTimer>,
        /// Memory layout as the kernel keeps it.
        pub layout: Layout,
        /// vvar and vdso.
        pub specials: Vec<Special>,
        /// The vdso's bytes.
        pub vdso: Vec<u8>,
        /// Files behind regions.
        pub files: Vec<FileId>,
        /// What tells the content of each of them.
        pub contents: Vec<Fingerprint>,
        /// Shared objects without a path.
        pub anonymous: Vec<AnonymousObject>,
        /// Mappings in order of address.
        pub regions: Vec<Region>,
        /// Guard pages in order of address.
        pub guards: Vec<Guard>,
        /// Open file descriptions.
        pub descriptions: Vec<Description>,
        /// File descriptors in order of number.
        pub descriptors: Vec<Descriptor>,
        /// Where its memory shall come from.
        pub placement: Placement,
        /// Switches that are seldom used.
        pub switches: Switches,
        /// What it saw of its machine's clocks.
        pub clocks: Option<Clocks>,
    }
}

wire_struct! {
    /// A stretch of pages whose content the image stores.
    pub struct Run {
        /// First address.
        pub start: u64,
        /// Pages of 4 KiB.
        pub pages: u64,
    }
}

impl Pending {
    /// Its number.
    pub fn signal(&self) -> u32 {
        (self.info[0] & 0xffff_ffff) as u32
    }
}

impl State {
    /// The thread that the process was started with. Every image has one
    /// ([`crate::check`]).
    pub fn leader(&self) -> &Thread {
        &self.threads[0]
    }

    /// What a description may refer to.
    pub fn around(&self) -> Around<'_> {
        Around { descriptions: self.descriptions.len(), objects: &self.anonymous }
    }

    /// What stands behind the state of an image of an earlier version to make it one of this:
    /// nothing was noted of these fields.
    pub fn what_was_added_since(version: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        if version < 5 {
            Placement::default().put(&mut bytes);
            Switches::default().put(&mut bytes);
        }
        if version < 6 {
            None::<Clocks>.put(&mut bytes);
        }
        bytes
    }
}

/// Largest vdso that is looked into.
pub const MAX_VDSO_BYTES: usize = 1 << 20;
