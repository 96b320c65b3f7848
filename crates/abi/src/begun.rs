//! Non-blocking and persistent collective communication (MPI 5.0 sections 6.12 and 6.13).

use std::ffi::{c_int, c_void};

use eyrie_core::coll::{Block, Blocks, How, Layout, TypesOf};

use crate::arg::put;
use crate::collective::{IntsOf, types_at};
use crate::repr::*;
use crate::shim::shims;

pub(crate) fn block(buf: *const c_void, count: impl Num, datatype: Datatype) -> Block {
    Block { buf: buf_in(buf), count: count.wide(), dt: datatype.core() }
}

/// A block for each, one after the other.
pub(crate) fn even(buf: *const c_void, count: impl Num, datatype: Datatype) -> Blocks<'static> {
    Blocks { buf: buf_in(buf), layout: Layout::Even(count.wide(), datatype.core()) }
}

pub(crate) fn varied(
    buf: *const c_void,
    counts: impl IntsOf,
    displs: impl IntsOf,
    datatype: Datatype,
) -> Blocks<'static> {
    let layout = Layout::Varied(counts.ints(), displs.ints(), datatype.core());
    Blocks { buf: buf_in(buf), layout }
}

pub(crate) fn typed<'a>(
    buf: *const c_void,
    counts: impl IntsOf,
    displs: impl IntsOf,
    types: TypesOf<'a>,
) -> Blocks<'a> {
    Blocks { buf: buf_in(buf), layout: Layout::Typed(counts.ints(), displs.ints(), types) }
}

/// One collective in both forms, each with small and with large counts.
macro_rules! begun {
    ($i:ident $i_c:ident, $init:ident $init_c:ident
     ($($a:ident: $t:ty),*) |$m:ident, $how:ident, $comm:ident| $body:block) => {
        $crate::shim::shims! {
            fn $i | $i_c ($($a: $t,)* $comm: Comm, request: *mut Request) on $comm; |$m| {
                let $how = How::Now;
                put(request, Request::of($body))?;
            }
            fn $init | $init_c ($($a: $t,)* $comm: Comm, info: Info, request: *mut Request)
                on $comm; |$m| {
                $m.infos.get_optional(info.core())?;
                let $how = How::Started;
                put(request, Request::of($body))?;
            }
        }
    };
}

pub(crate) use begun;

shims! {
    fn PMPI_Ibarrier (comm: Comm, request: *mut Request) on comm; |m| {
        put(request, Request::of(m.barrier_begun(How::Now, comm.core())?))?;
    }
    fn PMPI_Barrier_init (comm: Comm, info: Info, request: *mut Request) on comm; |m| {
        m.infos.get_optional(info.core())?;
        put(request, Request::of(m.barrier_begun(How::Started, comm.core())?))?;
    }
}

begun! {
    PMPI_Ibcast PMPI_Ibcast_c, PMPI_Bcast_init PMPI_Bcast_init_c
    (buf: Buf, count: Count, datatype: Datatype, root: c_int)
    |m, how, comm| {
        m.bcast_begun(how, block(buf, count, datatype), rank_in(root), comm.core())?
    }
}

begun! {
    PMPI_Igather PMPI_Igather_c, PMPI_Gather_init PMPI_Gather_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype,
     root: c_int)
    |m, how, comm| {
        m.gather_begun(
            how, block(sbuf, scount, stype), even(rbuf, rcount, rtype), rank_in(root),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Igatherv PMPI_Igatherv_c, PMPI_Gatherv_init PMPI_Gatherv_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcounts: *const Count,
     displs: *const Disp, rtype: Datatype, root: c_int)
    |m, how, comm| {
        m.gather_begun(
            how, block(sbuf, scount, stype), varied(rbuf, rcounts, displs, rtype), rank_in(root),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Iscatter PMPI_Iscatter_c, PMPI_Scatter_init PMPI_Scatter_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype,
     root: c_int)
    |m, how, comm| {
        m.scatter_begun(
            how, even(sbuf, scount, stype), block(rbuf, rcount, rtype), rank_in(root),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Iscatterv PMPI_Iscatterv_c, PMPI_Scatterv_init PMPI_Scatterv_init_c
    (sbuf: ConstBuf, scounts: *const Count, displs: *const Disp, stype: Datatype, rbuf: Buf,
     rcount: Count, rtype: Datatype, root: c_int)
    |m, how, comm| {
        m.scatter_begun(
            how, varied(sbuf, scounts, displs, stype), block(rbuf, rcount, rtype), rank_in(root),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Iallgather PMPI_Iallgather_c, PMPI_Allgather_init PMPI_Allgather_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype)
    |m, how, comm| {
        m.allgather_begun(
            how, block(sbuf, scount, stype), even(rbuf, rcount, rtype), comm.core(),
        )?
    }
}

begun! {
    PMPI_Iallgatherv PMPI_Iallgatherv_c, PMPI_Allgatherv_init PMPI_Allgatherv_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcounts: *const Count,
     displs: *const Disp, rtype: Datatype)
    |m, how, comm| {
        m.allgather_begun(
            how, block(sbuf, scount, stype), varied(rbuf, rcounts, displs, rtype), comm.core(),
        )?
    }
}

begun! {
    PMPI_Ialltoall PMPI_Ialltoall_c, PMPI_Alltoall_init PMPI_Alltoall_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype)
    |m, how, comm| {
        m.alltoall_begun(how, even(sbuf, scount, stype), even(rbuf, rcount, rtype), comm.core())?
    }
}

begun! {
    PMPI_Ialltoallv PMPI_Ialltoallv_c, PMPI_Alltoallv_init PMPI_Alltoallv_init_c
    (sbuf: ConstBuf, scounts: *const Count, sdispls: *const Disp, stype: Datatype, rbuf: Buf,
     rcounts: *const Count, rdispls: *const Disp, rtype: Datatype)
    |m, how, comm| {
        m.alltoall_begun(
            how, varied(sbuf, scounts, sdispls, stype), varied(rbuf, rcounts, rdispls, rtype),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Ialltoallw PMPI_Ialltoallw_c, PMPI_Alltoallw_init PMPI_Alltoallw_init_c
    (sbuf: ConstBuf, scounts: *const Count, sdispls: *const Disp, stypes: *const Datatype,
     rbuf: Buf, rcounts: *const Count, rdispls: *const Disp, rtypes: *const Datatype)
    |m, how, comm| {
        m.alltoall_begun(
            how, typed(sbuf, scounts, sdispls, &types_at(stypes)),
            typed(rbuf, rcounts, rdispls, &types_at(rtypes)), comm.core(),
        )?
    }
}

begun! {
    PMPI_Ireduce PMPI_Ireduce_c, PMPI_Reduce_init PMPI_Reduce_init_c
    (sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op, root: c_int)
    |m, how, comm| {
        m.reduce_begun(
            how, buf_in(sbuf), rbuf.cast(), count.wide(), datatype.core(), op.core(),
            rank_in(root), comm.core(),
        )?
    }
}

begun! {
    PMPI_Iallreduce PMPI_Iallreduce_c, PMPI_Allreduce_init PMPI_Allreduce_init_c
    (sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op)
    |m, how, comm| {
        m.allreduce_begun(
            how, buf_in(sbuf), rbuf.cast(), count.wide(), datatype.core(), op.core(),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Ireduce_scatter PMPI_Ireduce_scatter_c, PMPI_Reduce_scatter_init PMPI_Reduce_scatter_init_c
    (sbuf: ConstBuf, rbuf: Buf, rcounts: *const Count, datatype: Datatype, op: Op)
    |m, how, comm| {
        m.reduce_scatter_begun(
            how, buf_in(sbuf), rbuf.cast(), rcounts.ints(), datatype.core(), op.core(),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Ireduce_scatter_block PMPI_Ireduce_scatter_block_c,
    PMPI_Reduce_scatter_block_init PMPI_Reduce_scatter_block_init_c
    (sbuf: ConstBuf, rbuf: Buf, rcount: Count, datatype: Datatype, op: Op)
    |m, how, comm| {
        m.reduce_scatter_block_begun(
            how, buf_in(sbuf), rbuf.cast(), rcount.wide(), datatype.core(), op.core(),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Iscan PMPI_Iscan_c, PMPI_Scan_init PMPI_Scan_init_c
    (sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op)
    |m, how, comm| {
        m.scan_begun(
            how, buf_in(sbuf), rbuf.cast(), count.wide(), datatype.core(), op.core(),
            comm.core(),
        )?
    }
}

begun! {
    PMPI_Iexscan PMPI_Iexscan_c, PMPI_Exscan_init PMPI_Exscan_init_c
    (sbuf: ConstBuf, rbuf: Buf, count: Count, datatype: Datatype, op: Op)
    |m, how, comm| {
        m.exscan_begun(
            how, buf_in(sbuf), rbuf.cast(), count.wide(), datatype.core(), op.core(),
            comm.core(),
        )?
    }
}
