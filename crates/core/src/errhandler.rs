//! Error handlers and their choice (MPI 5.0 section 9.3); codes and texts are in `errcode`.
//!
//! Kept true: handles count their users (the program, objects), so that a handler that the program
//! has freed lives on while a communicator has it, under the same handle. A handler is never
//! called from here: `raise` tells the shim what to do once no `&mut Machine` is alive.

use std::rc::Rc;

pub use crate::errcode::{FIRST_DYNAMIC, MAX_ERROR_STRING};

use crate::consts::{
    COMM_SELF, COMM_WORLD, ERRHANDLER_NULL, ERRORS_ABORT, ERRORS_ARE_FATAL, ERRORS_RETURN,
    FILE_NULL,
};
use crate::errcode::Codes;
use crate::error::{Class, Res, class};
use crate::handle::{Handle, Kind, Slab};
use crate::machine::Machine;

/// What kind of object an error handler was created for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrKind {
    Comm,
    Win,
    File,
    Session,
    /// For all of them: that of Open MPI's library for C++.
    Any,
}

/// The program's handler: `(object, error code)`, and the code that the call returns in its place.
pub type ErrFn = Rc<dyn Fn(Handle, i32) -> i32>;

/// What the shim must do with an error, with no `&mut Machine` alive any more.
#[derive(Clone)]
pub enum Action {
    /// Return the code.
    Return,
    /// End the job (ERRORS_ARE_FATAL) or the processes of the communicator (ERRORS_ABORT).
    Abort,
    /// Call it with this object and the code, then return the code that it leaves.
    Call(ErrFn, Handle),
}

pub(crate) struct ErrHandler {
    kind: ErrKind,
    function: ErrFn,
    users: u32,
}

/// All error handlers, and the classes and codes that the program added.
pub struct ErrTable {
    pub(crate) slab: Slab<ErrHandler>,
    pub(crate) codes: Codes,
}

impl Default for ErrTable {
    fn default() -> Self {
        Self::new()
    }
}

fn is_predefined(eh: Handle) -> bool {
    [ERRORS_ARE_FATAL, ERRORS_ABORT, ERRORS_RETURN].contains(&eh)
}

impl ErrTable {
    pub fn new() -> Self {
        ErrTable { slab: Slab::new(Kind::Errhandler), codes: Codes::new() }
    }

    /// One more user of `eh`, which must exist.
    pub(crate) fn acquire(&mut self, eh: Handle) -> Res<()> {
        if !is_predefined(eh) {
            self.slab.get_mut(eh).ok_or(class::ERRHANDLER)?.users += 1;
        }
        Ok(())
    }

    /// One user less; the last one takes it away.
    pub(crate) fn release(&mut self, eh: Handle) {
        let Some(handler) = self.slab.get_mut(eh) else { return };
        handler.users -= 1;
        if handler.users == 0 {
            self.slab.remove(eh);
        }
    }
}

impl Machine {
    pub fn errhandler_create(&mut self, kind: ErrKind, f: ErrFn) -> Res<Handle> {
        self.errhandlers.slab.insert(ErrHandler { kind, function: f, users: 1 })
    }

    /// Sets `eh` to `ERRHANDLER_NULL`. Predefined ones, which get_errhandler returns too, live on.
    pub fn errhandler_free(&mut self, eh: &mut Handle) -> Res<()> {
        if !is_predefined(*eh) {
            self.errhandlers.slab.get(*eh).ok_or(class::ERRHANDLER)?;
            self.errhandlers.release(*eh);
        }
        *eh = ERRHANDLER_NULL;
        Ok(())
    }

    /// Whether `eh` may be set on objects of `kind`.
    pub fn errhandler_check(&self, kind: ErrKind, eh: Handle) -> Res<()> {
        let is_of = |h: &ErrHandler| h.kind == kind || h.kind == ErrKind::Any;
        let fits = is_predefined(eh) || self.errhandlers.slab.get(eh).is_some_and(is_of);
        if fits { Ok(()) } else { Err(class::ERRHANDLER) }
    }

    pub fn comm_set_errhandler(&mut self, comm: Handle, eh: Handle) -> Res<()> {
        let comm = self.comms.get(comm)?;
        self.errhandler_check(ErrKind::Comm, eh)?;
        self.errhandlers.acquire(eh)?;
        let before = comm.errhandler.replace(eh);
        self.errhandlers.release(before);
        Ok(())
    }

    /// The program has to free the handle.
    pub fn comm_get_errhandler(&mut self, comm: Handle) -> Res<Handle> {
        let eh = self.comms.get(comm)?.errhandler.get();
        self.errhandlers.acquire(eh)?;
        Ok(eh)
    }

    /// What to do about an error in an operation on `comm`. One on no valid communicator goes to
    /// the handler of COMM_SELF (MPI 5.0 section 9.3); if that is fatal, to COMM_WORLD's, where it
    /// went before MPI 4 and goes in MPICH. Files have their own.
    pub fn raise(&self, comm: Handle, _code: Class) -> Action {
        if comm == FILE_NULL || comm.has_kind(Kind::File) {
            return self.file_action(comm);
        }
        if let (true, Ok(window)) = (comm.has_kind(Kind::Win), self.windows.get(comm)) {
            return self.errhandler_action(window.errhandler.get(), comm);
        }
        if let (true, Ok(session)) = (comm.has_kind(Kind::Session), self.sessions.get(comm)) {
            return self.errhandler_action(session.errhandler, comm);
        }
        let (handle, eh) = match self.comms.get(comm) {
            Ok(found) => (comm, found.errhandler.get()),
            Err(_) => {
                let of = |h| self.comms.get(h).map_or(ERRORS_ARE_FATAL, |c| c.errhandler.get());
                match of(COMM_SELF) {
                    ERRORS_ARE_FATAL => (COMM_WORLD, of(COMM_WORLD)),
                    own => (COMM_SELF, own),
                }
            }
        };
        if eh == ERRORS_RETURN {
            return Action::Return;
        }
        match self.errhandlers.slab.get(eh) {
            Some(handler) => Action::Call(handler.function.clone(), handle),
            None => Action::Abort,
        }
    }

    /// Handler function behind a handle (for objects that keep their own: files, windows).
    pub fn errhandler_action(&self, eh: Handle, object: Handle) -> Action {
        match self.errhandlers.slab.get(eh) {
            Some(handler) => Action::Call(handler.function.clone(), object),
            None if eh == ERRORS_RETURN => Action::Return,
            None => Action::Abort,
        }
    }
}
