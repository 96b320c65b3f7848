//! Partitioned communication (MPI 5.0 section 4.2).

use std::ffi::c_int;

use eyrie_core::machine::Machine;
use eyrie_core::partitioned::Parts;

use crate::arg::{array, check_buf, len, put};
use crate::repr::*;
use crate::shim::{Fail, shims};

shims! {
    fn PMPI_Psend_init | PMPI_Psend_init_c (
                        buf: ConstBuf, partitions: c_int, count: LargeCount, datatype: Datatype,
                        dest: c_int, tag: c_int, comm: Comm, info: Info, request: *mut Request)
        on comm; |m| {
        m.infos.get_optional(info.core())?;
        let of = parts(buf.cast_mut(), partitions, count, datatype)?;
        let r = m.partitioned_init(true, of, rank_in(dest), tag_in(tag), comm.core())?;
        put(request, Request::of(r))?;
    }
    fn PMPI_Precv_init | PMPI_Precv_init_c (
                        buf: Buf, partitions: c_int, count: LargeCount, datatype: Datatype,
                        source: c_int, tag: c_int, comm: Comm, info: Info, request: *mut Request)
        on comm; |m| {
        m.infos.get_optional(info.core())?;
        let of = parts(buf, partitions, count, datatype)?;
        let r = m.partitioned_init(false, of, rank_in(source), tag_in(tag), comm.core())?;
        put(request, Request::of(r))?;
    }
    fn PMPI_Pready (partition: c_int, request: Request); |m| {
        ready(m, request, partition, partition)?;
    }
    fn PMPI_Pready_range (low: c_int, high: c_int, request: Request); |m| {
        ready(m, request, low, high)?;
    }
    fn PMPI_Pready_list (length: c_int, partitions: *const c_int, request: Request); |m| {
        for part in array(partitions, len(length)?)? {
            ready(m, request, *part, *part)?;
        }
    }
    fn PMPI_Parrived (request: Request, partition: c_int, flag: *mut c_int); |m| {
        let on = m.request_comm(request.core());
        let there = m.parrived(request.core(), partition).map_err(Fail::on(on))?;
        put(flag, there.into())?;
    }
}

fn parts(
    buf: Buf,
    parts: c_int,
    count: LargeCount,
    datatype: Datatype,
) -> eyrie_core::error::Res<Parts> {
    let dt = datatype.core();
    check_buf(buf, count, dt)?;
    Ok(Parts { buf: buf.cast(), parts, count, dt })
}

fn ready(m: &mut Machine, request: Request, first: c_int, last: c_int) -> Result<(), Fail> {
    let on = m.request_comm(request.core());
    m.pready(request.core(), first, last).map_err(Fail::on(on))
}
