//! Files (MPI 5.0 chapter 14).
//!
//! `open` opens, closes and deletes, `size` asks for sizes and sets them, `view` says which bytes a
//! rank sees, `access` reads and writes them, at the offset that `shared` gives where the file
//! pointer (`pointer`) is shared, `datarep`, `shape` and `convert` know how data is written there,
//! `disk` has the system calls, `past` what becomes of all that when a rank repeats itself. A file
//! has a communicator of its own for what its ranks agree on (`agree`). Kept true, for images: what
//! goes to or comes from the disk is done within the call, and before anything is waited for.

mod access;
mod agree;
mod convert;
mod datarep;
#[cfg(test)]
mod datarep_tests;
mod disk;
mod open;
mod past;
mod pointer;
mod shape;
mod shared;
#[cfg(test)]
mod shared_tests;
pub(crate) use past::mark;
mod size;
#[cfg(test)]
mod tests;
mod view;

pub use access::Split;
pub use datarep::{Convert, Datarep, Extent};
pub use view::DISPLACEMENT_CURRENT;

use std::rc::Rc;

use crate::comm::Comm;
use crate::consts::{ERRORS_RETURN, FILE_NULL};
use crate::errhandler::{Action, ErrKind};
use crate::error::{Res, class};
use crate::handle::{Handle, Kind, Slab};
use crate::info::Info;
use crate::machine::Machine;
use crate::status::Status;
use disk::Place;
use pointer::Pointer;
use view::View;

pub const MODE_APPEND: i32 = 1;
pub const MODE_CREATE: i32 = 2;
pub const MODE_DELETE_ON_CLOSE: i32 = 4;
pub const MODE_EXCL: i32 = 8;
pub const MODE_RDONLY: i32 = 16;
pub const MODE_RDWR: i32 = 32;
pub const MODE_SEQUENTIAL: i32 = 64;
pub const MODE_UNIQUE_OPEN: i32 = 128;
pub const MODE_WRONLY: i32 = 256;
const MODES: i32 = 511;

pub const SEEK_CUR: i32 = 401;
pub const SEEK_END: i32 = 402;
pub const SEEK_SET: i32 = 403;

/// The hints that the standard defines, and one of ours: kept for the program, which may ask for
/// them.
const HINTS: [&[u8]; 16] = [
    b"access_style",
    b"collective_buffering",
    b"cb_block_size",
    b"cb_buffer_size",
    b"cb_nodes",
    b"chunked",
    b"chunked_item",
    b"chunked_size",
    b"filename",
    b"file_perm",
    b"io_node_list",
    b"nb_proc",
    b"num_io_nodes",
    b"striping_factor",
    b"striping_unit",
    pointer::HINT,
];

/// One open file.
pub struct File {
    /// A communicator of the file's own.
    comm: Handle,
    ranks: Rc<Comm>,
    place: Rc<Place>,
    amode: i32,
    /// The machine on which it was opened.
    machine: u64,
    view: Rc<View>,
    /// The individual file pointer, in etypes.
    position: i64,
    /// The shared file pointer, unless the file has none.
    pointer: Option<Pointer>,
    atomic: bool,
    hints: Info,
    errhandler: Handle,
    /// A split collective that has begun, and what came of it.
    split: Option<(Split, Status)>,
}

impl File {
    fn take_hints(&mut self, info: Option<&Info>) {
        let Some(info) = info else { return };
        for key in HINTS {
            if let Some(value) = info.get(key) {
                self.hints.set(key, value);
            }
        }
    }

    /// Only shared file pointers are for files that are opened so.
    fn not_sequential(&self) -> Res<&File> {
        let sequential = self.amode & MODE_SEQUENTIAL != 0;
        if sequential { Err(class::UNSUPPORTED_OPERATION) } else { Ok(self) }
    }

    fn readable(&self) -> Res<&File> {
        if self.amode & MODE_WRONLY == 0 { Ok(self) } else { Err(class::ACCESS) }
    }

    fn writable(&self) -> Res<&File> {
        if self.amode & MODE_RDONLY == 0 { Ok(self) } else { Err(class::READ_ONLY) }
    }

    /// No split collective has begun.
    fn is_idle(&self) -> Res<()> {
        if self.split.is_none() { Ok(()) } else { Err(class::IO) }
    }
}

/// All open files of this rank.
pub struct FileTable {
    pub(crate) slab: Slab<File>,
    /// Files whose shared pointers this rank keeps for others, by the context of what they ask.
    kept: Vec<(u32, Handle)>,
    /// Representations of data that the program has registered.
    datareps: Vec<Rc<Datarep>>,
    /// For what belongs to no file, and for files that are opened.
    errhandler: Handle,
}

impl Default for FileTable {
    fn default() -> Self {
        Self::new()
    }
}

impl FileTable {
    pub fn new() -> Self {
        let (kept, datareps) = (Vec::new(), Vec::new());
        FileTable { slab: Slab::new(Kind::File), kept, datareps, errhandler: ERRORS_RETURN }
    }

    /// A communicator of the file's own.
    pub(crate) fn communicator(&self, fh: Handle) -> Res<Handle> {
        self.get(fh).map(|file| file.comm)
    }

    fn get(&self, fh: Handle) -> Res<&File> {
        self.slab.get(fh).ok_or(class::FILE)
    }
}

impl Machine {
    /// A new handle of the group of those who opened it.
    pub fn file_group(&mut self, fh: Handle) -> Res<Handle> {
        let group = self.files.get(fh)?.ranks.group.clone();
        self.groups.insert(group)
    }

    pub fn file_amode(&self, fh: Handle) -> Res<i32> {
        Ok(self.files.get(fh)?.amode)
    }

    pub fn file_set_info(&mut self, fh: Handle, info: Handle) -> Res<()> {
        let comm = self.files.get(fh)?.comm;
        let known = self.infos.get(info).map(drop);
        self.file_agree(comm, 0, known)?;
        let info = self.infos.get(info)?;
        self.files.slab.get_mut(fh).ok_or(class::FILE)?.take_hints(Some(info));
        Ok(())
    }

    pub fn file_get_info(&mut self, fh: Handle) -> Res<Handle> {
        let hints = self.files.get(fh)?.hints.clone();
        self.infos.insert(hints)
    }

    pub fn file_set_atomicity(&mut self, fh: Handle, atomic: bool) -> Res<()> {
        let comm = self.files.get(fh)?.comm;
        self.file_agree(comm, atomic.into(), Ok(()))?;
        self.files.slab.get_mut(fh).ok_or(class::FILE)?.atomic = atomic;
        Ok(())
    }

    pub fn file_atomicity(&self, fh: Handle) -> Res<bool> {
        Ok(self.files.get(fh)?.atomic)
    }

    /// With `FILE_NULL`: of what belongs to no file, and of files that are opened later.
    pub fn file_set_errhandler(&mut self, fh: Handle, eh: Handle) -> Res<()> {
        self.errhandler_check(ErrKind::File, eh)?;
        let of = match fh {
            FILE_NULL => &mut self.files.errhandler,
            _ => &mut self.files.slab.get_mut(fh).ok_or(class::FILE)?.errhandler,
        };
        self.errhandlers.acquire(eh)?;
        let before = std::mem::replace(of, eh);
        self.errhandlers.release(before);
        Ok(())
    }

    /// The program has to free the handle.
    pub fn file_get_errhandler(&mut self, fh: Handle) -> Res<Handle> {
        let eh = match fh {
            FILE_NULL => self.files.errhandler,
            _ => self.files.get(fh)?.errhandler,
        };
        self.errhandlers.acquire(eh)?;
        Ok(eh)
    }

    /// What to do about an error in an operation on a file; one on no valid file, or that belongs
    /// to none, goes to the handler of `FILE_NULL`.
    pub(crate) fn file_action(&self, fh: Handle) -> Action {
        match self.files.get(fh) {
            Ok(file) => self.errhandler_action(file.errhandler, fh),
            Err(_) => self.errhandler_action(self.files.errhandler, FILE_NULL),
        }
    }
}
