//! Calling the program's functions (attribute callbacks, user operations) from inside the machine.
//!
//! Such a function may call MPI again while a `&mut Machine` is alive further up the stack. Kept
//! true: the ABI layer finds the machine only through one pointer of its own ("current"), and while
//! a callback runs that pointer is derived from the `&mut Machine` that was lent for it. So the
//! re-entrant call is an ordinary reborrow, and the borrow checker proves that the closure given to
//! `lend` holds nothing of the machine: it takes `Rc` clones out of the tables beforehand. No
//! `RefCell` borrow may be held across `lend`.
//!
//! Error handlers need none of this: an operation returns its error, the shim asks `raise` what to
//! do, drops the machine, and then calls the handler.

use crate::machine::Machine;

/// Makes the pointer the ABI layer's current machine and returns the one before.
pub type SetCurrent = fn(*mut Machine) -> *mut Machine;

/// How the machine tells the ABI layer where it is; unset in tests.
#[derive(Default, Clone, Copy)]
pub struct Reentry {
    hook: Option<SetCurrent>,
}

impl Machine {
    /// Installs the ABI layer's hook (once, at initialisation).
    pub fn set_reentry_hook(&mut self, hook: SetCurrent) {
        self.reentry.hook = Some(hook);
    }

    /// Runs `f`, which calls a function of the program; that one may call MPI on this machine.
    pub fn lend<R>(&mut self, f: impl FnOnce() -> R) -> R {
        let Some(hook) = self.reentry.hook else { return f() };
        let before = hook(self as *mut Machine);
        let result = f();
        hook(before);
        result
    }
}
