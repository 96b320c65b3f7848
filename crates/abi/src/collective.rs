//! Blocking collective communication (MPI 5.0 chapter 6).

use std::ffi::c_int;

use eyrie_core::coll::Ints;
use eyrie_core::handle::Handle;

use crate::arg::check_buf;
use crate::repr::*;
use crate::shim::shims;

/// An array of counts or displacements in the form that the machine reads.
pub(crate) trait IntsOf {
    fn ints(self) -> Ints;
}

impl IntsOf for *const c_int {
    fn ints(self) -> Ints {
        Ints::I32(self)
    }
}

impl IntsOf for *const i64 {
    fn ints(self) -> Ints {
        Ints::I64(self)
    }
}

impl IntsOf for *const isize {
    fn ints(self) -> Ints {
        Ints::I64(self.cast())
    }
}

/// The types of alltoallw by rank; only asked for when they are significant.
pub(crate) fn types_at(at: *const Datatype) -> impl Fn(usize) -> Handle {
    move |rank| {
        if at.is_null() {
            return Handle(0);
        }
        // SAFETY: the array has an entry for each rank, by MPI's contract.
        unsafe { at.add(rank).read() }.core()
    }
}

shims! {
    fn PMPI_Barrier (comm: Comm) all of comm; |m| {
        m.barrier(comm.core())?;
    }
    fn PMPI_Bcast | PMPI_Bcast_c (buf: Buf, count: Count, datatype: Datatype, root: c_int,
                                  comm: Comm) all of comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(buf, count, dt)?;
        m.bcast(buf.cast(), count, dt, rank_in(root), comm.core())?;
    }
    fn PMPI_Gather | PMPI_Gather_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype,
        root: c_int, comm: Comm) all of comm; |m| {
        m.gather(
            buf_in(sbuf), scount.wide(), stype.core(), rbuf.cast(), rcount.wide(), rtype.core(),
            rank_in(root), comm.core(),
        )?;
    }
    fn PMPI_Gatherv | PMPI_Gatherv_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcounts: *const Count,
        displs: *const Disp, rtype: Datatype, root: c_int, comm: Comm) all of comm; |m| {
        m.gatherv(
            buf_in(sbuf), scount.wide(), stype.core(), rbuf.cast(), rcounts.ints(), displs.ints(),
            rtype.core(), rank_in(root), comm.core(),
        )?;
    }
    fn PMPI_Scatter | PMPI_Scatter_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype,
        root: c_int, comm: Comm) all of comm; |m| {
        m.scatter(
            sbuf.cast(), scount.wide(), stype.core(), buf_in(rbuf).cast_mut(), rcount.wide(),
            rtype.core(), rank_in(root), comm.core(),
        )?;
    }
    fn PMPI_Scatterv | PMPI_Scatterv_c (
        sbuf: ConstBuf, scounts: *const Count, displs: *const Disp, stype: Datatype, rbuf: Buf,
        rcount: Count, rtype: Datatype, root: c_int, comm: Comm) all of comm; |m| {
        m.scatterv(
            sbuf.cast(), scounts.ints(), displs.ints(), stype.core(), buf_in(rbuf).cast_mut(),
            rcount.wide(), rtype.core(), rank_in(root), comm.core(),
        )?;
    }
    fn PMPI_Allgather | PMPI_Allgather_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype,
        comm: Comm) all of comm; |m| {
        m.allgather(
            buf_in(sbuf), scount.wide(), stype.core(), rbuf.cast(), rcount.wide(), rtype.core(),
            comm.core(),
        )?;
    }
    fn PMPI_Allgatherv | PMPI_Allgatherv_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcounts: *const Count,
        displs: *const Disp, rtype: Datatype, comm: Comm) all of comm; |m| {
        m.allgatherv(
            buf_in(sbuf), scount.wide(), stype.core(), rbuf.cast(), rcounts.ints(), displs.ints(),
            rtype.core(), comm.core(),
        )?;
    }
    fn PMPI_Alltoall | PMPI_Alltoall_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype,
        comm: Comm) all of comm; |m| {
        m.alltoall(
            buf_in(sbuf), scount.wide(), stype.core(), rbuf.cast(), rcount.wide(), rtype.core(),
            comm.core(),
        )?;
    }
    fn PMPI_Alltoallv | PMPI_Alltoallv_c (
        sbuf: ConstBuf, scounts: *const Count, sdispls: *const Disp, stype: Datatype, rbuf: Buf,
        rcounts: *const Count, rdispls: *const Disp, rtype: Datatype, comm: Comm) all of comm; |m| {
        m.alltoallv(
            buf_in(sbuf), scounts.ints(), sdispls.ints(), stype.core(), rbuf.cast(),
            rcounts.ints(), rdispls.ints(), rtype.core(), comm.core(),
        )?;
    }
    fn PMPI_Alltoallw | PMPI_Alltoallw_c (
        sbuf: ConstBuf, scounts: *const Count, sdispls: *const Disp, stypes: *const Datatype,
        rbuf: Buf, rcounts: *const Count, rdispls: *const Disp, rtypes: *const Datatype,
        comm: Comm) all of comm; |m| {
        m.alltoallw(
            buf_in(sbuf), scounts.ints(), sdispls.ints(), &types_at(stypes), rbuf.cast(),
            rcounts.ints(), rdispls.ints(), &types_at(rtypes), comm.core(),
        )?;
    }
    fn PMPI_Reduce | PMPI_Reduce_c (
        sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op, root: c_int,
        comm: Comm) all of comm; |m| {
        m.reduce(
            buf_in(sbuf), rbuf.cast(), count.wide(), datatype.core(), op.core(), rank_in(root),
            comm.core(),
        )?;
    }
    fn PMPI_Allreduce | PMPI_Allreduce_c (
        sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op, comm: Comm)
        all of comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(sbuf, count, dt)?;
        check_buf(rbuf, count, dt)?;
        m.allreduce(buf_in(sbuf), rbuf.cast(), count, dt, op.core(), comm.core())?;
    }
    fn PMPI_Reduce_scatter | PMPI_Reduce_scatter_c (
        sbuf: ConstBuf, rbuf: Buf, rcounts: *const Count, datatype: Datatype, op: Op, comm: Comm)
        all of comm; |m| {
        m.reduce_scatter(
            buf_in(sbuf), rbuf.cast(), rcounts.ints(), datatype.core(), op.core(), comm.core(),
        )?;
    }
    fn PMPI_Reduce_scatter_block | PMPI_Reduce_scatter_block_c (
        sbuf: ConstBuf, rbuf: Buf, rcount: Count, datatype: Datatype, op: Op, comm: Comm)
        all of comm; |m| {
        m.reduce_scatter_block(
            buf_in(sbuf), rbuf.cast(), rcount.wide(), datatype.core(), op.core(), comm.core(),
        )?;
    }
    fn PMPI_Scan | PMPI_Scan_c (
        sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op, comm: Comm)
        all of comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(sbuf, count, dt)?;
        check_buf(rbuf, count, dt)?;
        m.scan(buf_in(sbuf), rbuf.cast(), count, dt, op.core(), comm.core())?;
    }
    fn PMPI_Exscan | PMPI_Exscan_c (
        sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op, comm: Comm)
        all of comm; |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(sbuf, count, dt)?;
        m.exscan(buf_in(sbuf), rbuf.cast(), count, dt, op.core(), comm.core())?;
    }
    fn PMPI_Reduce_local | PMPI_Reduce_local_c (
        inbuf: ConstBuf, inout: Buf, count: Count, datatype: Datatype, op: Op); |m| {
        let (count, dt) = (count.wide(), datatype.core());
        check_buf(inbuf, count, dt)?;
        check_buf(inout, count, dt)?;
        m.reduce_local(inbuf.cast(), inout.cast(), count, dt, op.core())?;
    }
}
