//! Constants of the tool information interface (MPI 5.0 chapter 15). What its functions return are
//! codes of the machine, translated like all others.

use std::ffi::c_int;

use eyrie_core::errcode::FIRST_TOOL_CODE;

use super::code_out;

/// What a function of the interface returns if it fails; no error handler is called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum ToolError {
    NotAccessible = 1,
    NotInitialized = 2,
    Invalid = 5,
    InvalidIndex = 6,
    InvalidSession = 8,
    InvalidHandle = 9,
    InvalidName = 10,
    CvarSetNotNow = 13,
    CvarSetNever = 14,
    PvarNoWrite = 15,
    PvarNoStartStop = 16,
}

impl ToolError {
    pub fn code(self) -> c_int {
        code_out(FIRST_TOOL_CODE + self as c_int)
    }
}

/// For whom a variable is, and how much of it he wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verbosity {
    UserBasic,
    TunerBasic,
    TunerDetail,
}

impl Verbosity {
    pub fn value(self) -> c_int {
        let [user, tuner, detail] = VERBOSITIES;
        match self {
            Verbosity::UserBasic => user,
            Verbosity::TunerBasic => tuner,
            Verbosity::TunerDetail => detail,
        }
    }
}

/// What kind of object a handle is bound to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bind {
    Nothing = 0,
    Comm = 1,
}

impl Bind {
    pub fn value(self) -> c_int {
        FIRST_BIND + self as c_int
    }
}

/// When, and how widely, a control variable may be set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    Constant = 0,
    ReadOnly = 1,
    Local = 2,
}

impl Scope {
    pub fn value(self) -> c_int {
        FIRST_SCOPE + self as c_int
    }
}

/// Classes of performance variables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PvarClass {
    State = 0,
    Level = 1,
    Size = 2,
    Percentage = 3,
    Counter = 6,
    Aggregate = 7,
    Timer = 8,
}

impl PvarClass {
    pub fn value(self) -> c_int {
        FIRST_CLASS + self as c_int
    }
}

#[cfg(not(any(abi_mpich, abi_openmpi)))]
mod values {
    use std::ffi::c_int;

    pub const VERBOSITIES: [c_int; 3] = [0x09, 0x11, 0x12];
    pub const FIRST_BIND: c_int = 1;
    pub const FIRST_SCOPE: c_int = 1;
    pub const FIRST_CLASS: c_int = 1;
    /// `MPI_T_CB_REQUIRE_*`, the least demanding first.
    pub const SAFETIES: [c_int; 4] = [0x00, 0x03, 0x0f, 0x3f];
    pub const SOURCE_ORDERED: c_int = 1;

    /// Whether a handle is `MPI_T_PVAR_ALL_HANDLES`.
    pub fn is_all_handles(handle: usize) -> bool {
        handle == 1
    }
}

#[cfg(abi_mpich)]
mod values {
    use std::ffi::c_int;

    pub const VERBOSITIES: [c_int; 3] = [221, 224, 225];
    pub const FIRST_BIND: c_int = 9700;
    pub const FIRST_SCOPE: c_int = 60438;
    pub const FIRST_CLASS: c_int = 240;
    /// `MPI_T_CB_REQUIRE_*`, the least demanding first.
    pub const SAFETIES: [c_int; 4] = [0, 1, 2, 3];
    pub const SOURCE_ORDERED: c_int = 0;

    /// Whether a handle is `MPI_T_PVAR_ALL_HANDLES`, which programs have from a variable.
    pub fn is_all_handles(handle: usize) -> bool {
        crate::variables::is(&crate::variables::MPI_T_PVAR_ALL_HANDLES, handle as *const c_int)
    }
}

#[cfg(abi_openmpi)]
mod values {
    use std::ffi::c_int;

    pub const VERBOSITIES: [c_int; 3] = [0, 3, 4];
    pub const FIRST_BIND: c_int = 0;
    pub const FIRST_SCOPE: c_int = 0;
    pub const FIRST_CLASS: c_int = 0;
    /// `MPI_T_CB_REQUIRE_*`, the least demanding first.
    pub const SAFETIES: [c_int; 4] = [0, 1, 2, 3];
    pub const SOURCE_ORDERED: c_int = 0;

    /// Whether a handle is `MPI_T_PVAR_ALL_HANDLES`.
    pub fn is_all_handles(handle: usize) -> bool {
        handle == usize::MAX
    }
}

use values::{FIRST_BIND, FIRST_CLASS, FIRST_SCOPE, VERBOSITIES};
pub use values::{SAFETIES, SOURCE_ORDERED, is_all_handles};
