//! Representations of data in files (MPI 5.0 sections 14.5.1 to 14.5.3): those of the standard, and
//! those that the program registers.
//!
//! `native` and `internal` are memory's. All others have elements of sizes of their own, and with
//! them views (`shape`); the data itself goes through `convert`.

use std::rc::Rc;

use crate::error::Res;
use crate::handle::Handle;

/// The program's function: between so many elements of a datatype in the program's memory, and
/// their bytes in the file.
pub type Convert = Box<dyn Fn(*mut u8, Handle, i64, *mut u8) -> Res<()>>;
/// The program's function: bytes of a predefined datatype in the file.
pub type Extent = Box<dyn Fn(Handle) -> Res<i64>>;

/// A representation that the program has registered.
pub struct Datarep {
    pub name: Vec<u8>,
    /// Without one, data is as in memory.
    pub read: Option<Convert>,
    pub write: Option<Convert>,
    pub extent: Extent,
}

/// How a view's data is written in the file.
#[derive(Clone)]
pub(super) enum Rep {
    Native,
    Internal,
    External32,
    Registered(Rc<Datarep>),
}

impl Rep {
    pub(super) fn name(&self) -> &[u8] {
        match self {
            Rep::Native => b"native",
            Rep::Internal => b"internal",
            Rep::External32 => b"external32",
            Rep::Registered(rep) => &rep.name,
        }
    }

    /// Whether it is another one than memory's.
    pub(super) fn converts(&self) -> bool {
        !matches!(self, Rep::Native | Rep::Internal)
    }
}
