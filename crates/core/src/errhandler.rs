//! Error handlers, classes, codes and texts (MPI 5.0 chapter 9).

use std::rc::Rc;

use crate::error::{Class, Res};
use crate::handle::Handle;
use crate::machine::Machine;

/// What kind of object an error handler was created for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrKind { Comm, Win, File, Session }

/// The program's handler: `(object, error code)`.
pub type ErrFn = Rc<dyn Fn(Handle, i32)>;

/// What the shim must do with an error, with no `&mut Machine` alive any more.
#[derive(Clone)]
pub enum Action {
    /// Return the code.
    Return,
    /// End the job (ERRORS_ARE_FATAL) or the processes of the communicator (ERRORS_ABORT).
    Abort,
    /// Call it with this object and the code, then return the code.
    Call(ErrFn, Handle),
}

#[allow(unused_variables)]
impl Machine {
    pub fn errhandler_create(&mut self, kind: ErrKind, f: ErrFn) -> Res<Handle> { todo!() }
    pub fn errhandler_free(&mut self, eh: &mut Handle) -> Res<()> { todo!() }
    pub fn comm_set_errhandler(&mut self, comm: Handle, eh: Handle) -> Res<()> { todo!() }
    pub fn comm_get_errhandler(&mut self, comm: Handle) -> Res<Handle> { todo!() }
    /// Handler for an error in an operation on `comm`; one on no valid communicator goes to
    /// COMM_SELF's.
    pub fn raise(&self, comm: Handle, code: Class) -> Action { todo!() }

    pub fn add_error_class(&mut self) -> Res<i32> { todo!() }
    pub fn add_error_code(&mut self, class: i32) -> Res<i32> { todo!() }
    pub fn add_error_string(&mut self, code: i32, text: &[u8]) -> Res<()> { todo!() }
    pub fn remove_error_class(&mut self, class: i32) -> Res<()> { todo!() }
    pub fn remove_error_code(&mut self, code: i32) -> Res<()> { todo!() }
    pub fn remove_error_string(&mut self, code: i32) -> Res<()> { todo!() }
    pub fn error_class(&self, code: i32) -> Res<i32> { todo!() }
    /// At most MAX_ERROR_STRING - 1 bytes.
    pub fn error_string(&self, code: i32) -> Res<&[u8]> { todo!() }
}
