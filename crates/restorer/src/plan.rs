//! The plan: a list of system calls that turns the restorer into the process of an image.
//!
//! All decisions are taken by the planner (`eyrie-image`), which has checked the image; the
//! restorer makes the calls one after the other and compares what they return. It never reads the
//! image's own tables. The plan lies in a memfd that planner and restorer share: a [`Header`], then
//! [`Step`]s, then data that the steps' arguments point into. Addresses are absolute: the planner
//! says where the restorer maps the memfd. The memfd is sparse between steps and data.

/// Where the restorer is linked to (`restorer.ld`), the usual start of its area. It works wherever
/// its planner copies it.
pub const RESTORER_BASE: u64 = 0x100_0000_0000;
/// Offset in the restorer's area at which it maps its plan.
pub const PLAN_OFFSET: u64 = 0x1000_0000;
/// Where in the plan the data begins that the steps' arguments point into; steps lie before it. A
/// mapping can take several, and some systems let a process have a quarter of a million.
pub const DATA_OFFSET: u64 = 0x800_0000;
/// Offset in the area at which vvar and vdso wait while the old address space is cleared.
pub const PARK_OFFSET: u64 = 0x3000_0000;
/// Size of the area that the restorer uses; no region of the image may reach into it.
pub const AREA_BYTES: u64 = 0x4000_0000;
/// Largest plan, in bytes.
pub const MAX_PLAN_BYTES: u64 = PARK_OFFSET - PLAN_OFFSET;
/// First field of a plan.
pub const MAGIC: u64 = u64::from_le_bytes(*b"EYRPLAN\x01");

/// Head of the plan.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: u64,
    /// Number of steps; they follow the header at once.
    pub steps: u64,
    /// Written by the restorer: number of steps that succeeded.
    pub done: u64,
    /// Written by the restorer when a step fails: what the call returned.
    pub result: i64,
}

/// What a step's result must be.
pub mod expect {
    /// Anything; failure is tolerated.
    pub const ANY: u32 = 0;
    /// Not an error.
    pub const SUCCESS: u32 = 1;
    /// Exactly `Step::value`.
    pub const VALUE: u32 = 2;
}

/// Step numbers beyond the system calls.
pub mod special {
    /// Uses AMX once, so that the kernel's state buffer of this thread grows to hold it.
    pub const TOUCH_AMX: u32 = 0x8000_0001;
}

/// One step.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the system call, or one of [`special`].
    pub call: u32,
    /// One of [`expect`].
    pub expect: u32,
    /// Its arguments.
    pub args: [u64; 6],
    /// What it must return with [`expect::VALUE`].
    pub value: u64,
}

const _: () = assert!(size_of::<Header>() == 32 && size_of::<Step>() == 64);
