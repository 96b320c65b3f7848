//! Constants of MPI, by their values in the MPI-5 standard ABI; other ABIs translate at the door.

use crate::handle::Handle;

pub const ANY_SOURCE: i32 = -1;
pub const ANY_TAG: i32 = -2;
pub const PROC_NULL: i32 = -3;
pub const ROOT: i32 = -4;
pub const UNDEFINED: i32 = -32766;
/// Largest tag a program may use (attribute `MPI_TAG_UB`).
pub const TAG_UB: i32 = i32::MAX;

pub const COMM_NULL: Handle = Handle(0x100);
pub const COMM_WORLD: Handle = Handle(0x101);
pub const COMM_SELF: Handle = Handle(0x102);
pub const GROUP_NULL: Handle = Handle(0x108);
pub const GROUP_EMPTY: Handle = Handle(0x109);
pub const WIN_NULL: Handle = Handle(0x110);
pub const FILE_NULL: Handle = Handle(0x118);
pub const SESSION_NULL: Handle = Handle(0x120);
pub const MESSAGE_NULL: Handle = Handle(0x128);
pub const MESSAGE_NO_PROC: Handle = Handle(0x129);
pub const INFO_NULL: Handle = Handle(0x130);
pub const INFO_ENV: Handle = Handle(0x131);
pub const ERRHANDLER_NULL: Handle = Handle(0x140);
pub const ERRORS_ARE_FATAL: Handle = Handle(0x141);
pub const ERRORS_ABORT: Handle = Handle(0x142);
pub const ERRORS_RETURN: Handle = Handle(0x143);
pub const REQUEST_NULL: Handle = Handle(0x180);
pub const OP_NULL: Handle = Handle(0x20);
pub const DATATYPE_NULL: Handle = Handle(0x200);

pub const IDENT: i32 = 201;
pub const CONGRUENT: i32 = 202;
pub const SIMILAR: i32 = 203;
pub const UNEQUAL: i32 = 204;

pub const THREAD_SINGLE: i32 = 0;
pub const THREAD_FUNNELED: i32 = 1024;
pub const THREAD_SERIALIZED: i32 = 2048;
pub const THREAD_MULTIPLE: i32 = 4096;

/// `MPI_IN_PLACE` of the standard ABI.
pub const IN_PLACE: usize = 1;

/// The process set of ranks that take the place of lost ones.
pub const SPARES: &[u8] = b"mpi://spares";
