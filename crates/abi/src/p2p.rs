//! Point-to-point communication (MPI 5.0 chapter 3): sends, receives, buffers, persistent requests.

use std::ffi::c_int;

use eyrie_core::handle::Handle;
use eyrie_core::p2p::SendMode;

use crate::arg::{array_mut, check_buf, get, len, put};
use crate::repr::*;
use crate::shim::{Fail, shims};

/// Sends of one mode: blocking, non-blocking, persistent.
macro_rules! sends {
    ($mode:ident: $send:ident $send_c:ident, $isend:ident $isend_c:ident,
     $init:ident $init_c:ident) => {
        shims! {
            fn $send | $send_c (buf: ConstBuf, count: Count, datatype: Datatype, dest: c_int,
                                tag: c_int, comm: Comm) on comm; |m| {
                let (count, dt) = (count.wide(), datatype.core());
                check_buf(buf, count, dt)?;
                let (dest, tag) = (rank_in(dest), tag_in(tag));
                m.send(SendMode::$mode, buf.cast(), count, dt, dest, tag, comm.core())?;
            }
            fn $isend | $isend_c (buf: ConstBuf, count: Count, datatype: Datatype, dest: c_int,
                                  tag: c_int, comm: Comm, request: *mut Request) on comm; |m| {
                let (count, dt) = (count.wide(), datatype.core());
                check_buf(buf, count, dt)?;
                let (dest, tag) = (rank_in(dest), tag_in(tag));
                let r = m.isend(SendMode::$mode, buf.cast(), count, dt, dest, tag, comm.core())?;
                put(request, Request::of(r))?;
            }
            fn $init | $init_c (buf: ConstBuf, count: Count, datatype: Datatype, dest: c_int,
                                tag: c_int, comm: Comm, request: *mut Request) on comm; |m| {
                let (count, dt) = (count.wide(), datatype.core());
                check_buf(buf, count, dt)?;
                let (dest, tag) = (rank_in(dest), tag_in(tag));
                let mode = SendMode::$mode;
                let r = m.send_init(mode, buf.cast(), count, dt, dest, tag, comm.core())?;
                put(request, Request::of(r))?;
            }
        }
    };
}

sends!(Standard: PMPI_Send PMPI_Send_c, PMPI_Isend PMPI_Isend_c, PMPI_Send_init PMPI_Send_init_c);
sends!(Buffered: PMPI_Bsend PMPI_Bsend_c, PMPI_Ibsend PMPI_Ibsend_c,
       PMPI_Bsend_init PMPI_Bsend_init_c);
sends!(Synchronous: PMPI_Ssend PMPI_Ssend_c, PMPI_Issend PMPI_Issend_c,
       PMPI_Ssend_init PMPI_Ssend_init_c);
sends!(Ready: PMPI_Rsend PMPI_Rsend_c, PMPI_Irsend PMPI_Irsend_c,
       PMPI_Rsend_init PMPI_Rsend_init_c);

shims! {
    fn PMPI_Recv | PMPI_Recv_c (buf: Buf, count: Count, datatype: Datatype, source: c_int,
                                tag: c_int, comm: Comm, status: *mut Status) on comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        let s = m.recv(buf.cast(), count, dt, rank_in(source), tag_in(tag), comm.core())?;
        put_status(status, &s, false);
    }
    fn PMPI_Irecv | PMPI_Irecv_c (buf: Buf, count: Count, datatype: Datatype, source: c_int,
                                  tag: c_int, comm: Comm, request: *mut Request) on comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        let r = m.irecv(buf.cast(), count, dt, rank_in(source), tag_in(tag), comm.core())?;
        put(request, Request::of(r))?;
    }
    fn PMPI_Recv_init | PMPI_Recv_init_c (buf: Buf, count: Count, datatype: Datatype,
                                          source: c_int, tag: c_int, comm: Comm,
                                          request: *mut Request) on comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        let r = m.recv_init(buf.cast(), count, dt, rank_in(source), tag_in(tag), comm.core())?;
        put(request, Request::of(r))?;
    }
    fn PMPI_Sendrecv | PMPI_Sendrecv_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, dest: c_int, stag: c_int,
        rbuf: Buf, rcount: Count, rtype: Datatype, source: c_int, rtag: c_int,
        comm: Comm, status: *mut Status) on comm; |m| {
        let (scount, sdt) = (scount.wide(), stype.core());
        let (rcount, rdt) = (rcount.wide(), rtype.core());
        check_buf(sbuf, scount, sdt)?;
        check_buf(rbuf, rcount, rdt)?;
        let s = m.sendrecv(
            sbuf.cast(), scount, sdt, rank_in(dest), tag_in(stag),
            rbuf.cast(), rcount, rdt, rank_in(source), tag_in(rtag), comm.core(),
        )?;
        put_status(status, &s, false);
    }
    fn PMPI_Sendrecv_replace | PMPI_Sendrecv_replace_c (
        buf: Buf, count: Count, datatype: Datatype, dest: c_int, stag: c_int,
        source: c_int, rtag: c_int, comm: Comm, status: *mut Status) on comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        let s = m.sendrecv_replace(
            buf.cast(), count, dt, rank_in(dest), tag_in(stag), rank_in(source), tag_in(rtag),
            comm.core(),
        )?;
        put_status(status, &s, false);
    }
    fn PMPI_Isendrecv | PMPI_Isendrecv_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, dest: c_int, stag: c_int,
        rbuf: Buf, rcount: Count, rtype: Datatype, source: c_int, rtag: c_int,
        comm: Comm, request: *mut Request) on comm; |m| {
        let (scount, sdt) = (scount.wide(), stype.core());
        let (rcount, rdt) = (rcount.wide(), rtype.core());
        check_buf(sbuf, scount, sdt)?;
        check_buf(rbuf, rcount, rdt)?;
        let r = m.isendrecv(
            sbuf.cast(), scount, sdt, rank_in(dest), tag_in(stag),
            rbuf.cast(), rcount, rdt, rank_in(source), tag_in(rtag), comm.core(),
        )?;
        put(request, Request::of(r))?;
    }
    fn PMPI_Isendrecv_replace | PMPI_Isendrecv_replace_c (
        buf: Buf, count: Count, datatype: Datatype, dest: c_int, stag: c_int,
        source: c_int, rtag: c_int, comm: Comm, request: *mut Request) on comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        let r = m.isendrecv_replace(
            buf.cast(), count, dt, rank_in(dest), tag_in(stag), rank_in(source), tag_in(rtag),
            comm.core(),
        )?;
        put(request, Request::of(r))?;
    }
    fn PMPI_Start (request: *mut Request); |m| {
        start(m, get(request)?.core())?;
    }
    fn PMPI_Startall (count: c_int, requests: *mut Request); |m| {
        for r in array_mut(requests, len(count)?)?.iter() {
            start(m, r.core())?;
        }
    }
}

fn start(m: &mut eyrie_core::machine::Machine, request: Handle) -> Result<(), Fail> {
    let on = m.request_comm(request);
    m.start(request).map_err(Fail::on(on))
}
