//! The form of an exported function: find the machine, do the work, give errors to their handler.

use std::ffi::c_int;

use eyrie_core::errhandler::Action;
use eyrie_core::error::Class;
use eyrie_core::handle::Handle;

use crate::check::{self, Argument};
use crate::repr::code_out;
use crate::threads::Inside;

/// An error and the object whose handler it goes to.
#[derive(Clone, Copy)]
pub struct Fail {
    pub class: Class,
    /// A communicator; `Handle(0)`: the function's default.
    pub on: Handle,
}

pub type Outcome = Result<(), Fail>;

impl From<Class> for Fail {
    fn from(class: Class) -> Fail {
        Fail { class, on: Handle(0) }
    }
}

impl Fail {
    pub fn on(on: Handle) -> impl Fn(Class) -> Fail {
        move |class| Fail { class, on }
    }
}

/// Defines exported functions that return an error code.
///
/// `fn PMPI_X | PMPI_X_c (args) on COMM; |m| { body }`: the body may use `?` on errors of the
/// machine; they go to the error handler of COMM, by default that for no communicator
/// (`Machine::raise`).
/// `all of COMM` instead: it is a collective call on it, whose errors may have to be the same on
/// all members (`Machine::all_alike`).
/// `makes NEW of COMM`: it puts a communicator there, which its body gives, and is collective on
/// COMM alike.
/// With a second name the function is made twice, with `Count` and `Disp` meaning `int` in the
/// first and `MPI_Count` and `MPI_Aint` in the second.
macro_rules! shims {
    () => {};
    (fn $name:ident $(| $large:ident)? ($($a:ident: $t:ty),* $(,)?) all of $comm:expr;
     |$m:ident| $body:block $($rest:tt)*) => {
        $crate::shim::shims! {
            fn $name $(| $large)? ($($a: $t),*) on $comm; |$m| {
                let done = (|| -> $crate::shim::Outcome { $body; Ok(()) })();
                $m.all_alike($crate::repr::CHandle::core($comm), done)?;
            }
            $($rest)*
        }
    };
    (fn $name:ident ($($a:ident: $t:ty),* $(,)?) makes $new:ident of $comm:expr;
     |$m:ident| $body:block $($rest:tt)*) => {
        $crate::shim::shims! {
            fn $name ($($a: $t),*) on $comm; |$m| {
                $crate::arg::put($new, Comm::of(eyrie_core::consts::COMM_NULL))?;
                let made = (|| -> Result<eyrie_core::handle::Handle, $crate::shim::Fail> {
                    Ok($body)
                })();
                let made = $m.all_alike_made($crate::repr::CHandle::core($comm), made)?;
                $crate::arg::put($new, Comm::of(made))?;
            }
            $($rest)*
        }
    };
    (fn $name:ident | $large:ident ($($a:ident: $t:ty),* $(,)?) $(on $on:expr)?;
     |$m:ident| $body:block $($rest:tt)*) => {
        $crate::shim::shim!(
            $name, std::ffi::c_int, std::ffi::c_int, ($($a: $t),*), ($($on)?), $m, $body);
        $crate::shim::shim!(
            $large, $crate::repr::LargeCount, $crate::repr::Aint, ($($a: $t),*), ($($on)?), $m,
            $body);
        $crate::shim::shims!($($rest)*);
    };
    (fn $name:ident ($($a:ident: $t:ty),* $(,)?) $(on $on:expr)?;
     |$m:ident| $body:block $($rest:tt)*) => {
        $crate::shim::shim!(
            $name, std::ffi::c_int, std::ffi::c_int, ($($a: $t),*), ($($on)?), $m, $body);
        $crate::shim::shims!($($rest)*);
    };
}

macro_rules! shim {
    ($name:ident, $count:ty, $disp:ty, ($($a:ident: $t:ty),*), ($($on:expr)?), $m:ident,
     $body:block) => {
        pub(crate) mod $name {
            #[allow(unused_imports)]
            use super::*;

            #[allow(dead_code)]
            type Count = $count;
            #[allow(dead_code)]
            type Disp = $disp;
            /// Whether this is the large-count form.
            #[allow(dead_code)]
            const LARGE: bool = size_of::<$count>() == 8;

            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($a: $t),*) -> std::ffi::c_int {
                #[allow(unused_variables)]
                let inside = $crate::threads::Inside::enter();
                let $m = $crate::global::machine(stringify!($name));
                // What the call was given, for whoever has to tell it.
                let arguments = || -> Vec<$crate::check::Argument> {
                    #[allow(unused_imports)]
                    use $crate::check::{Arg, Argument, ToldAnyway as _, ToldBy as _};
                    vec![$(Argument { name: stringify!($a), told: (&Arg(&$a)).told() }),*]
                };
                $m.enter();
                $m.called(stringify!($name));
                if $crate::check::is_full() {
                    $crate::check::called($m, stringify!($name), &arguments());
                }
                // SAFETY: the program keeps to MPI's contract for the arguments (what can be
                // checked is checked), and to its thread level.
                #[allow(unused_unsafe, clippy::redundant_closure_call)]
                let outcome = (|| -> $crate::shim::Outcome { unsafe { $body }; Ok(()) })();
                $m.leave();
                drop(inside);
                $crate::tools::after_call();
                match outcome {
                    Ok(()) => 0,
                    Err(fail) => {
                        #[allow(unused_mut, unused_assignments)]
                        let mut default = eyrie_core::handle::Handle(0);
                        $(default = $crate::repr::CHandle::core($on);)?
                        $crate::shim::fail(stringify!($name), fail, default, &arguments())
                    }
                }
            }
        }
    };
}

pub(crate) use {shim, shims};

/// Gives an error to its handler; returns the code for the program.
///
/// It looks the machine up itself instead of taking it as an argument, so that nothing borrows the
/// machine while the program's handler runs and calls MPI.
#[cold]
pub fn fail(name: &'static str, fail: Fail, default: Handle, arguments: &[Argument]) -> c_int {
    let on = if fail.on == Handle(0) { default } else { fail.on };
    let inside = Inside::enter();
    let told = check::told_of(name, fail.class, on, arguments);
    let action = crate::global::machine(name).raise(on, fail.class);
    drop(inside);
    match action {
        Action::Return => {}
        // It is given the code that the call returns, and may change it.
        Action::Call(f, object) => return code_out(f(object, fail.class.0)),
        Action::Abort => crate::global::fatal(name, fail.class.0, &told),
    }
    code_out(fail.class.0)
}
