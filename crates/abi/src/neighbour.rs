//! Collectives between neighbours in a topology (MPI 5.0 sections 8.6 to 8.8).

use eyrie_core::coll::How;

use crate::arg::put;
use crate::begun::{begun, block, even, typed, varied};
use crate::collective::types_at;
use crate::repr::*;
use crate::shim::shims;

shims! {
    fn PMPI_Neighbor_allgather | PMPI_Neighbor_allgather_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count,
        rtype: Datatype, comm: Comm)
        all of comm; |m| {
        let (out, inn) = (block(sbuf, scount, stype), even(rbuf, rcount, rtype));
        m.neighbour_allgather(out, inn, comm.core())?;
    }
}

begun! {
    PMPI_Ineighbor_allgather PMPI_Ineighbor_allgather_c,
    PMPI_Neighbor_allgather_init PMPI_Neighbor_allgather_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype)
    |m, how, comm| {
        let (out, inn) = (block(sbuf, scount, stype), even(rbuf, rcount, rtype));
        m.neighbour_allgather_begun(how, out, inn, comm.core())?
    }
}

shims! {
    fn PMPI_Neighbor_allgatherv | PMPI_Neighbor_allgatherv_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcounts: *const Count,
        displs: *const Disp, rtype: Datatype, comm: Comm)
        all of comm; |m| {
        let (out, inn) = (block(sbuf, scount, stype), varied(rbuf, rcounts, displs, rtype));
        m.neighbour_allgather(out, inn, comm.core())?;
    }
}

begun! {
    PMPI_Ineighbor_allgatherv PMPI_Ineighbor_allgatherv_c,
    PMPI_Neighbor_allgatherv_init PMPI_Neighbor_allgatherv_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcounts: *const Count,
     displs: *const Disp, rtype: Datatype)
    |m, how, comm| {
        let (out, inn) = (block(sbuf, scount, stype), varied(rbuf, rcounts, displs, rtype));
        m.neighbour_allgather_begun(how, out, inn, comm.core())?
    }
}

shims! {
    fn PMPI_Neighbor_alltoall | PMPI_Neighbor_alltoall_c (
        sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count,
        rtype: Datatype, comm: Comm)
        all of comm; |m| {
        let (out, inn) = (even(sbuf, scount, stype), even(rbuf, rcount, rtype));
        m.neighbour_alltoall(out, inn, comm.core())?;
    }
}

begun! {
    PMPI_Ineighbor_alltoall PMPI_Ineighbor_alltoall_c,
    PMPI_Neighbor_alltoall_init PMPI_Neighbor_alltoall_init_c
    (sbuf: ConstBuf, scount: Count, stype: Datatype, rbuf: Buf, rcount: Count, rtype: Datatype)
    |m, how, comm| {
        let (out, inn) = (even(sbuf, scount, stype), even(rbuf, rcount, rtype));
        m.neighbour_alltoall_begun(how, out, inn, comm.core())?
    }
}

shims! {
    fn PMPI_Neighbor_alltoallv | PMPI_Neighbor_alltoallv_c (
        sbuf: ConstBuf, scounts: *const Count, sdispls: *const Disp, stype: Datatype, rbuf: Buf,
        rcounts: *const Count, rdispls: *const Disp, rtype: Datatype, comm: Comm)
        all of comm; |m| {
        let out = varied(sbuf, scounts, sdispls, stype);
        let inn = varied(rbuf, rcounts, rdispls, rtype);
        m.neighbour_alltoall(out, inn, comm.core())?;
    }
}

begun! {
    PMPI_Ineighbor_alltoallv PMPI_Ineighbor_alltoallv_c,
    PMPI_Neighbor_alltoallv_init PMPI_Neighbor_alltoallv_init_c
    (sbuf: ConstBuf, scounts: *const Count, sdispls: *const Disp, stype: Datatype, rbuf: Buf,
     rcounts: *const Count, rdispls: *const Disp, rtype: Datatype)
    |m, how, comm| {
        let out = varied(sbuf, scounts, sdispls, stype);
        let inn = varied(rbuf, rcounts, rdispls, rtype);
        m.neighbour_alltoall_begun(how, out, inn, comm.core())?
    }
}

shims! {
    fn PMPI_Neighbor_alltoallw | PMPI_Neighbor_alltoallw_c (
        sbuf: ConstBuf, scounts: *const Count, sdispls: *const Aint, stypes: *const Datatype,
        rbuf: Buf, rcounts: *const Count, rdispls: *const Aint, rtypes: *const Datatype,
        comm: Comm)
        all of comm; |m| {
        let (of_out, of_inn) = (types_at(stypes), types_at(rtypes));
        let out = typed(sbuf, scounts, sdispls, &of_out);
        let inn = typed(rbuf, rcounts, rdispls, &of_inn);
        m.neighbour_alltoall(out, inn, comm.core())?;
    }
}

begun! {
    PMPI_Ineighbor_alltoallw PMPI_Ineighbor_alltoallw_c,
    PMPI_Neighbor_alltoallw_init PMPI_Neighbor_alltoallw_init_c
    (sbuf: ConstBuf, scounts: *const Count, sdispls: *const Aint, stypes: *const Datatype,
     rbuf: Buf, rcounts: *const Count, rdispls: *const Aint, rtypes: *const Datatype)
    |m, how, comm| {
        let (of_out, of_inn) = (types_at(stypes), types_at(rtypes));
        let out = typed(sbuf, scounts, sdispls, &of_out);
        let inn = typed(rbuf, rcounts, rdispls, &of_inn);
        m.neighbour_alltoall_begun(how, out, inn, comm.core())?
    }
}
