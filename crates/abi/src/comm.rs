//! Communicators (MPI 5.0 sections 7.4 and 7.8).

use std::ffi::{c_char, c_int};

use eyrie_core::consts::COMM_NULL;

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
    fn PMPI_Comm_remote_size (comm: Comm, size: *mut c_int) on comm; |m| {
        put(size, m.comm_remote_size(comm.core())?)?;
    }
    fn PMPI_Comm_remote_group (comm: Comm, group: *mut Group) on comm; |m| {
        put(group, Group::of(m.comm_remote_group(comm.core())?))?;
    }
    fn PMPI_Comm_compare (a: Comm, b: Comm, result: *mut c_int) on a; |m| {
        put(result, comparison_out(m.comm_compare(a.core(), b.core())?))?;
    }
    fn PMPI_Comm_dup (comm: Comm, new: *mut Comm) makes new of comm; |m| {
        m.comm_dup(comm.core())?
    }
    fn PMPI_Comm_dup_with_info (comm: Comm, info: Info, new: *mut Comm) makes new of comm; |m| {
        m.comm_dup_with_info(comm.core(), info.core())?
    }
    fn PMPI_Comm_idup (comm: Comm, new: *mut Comm, request: *mut Request) on comm; |m| {
        put(new, Comm::of(COMM_NULL))?;
        let (made, req) = m.comm_idup(comm.core(), None)?;
        put(new, Comm::of(made))?;
        put(request, Request::of(req))?;
    }
    fn PMPI_Comm_idup_with_info (comm: Comm, info: Info, new: *mut Comm, request: *mut Request)
        on comm; |m| {
        put(new, Comm::of(COMM_NULL))?;
        let (made, req) = m.comm_idup(comm.core(), Some(info.core()))?;
        put(new, Comm::of(made))?;
        put(request, Request::of(req))?;
    }
    fn PMPI_Intercomm_create (local: Comm, local_leader: c_int, peer: Comm, remote_leader: c_int,
                              tag: c_int, new: *mut Comm) makes new of local; |m| {
        let (local_leader, remote_leader) = (rank_in(local_leader), rank_in(remote_leader));
        let (local, peer) = (local.core(), peer.core());
        m.intercomm_create(local, local_leader, peer, remote_leader, tag_in(tag))?
    }
    fn PMPI_Intercomm_merge (comm: Comm, high: c_int, new: *mut Comm) makes new of comm; |m| {
        m.intercomm_merge(comm.core(), high != 0)?
    }
    fn PMPI_Comm_create_from_group (group: Group, name: *const c_char, info: Info, eh: Errhandler,
                                    new: *mut Comm); |m| {
        put(new, Comm::of(COMM_NULL))?;
        let name = bytes(name)?;
        put(new, Comm::of(m.comm_create_from_group(group.core(), name, info.core(), eh.core())?))?;
    }
    fn PMPI_Intercomm_create_from_groups (
        local: Group, local_leader: c_int, remote: Group, remote_leader: c_int,
        name: *const c_char, info: Info, eh: Errhandler, new: *mut Comm); |m| {
        put(new, Comm::of(COMM_NULL))?;
        let local = (local.core(), rank_in(local_leader));
        let remote = (remote.core(), rank_in(remote_leader));
        let name = bytes(name)?;
        let made = m.intercomm_create_from_groups(local, remote, name, info.core(), eh.core())?;
        put(new, Comm::of(made))?;
    }
    fn PMPI_Comm_create (comm: Comm, group: Group, new: *mut Comm) makes new of comm; |m| {
        m.comm_create(comm.core(), group.core())?
    }
    fn PMPI_Comm_create_group (comm: Comm, group: Group, tag: c_int, new: *mut Comm) on comm; |m| {
        put(new, Comm::of(COMM_NULL))?;
        put(new, Comm::of(m.comm_create_group(comm.core(), group.core(), tag_in(tag))?))?;
    }
    fn PMPI_Comm_split (comm: Comm, color: c_int, key: c_int, new: *mut Comm)
        makes new of comm; |m| {
        m.comm_split(comm.core(), color, key)?
    }
    fn PMPI_Comm_split_type (comm: Comm, split_type: c_int, key: c_int, info: Info,
                             new: *mut Comm) makes new of comm; |m| {
        let kind = split_type_in(split_type);
        m.comm_split_type(comm.core(), kind, key, info.core())?
    }
    fn PMPI_Comm_free (comm: *mut Comm) on comm_at(comm); |m| {
        let mut h = get(comm)?.core();
        m.comm_free(&mut h)?;
        put(comm, Comm::of(h))?;
    }
    // Both ends are ranks of one job: nothing but its end is to be agreed on.
    fn PMPI_Comm_disconnect (comm: *mut Comm) on comm_at(comm); |m| {
        let mut h = get(comm)?.core();
        m.comm_disconnect(&mut h)?;
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
