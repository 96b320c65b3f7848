//! The C surface of MPI: entry points, and nothing that belongs in the machine.
//!
//! One source makes two libraries: `eyrie-abi` speaks the standard ABI of MPI 5.0,
//! `eyrie-abi-mpich` (the same files, with `cfg(abi_mpich)`) speaks MPICH's. All that differs is in
//! `repr`; one file here is one chapter of the standard.
//!
//! Kept true: a function named `PMPI_X` here is exported as `PMPI_X` and, by a jump that
//! `scripts/link-abi` writes, as `MPI_X`; names without a function here are exported too and raise
//! `MPI_ERR_UNSUPPORTED_OPERATION` (`unsupported`). No panic leaves this crate: panics abort.

// The C names are the interface.
#![allow(non_snake_case)]
// The contract of every exported function is the MPI standard's.
#![allow(clippy::missing_safety_doc, clippy::too_many_arguments)]

mod arg;
mod global;
mod repr;
mod shim;

mod attr;
mod begun;
mod collective;
mod comm;
mod complete;
mod convert;
mod datatype;
mod datatype_decode;
mod deprecated;
mod env;
mod errhandler;
mod file;
mod graph;
mod group;
mod info;
mod libc_calls;
mod neighbour;
mod op;
mod p2p;
mod pack;
mod probe;
mod topology;
mod unsupported;
