//! Packing (MPI 5.0 sections 5.2 and 5.3).

use std::ffi::c_char;

use eyrie_core::error::{Res, class};
use eyrie_core::machine::Machine;

use crate::arg::{array, array_mut, bytes, check_buf, get, put_num};
use crate::repr::*;
use crate::shim::shims;

fn count(n: i64) -> Res<u64> {
    u64::try_from(n).map_err(|_| class::COUNT)
}

fn size(n: i64) -> Res<usize> {
    usize::try_from(n).map_err(|_| class::ARG)
}

fn position(n: i64) -> Res<u64> {
    u64::try_from(n).map_err(|_| class::ARG)
}

/// Packing belongs to a communicator: it must be one.
fn valid(m: &Machine, comm: Comm) -> Res<()> {
    m.comm_size(comm.core()).map(|_| ())
}

shims! {
    fn PMPI_Pack | PMPI_Pack_c (
        inbuf: ConstBuf, incount: Count, datatype: Datatype, outbuf: Buf, outsize: Count,
        at: *mut Count, comm: Comm) on comm; |m| {
        valid(m, comm)?;
        check_buf(inbuf, incount.wide(), datatype.core())?;
        let t = m.types.get_committed(datatype.core())?;
        let out = array_mut(outbuf.cast::<u8>(), size(outsize.wide())?)?;
        let mut pos = position(get(at)?.wide())?;
        t.pack(inbuf.cast(), count(incount.wide())?, out, &mut pos)?;
        put_num(at, pos as i64)?;
    }
    fn PMPI_Unpack | PMPI_Unpack_c (
        inbuf: ConstBuf, insize: Count, at: *mut Count, outbuf: Buf, outcount: Count,
        datatype: Datatype, comm: Comm) on comm; |m| {
        valid(m, comm)?;
        check_buf(outbuf, outcount.wide(), datatype.core())?;
        let t = m.types.get_committed(datatype.core())?;
        let data = array(inbuf.cast::<u8>(), size(insize.wide())?)?;
        let mut pos = position(get(at)?.wide())?;
        t.unpack(data, &mut pos, outbuf.cast(), count(outcount.wide())?)?;
        put_num(at, pos as i64)?;
    }
    fn PMPI_Pack_size | PMPI_Pack_size_c (
        incount: Count, datatype: Datatype, comm: Comm, bytes: *mut Count) on comm; |m| {
        valid(m, comm)?;
        let need = m.types.get_ref(datatype.core())?.pack_size(count(incount.wide())?)?;
        put_num(bytes, need as i64)?;
    }
    fn PMPI_Pack_external | PMPI_Pack_external_c (
        datarep: *const c_char, inbuf: ConstBuf, incount: Count, datatype: Datatype, outbuf: Buf,
        outsize: Aint, at: *mut Aint); |m| {
        check_buf(inbuf, incount.wide(), datatype.core())?;
        let t = m.types.get_committed(datatype.core())?;
        let out = array_mut(outbuf.cast::<u8>(), size(outsize.wide())?)?;
        let mut pos = position(get(at)?.wide())?;
        t.pack_external(bytes(datarep)?, inbuf.cast(), count(incount.wide())?, out, &mut pos)?;
        put_num(at, pos as i64)?;
    }
    fn PMPI_Unpack_external | PMPI_Unpack_external_c (
        datarep: *const c_char, inbuf: ConstBuf, insize: Aint, at: *mut Aint,
        outbuf: Buf, outcount: Count, datatype: Datatype); |m| {
        check_buf(outbuf, outcount.wide(), datatype.core())?;
        let t = m.types.get_committed(datatype.core())?;
        let data = array(inbuf.cast::<u8>(), size(insize.wide())?)?;
        let mut pos = position(get(at)?.wide())?;
        t.unpack_external(bytes(datarep)?, data, &mut pos, outbuf.cast(), count(outcount.wide())?)?;
        put_num(at, pos as i64)?;
    }
    fn PMPI_Pack_external_size | PMPI_Pack_external_size_c (
        datarep: *const c_char, incount: Count, datatype: Datatype,
        need: *mut Aint); |m| {
        let t = m.types.get_ref(datatype.core())?;
        put_num(need, t.external_size(bytes(datarep)?, count(incount.wide())?)? as i64)?;
    }
}
