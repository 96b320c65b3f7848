//! The variables of the library that headers declare: addresses that stand for something, as
//! `MPI_F_STATUS_IGNORE` and MPICH's `MPI_UNWEIGHTED` do.
//!
//! Kept true: each holds an address of its own; what it points to is never read.

#[cfg(abi_mpich)]
use std::ffi::c_int;
#[cfg(abi_mpich)]
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicPtr, AtomicU64};

/// Things to point at; nobody reads them.
static IGNORED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];

macro_rules! variables {
    ($($name:ident = $at:literal;)*) => {$(
        /// An address that a program may hold and compare; what it points to is never read.
        #[unsafe(no_mangle)]
        pub static $name: AtomicPtr<AtomicU64> =
            AtomicPtr::new((&raw const IGNORED[$at]).cast_mut());
    )*};
}

// `libeyrie_fortran.so` writes its own addresses into these, so that they are those of Fortran.
variables! {
    MPI_F_STATUS_IGNORE = 0;
    MPI_F_STATUSES_IGNORE = 1;
    MPI_F08_STATUS_IGNORE = 2;
    MPI_F08_STATUSES_IGNORE = 3;
}

#[cfg(abi_mpich)]
variables! {
    MPI_UNWEIGHTED = 4;
    MPI_WEIGHTS_EMPTY = 5;
    MPI_T_PVAR_ALL_HANDLES = 6;
}

/// Whether a program's argument is the address that such a variable holds.
#[cfg(abi_mpich)]
pub fn is(variable: &AtomicPtr<AtomicU64>, at: *const c_int) -> bool {
    variable.load(Relaxed).cast_const().cast() == at
}
