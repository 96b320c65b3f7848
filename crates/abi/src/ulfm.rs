//! Failures that the program handles itself: user-level failure mitigation (MPI after 5.0,
//! mpi-issues 581, 582, 583 and 1119). `scripts/link-abi` exports each function as MPIX_*, too.

use std::ffi::c_int;

use eyrie_core::error::class;

use crate::arg::put;
use crate::repr::*;
use crate::shim::shims;

shims! {
    fn PMPI_Comm_revoke (comm: Comm) on comm; |m| {
        m.comm_revoke(comm.core())?;
    }
    fn PMPI_Comm_is_revoked (comm: Comm, flag: *mut c_int) on comm; |m| {
        put(flag, m.comm_is_revoked(comm.core())?.into())?;
    }
    fn PMPI_Comm_get_failed (comm: Comm, group: *mut Group) on comm; |m| {
        put(group, Group::of(m.comm_get_failed(comm.core())?))?;
    }
    fn PMPI_Comm_ack_failed (comm: Comm, count: c_int, acked: *mut c_int) on comm; |m| {
        put(acked, m.comm_ack_failed(comm.core(), count)?)?;
    }
    fn PMPI_Comm_failure_ack (comm: Comm) on comm; |m| {
        m.comm_failure_ack(comm.core())?;
    }
    fn PMPI_Comm_failure_get_acked (comm: Comm, group: *mut Group) on comm; |m| {
        put(group, Group::of(m.comm_failure_get_acked(comm.core())?))?;
    }
    fn PMPI_Comm_agree (comm: Comm, flag: *mut c_int) on comm; |m| {
        let mut value = *flag.as_ref().ok_or(class::ARG)?;
        let agreed = m.comm_agree(comm.core(), &mut value);
        // The flag is agreed on, also where somebody is lost.
        if matches!(agreed, Ok(()) | Err(class::PROC_FAILED)) {
            put(flag, value)?;
        }
        agreed?;
    }
    fn PMPI_Comm_iagree (comm: Comm, flag: *mut c_int, request: *mut Request) on comm; |m| {
        put(request, Request::of(m.comm_iagree(comm.core(), flag)?))?;
    }
    fn PMPI_Comm_shrink (comm: Comm, new: *mut Comm) on comm; |m| {
        put(new, Comm::of(m.comm_shrink(comm.core())?))?;
    }
    fn PMPI_Comm_ishrink (comm: Comm, new: *mut Comm, request: *mut Request) on comm; |m| {
        put(new, Comm::of(eyrie_core::consts::COMM_NULL))?;
        // SAFETY: the program keeps the variable until the request is complete.
        let told = Box::new(move |made| unsafe { *new = Comm::of(made) });
        put(request, Request::of(m.comm_ishrink(comm.core(), told)?))?;
    }
    // The same for a variable of Fortran, which holds an integer.
    fn PMPIX_Comm_ishrink_toint (comm: Comm, new: *mut c_int, request: *mut Request) on comm; |m| {
        put(new, Comm::of(eyrie_core::consts::COMM_NULL).int())?;
        // SAFETY: the program keeps the variable until the request is complete.
        let told = Box::new(move |made| unsafe { *new = Comm::of(made).int() });
        put(request, Request::of(m.comm_ishrink(comm.core(), told)?))?;
    }
    fn PMPI_Comm_agree_failed (comm: Comm, group: *mut Group) on comm; |m| {
        put(group, Group::of(m.comm_agree_failed(comm.core())?))?;
    }
    fn PMPI_Comm_iagree_failed (comm: Comm, group: *mut Group, request: *mut Request)
        on comm; |m| {
        put(group, Group::of(eyrie_core::consts::GROUP_NULL))?;
        // SAFETY: the program keeps the variable until the request is complete.
        let told = Box::new(move |found| unsafe { *group = Group::of(found) });
        put(request, Request::of(m.comm_iagree_failed(comm.core(), told)?))?;
    }
    fn PMPIX_Comm_iagree_failed_toint (comm: Comm, group: *mut c_int, request: *mut Request)
        on comm; |m| {
        put(group, Group::of(eyrie_core::consts::GROUP_NULL).int())?;
        // SAFETY: the program keeps the variable until the request is complete.
        let told = Box::new(move |found| unsafe { *group = Group::of(found).int() });
        put(request, Request::of(m.comm_iagree_failed(comm.core(), told)?))?;
    }
    fn PMPI_Win_revoke (win: Win) on win; |m| {
        m.win_revoke(win.core())?;
    }
    fn PMPI_Win_is_revoked (win: Win, flag: *mut c_int) on win; |m| {
        put(flag, m.win_is_revoked(win.core())?.into())?;
    }
    fn PMPI_Win_get_failed (win: Win, group: *mut Group) on win; |m| {
        put(group, Group::of(m.win_get_failed(win.core())?))?;
    }
    fn PMPI_File_revoke (file: File) on file; |m| {
        m.file_revoke(file.core())?;
    }
    fn PMPI_File_is_revoked (file: File, flag: *mut c_int) on file; |m| {
        put(flag, m.file_is_revoked(file.core())?.into())?;
    }
}
