//! Probing and matched receives (MPI 5.0 section 3.8).

use std::ffi::c_int;

use crate::arg::{check_buf, get, put};
use crate::repr::*;
use crate::shim::shims;

shims! {
    fn PMPI_Probe (source: c_int, tag: c_int, comm: Comm, status: *mut Status) on comm; |m| {
        let s = m.probe(rank_in(source), tag_in(tag), comm.core())?;
        put_status(status, &s, false);
    }
    fn PMPI_Iprobe (source: c_int, tag: c_int, comm: Comm, flag: *mut c_int, status: *mut Status)
        on comm; |m| {
        let found = m.iprobe(rank_in(source), tag_in(tag), comm.core())?;
        put(flag, found.is_some().into())?;
        if let Some(s) = found {
            put_status(status, &s, false);
        }
    }
    fn PMPI_Mprobe (source: c_int, tag: c_int, comm: Comm, message: *mut Message,
                    status: *mut Status) on comm; |m| {
        let (found, s) = m.mprobe(rank_in(source), tag_in(tag), comm.core())?;
        put(message, Message::of(found))?;
        put_status(status, &s, false);
    }
    fn PMPI_Improbe (source: c_int, tag: c_int, comm: Comm, flag: *mut c_int,
                     message: *mut Message, status: *mut Status) on comm; |m| {
        let found = m.improbe(rank_in(source), tag_in(tag), comm.core())?;
        put(flag, found.is_some().into())?;
        if let Some((h, s)) = found {
            put(message, Message::of(h))?;
            put_status(status, &s, false);
        }
    }
    fn PMPI_Mrecv | PMPI_Mrecv_c (buf: Buf, count: Count, datatype: Datatype,
                                  message: *mut Message, status: *mut Status); |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        let mut h = get(message)?.core();
        let result = m.mrecv(buf.cast(), count, dt, &mut h);
        put(message, Message::of(h))?;
        put_status(status, &result?, false);
    }
    fn PMPI_Imrecv | PMPI_Imrecv_c (buf: Buf, count: Count, datatype: Datatype,
                                    message: *mut Message, request: *mut Request); |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        let mut h = get(message)?.core();
        let result = m.imrecv(buf.cast(), count, dt, &mut h);
        put(message, Message::of(h))?;
        put(request, Request::of(result?))?;
    }
}
