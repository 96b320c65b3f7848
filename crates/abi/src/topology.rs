//! Cartesian topologies (MPI 5.0 chapter 8); graphs are in `graph`.

use std::ffi::c_int;

use eyrie_core::error::{Res, class};
use eyrie_core::topo_dims::dims_create;

use crate::arg::{array, array_mut, len, put};
use crate::repr::*;
use crate::shim::shims;

/// An array of C truth values.
///
/// # Safety
/// `at` is null or points to `n` ints.
unsafe fn flags(at: *const c_int, n: usize) -> Res<Vec<bool>> {
    // SAFETY: by the caller's word.
    Ok(unsafe { array(at, n) }?.iter().map(|v| *v != 0).collect())
}

fn ndims(n: c_int) -> Res<usize> {
    usize::try_from(n).map_err(|_| class::DIMS)
}

shims! {
    fn PMPI_Dims_create (nodes: c_int, n: c_int, dims: *mut c_int); |_m| {
        dims_create(nodes, array_mut(dims, ndims(n)?)?)?;
    }
    fn PMPI_Topo_test (comm: Comm, status: *mut c_int) on comm; |m| {
        put(status, topology_out(m.topo_test(comm.core())?))?;
    }
    fn PMPI_Cart_create (comm: Comm, n: c_int, dims: *const c_int, periods: *const c_int,
                         reorder: c_int, new: *mut Comm) makes new of comm; |m| {
        let n = ndims(n)?;
        let periods = flags(periods, n)?;
        m.cart_create(comm.core(), array(dims, n)?, &periods, reorder != 0)?
    }
    fn PMPI_Cartdim_get (comm: Comm, n: *mut c_int) on comm; |m| {
        put(n, m.cartdim_get(comm.core())?)?;
    }
    fn PMPI_Cart_get (comm: Comm, max: c_int, dims: *mut c_int, periods: *mut c_int,
                      coords: *mut c_int) on comm; |m| {
        let n = len(max)?;
        let mut wraps = vec![false; n];
        let (dims, coords) = (array_mut(dims, n)?, array_mut(coords, n)?);
        let periods = array_mut(periods, n)?;
        m.cart_get(comm.core(), dims, &mut wraps, coords)?;
        let known = usize::try_from(m.cartdim_get(comm.core())?).unwrap_or(0);
        for (at, wrap) in periods.iter_mut().zip(wraps).take(known) {
            *at = wrap.into();
        }
    }
    fn PMPI_Cart_rank (comm: Comm, coords: *const c_int, rank: *mut c_int) on comm; |m| {
        let n = len(m.cartdim_get(comm.core())?)?;
        put(rank, m.cart_rank(comm.core(), array(coords, n)?)?)?;
    }
    fn PMPI_Cart_coords (comm: Comm, rank: c_int, max: c_int, coords: *mut c_int) on comm; |m| {
        m.cart_coords(comm.core(), rank_in(rank), array_mut(coords, len(max)?)?)?;
    }
    fn PMPI_Cart_shift (comm: Comm, direction: c_int, disp: c_int, source: *mut c_int,
                        dest: *mut c_int) on comm; |m| {
        let (from, to) = m.cart_shift(comm.core(), direction, disp)?;
        put(source, rank_out(from))?;
        put(dest, rank_out(to))?;
    }
    fn PMPI_Cart_sub (comm: Comm, remain: *const c_int, new: *mut Comm) makes new of comm; |m| {
        let n = len(m.cartdim_get(comm.core())?)?;
        m.cart_sub(comm.core(), &flags(remain, n)?)?
    }
    fn PMPI_Cart_map (comm: Comm, n: c_int, dims: *const c_int, periods: *const c_int,
                      rank: *mut c_int) on comm; |m| {
        let n = ndims(n)?;
        let periods = flags(periods, n)?;
        put(rank, rank_out(m.cart_map(comm.core(), array(dims, n)?, &periods)?))?;
    }
}
