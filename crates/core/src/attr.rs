//! Attribute caching (MPI 5.0 section 7.7) on communicators, datatypes and windows.

use std::rc::Rc;

use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;

/// What a keyval may be used on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AttrKind { Comm, Type, Win }

/// `(old object, keyval, value)` -> the value for the new object, `None` (flag false) or an error
/// code. The extra state and the calling convention are the closure's affair.
pub type CopyFn = Rc<dyn Fn(Handle, i32, usize) -> Result<Option<usize>, i32>>;
/// `(object, keyval, value)` -> error code, 0 for success.
pub type DeleteFn = Rc<dyn Fn(Handle, i32, usize) -> i32>;

/// What a duplication does with an attribute.
#[derive(Clone)]
pub enum CopyRule {
    /// `MPI_*_NULL_COPY_FN`
    Null,
    /// `MPI_*_DUP_FN`
    Dup,
    Call(CopyFn),
}

pub const KEYVAL_INVALID: i32 = 0;
pub const TAG_UB: i32 = 501;
pub const IO: i32 = 502;
pub const HOST: i32 = 503;
pub const WTIME_IS_GLOBAL: i32 = 504;
pub const APPNUM: i32 = 505;
pub const LASTUSEDCODE: i32 = 506;
pub const UNIVERSE_SIZE: i32 = 507;

#[allow(unused_variables)]
impl Machine {
    /// `delete` `None` is `MPI_*_NULL_DELETE_FN`.
    pub fn keyval_create(&mut self, kind: AttrKind, copy: CopyRule, delete: Option<DeleteFn>) -> Res<i32> { todo!() }
    /// Sets `keyval` to `KEYVAL_INVALID`; the functions live on while an attribute uses them.
    pub fn keyval_free(&mut self, kind: AttrKind, keyval: &mut i32) -> Res<()> { todo!() }
    /// Errors other than classes are the codes of the program's callbacks (also below).
    pub fn attr_set(&mut self, kind: AttrKind, object: Handle, keyval: i32, value: usize) -> Res<()> { todo!() }
    /// For predefined attributes the value is the address of a C `int`.
    pub fn attr_get(&self, kind: AttrKind, object: Handle, keyval: i32) -> Res<Option<usize>> { todo!() }
    /// Value of a predefined attribute of COMM_WORLD as a number (for Fortran).
    pub fn attr_predefined(&self, keyval: i32) -> Option<i32> { todo!() }
    pub fn attr_delete(&mut self, kind: AttrKind, object: Handle, keyval: i32) -> Res<()> { todo!() }
    /// Copies by the copy functions; comm_dup does it itself, Type_dup calls it after `types`.
    pub fn attr_copy_all(&mut self, kind: AttrKind, from: Handle, to: Handle) -> Res<()> { todo!() }
    /// Runs the delete functions, last set first; comm_free does it itself, Type_free calls it
    /// before the type goes, MPI_Finalize calls it with (Comm, COMM_SELF) before anything else.
    pub fn attr_delete_all(&mut self, kind: AttrKind, object: Handle) -> Res<()> { todo!() }
}
