//! Communicators (MPI 5.0 sections 7.4 and 7.8).

use std::ffi::{c_char, c_int};

use eyrie_core::error::class;

use crate::arg::{bytes, get, put, put_text};
use crate::repr::*;
use crate::shim::shims;

shims! {
    fn PMPI_Comm_size (comm: Comm, size: *mut c_int) on comm; |m| {
        put(size, m.comm_size(comm.core())?)?;
    }
    fn PMPI_Comm_rank (comm: Comm, rank: *mut c_int) on comm; |m| {
        put(rank, m.comm_rank(comm.core())?)?;
    }
    fn PMPI_Comm_group (comm: Comm, group: *mut Group) on comm; |m| {
        put(group, Group::of(m.comm_group(comm.core())?))?;
    }
    fn PMPI_Comm_test_inter (comm: Comm, flag: *mut c_int) on comm; |m| {
        put(flag, m.comm_test_inter(comm.core())?.into())?;
    }
    // Every communicator here is an intra-communicator: these have no right argument.
    fn PMPI_Comm_remote_size (comm: Comm, _size: *mut c_int) on comm; |m| {
        m.comm_size(comm.core())?;
        Err(class::COMM)?
    }
    fn PMPI_Comm_remote_group (comm: Comm, _group: *mut Group) on comm; |m| {
        m.comm_size(comm.core())?;
        Err(class::COMM)?
    }
    fn PMPI_Comm_compare (a: Comm, b: Comm, result: *mut c_int) on a; |m| {
        put(result, comparison_out(m.comm_compare(a.core(), b.core())?))?;
    }
    fn PMPI_Comm_dup (comm: Comm, new: *mut Comm) on comm; |m| {
        put(new, Comm::of(m.comm_dup(comm.core())?))?;
    }
    fn PMPI_Comm_dup_with_info (comm: Comm, info: Info, new: *mut Comm) on comm; |m| {
        put(new, Comm::of(m.comm_dup_with_info(comm.core(), info.core())?))?;
    }
    fn PMPI_Comm_create (comm: Comm, group: Group, new: *mut Comm) on comm; |m| {
        put(new, Comm::of(m.comm_create(comm.core(), group.core())?))?;
    }
    fn PMPI_Comm_create_group (comm: Comm, group: Group, tag: c_int, new: *mut Comm) on comm; |m| {
        put(new, Comm::of(m.comm_create_group(comm.core(), group.core(), tag_in(tag))?))?;
    }
    fn PMPI_Comm_split (comm: Comm, color: c_int, key: c_int, new: *mut Comm) on comm; |m| {
        put(new, Comm::of(m.comm_split(comm.core(), color, key)?))?;
    }
    fn PMPI_Comm_split_type (comm: Comm, split_type: c_int, key: c_int, info: Info,
                             new: *mut Comm) on comm; |m| {
        let kind = split_type_in(split_type);
        put(new, Comm::of(m.comm_split_type(comm.core(), kind, key, info.core())?))?;
    }
    fn PMPI_Comm_free (comm: *mut Comm) on comm_at(comm); |m| {
        let mut h = get(comm)?.core();
        m.comm_free(&mut h)?;
        put(comm, Comm::of(h))?;
    }
    fn PMPI_Comm_set_name (comm: Comm, name: *const c_char) on comm; |m| {
        let name = bytes(name)?;
        m.comm_set_name(comm.core(), &name[..name.len().min(MAX_OBJECT_NAME_BYTES - 1)])?;
    }
    fn PMPI_Comm_get_name (comm: Comm, name: *mut c_char, length: *mut c_int) on comm; |m| {
        let text = m.comm_get_name(comm.core())?;
        put(length, put_text(name, MAX_OBJECT_NAME_BYTES, &text)?)?;
    }
    fn PMPI_Comm_set_info (comm: Comm, info: Info) on comm; |m| {
        m.comm_set_info(comm.core(), info.core())?;
    }
    fn PMPI_Comm_get_info (comm: Comm, info: *mut Info) on comm; |m| {
        put(info, Info::of(m.comm_get_info(comm.core())?))?;
    }
}

/// The communicator at an address, for the choice of the error handler.
fn comm_at(at: *const Comm) -> Comm {
    // SAFETY: null or the program's variable, by MPI's contract.
    unsafe { get(at) }.unwrap_or(Comm::of(eyrie_core::consts::COMM_NULL))
}
