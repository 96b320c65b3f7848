//! The arguments of a call, as far as they can be told.

use std::ffi::c_int;

use eyrie_core::handle::Handle;

use crate::repr::CHandle;

/// An argument by the name that it has here, and its value.
#[derive(Clone, Copy)]
pub struct Argument {
    pub name: &'static str,
    pub told: Told,
}

/// A value of an argument.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Told {
    Number(i64),
    /// The machine's handle, and the bits that the program gave.
    Handle(Handle, u64),
    Address(usize),
    /// A function, or what else has no value that says something.
    Other,
}

/// An argument whose type says how it is told: `(&Arg(&x)).told()` finds `ToldBy` where there is
/// such an implementation, and else `ToldAnyway`.
pub struct Arg<'a, T>(pub &'a T);

pub trait ToldBy {
    fn told(&self) -> Told;
}

pub trait ToldAnyway {
    fn told(&self) -> Told;
}

impl ToldBy for Arg<'_, c_int> {
    fn told(&self) -> Told {
        Told::Number((*self.0).into())
    }
}

impl ToldBy for Arg<'_, i64> {
    fn told(&self) -> Told {
        Told::Number(*self.0)
    }
}

impl ToldBy for Arg<'_, isize> {
    fn told(&self) -> Told {
        Told::Number(*self.0 as i64)
    }
}

impl<T> ToldBy for Arg<'_, *const T> {
    fn told(&self) -> Told {
        Told::Address(self.0.addr())
    }
}

impl<T> ToldBy for Arg<'_, *mut T> {
    fn told(&self) -> Told {
        Told::Address(self.0.addr())
    }
}

impl<H: CHandle> ToldBy for Arg<'_, H> {
    fn told(&self) -> Told {
        Told::Handle(self.0.core(), self.0.bits())
    }
}

impl<T> ToldAnyway for &Arg<'_, T> {
    fn told(&self) -> Told {
        Told::Other
    }
}
