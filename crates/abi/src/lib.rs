//! The C surface of MPI: entry points, and nothing that belongs in the machine.
//!
//! One source makes three libraries: `eyrie-abi` speaks the standard ABI of MPI 5.0; the same files
//! are `eyrie-abi-mpich` with `cfg(abi_mpich)`, `eyrie-abi-openmpi` with `cfg(abi_openmpi)`. All
//! that differs is in `repr`; one file here is one chapter of the standard.
//!
//! Kept true: a function named `PMPI_X` here is exported as `PMPI_X` and, by a jump that
//! `scripts/link-abi` writes, as `MPI_X`. No panic leaves this crate: panics abort.

#![allow(unsafe_code)] // C callers hand over raw pointers
// The C names are the interface.
#![allow(non_snake_case)]
// The contract of every exported function is the MPI standard's.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

mod arg;
mod check;
mod global;
mod hosts;
mod repr;
mod shim;

mod attr;
mod begun;
mod buffer;
mod collective;
mod comm;
mod complete;
mod convert;
#[cfg(abi_openmpi)]
mod cxx;
mod datarep;
mod datatype;
mod datatype_decode;
mod deprecated;
mod dynamic;
mod env;
mod errhandler;
mod file;
mod generalized;
mod graph;
mod group;
mod info;
mod launched;
mod libc_calls;
mod loaded;
mod neighbour;
mod op;
mod p2p;
mod pack;
mod partitioned;
mod probe;
mod rma;
mod session;
mod spawn;
mod threads;
mod tools;
mod topology;
mod ulfm;
mod variables;
