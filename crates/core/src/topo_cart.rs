//! Cartesian topologies (MPI 5.0 chapter 8).

use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;

/// `MPI_CART`
pub const CART: i32 = 211;

/// Fills the zeros of `dims` so that the product is `nodes`, balanced, in non-increasing order.
pub fn dims_create(nodes: i32, dims: &mut [i32]) -> Res<()> { let _ = (nodes, dims); todo!() }

#[allow(unused_variables)]
impl Machine {
    /// `CART` or `UNDEFINED`.
    pub fn topo_test(&self, comm: Handle) -> Res<i32> { todo!() }
    pub fn cart_create(&mut self, comm: Handle, dims: &[i32], periods: &[bool], reorder: bool) -> Res<Handle> { todo!() }
    pub fn cartdim_get(&self, comm: Handle) -> Res<i32> { todo!() }
    /// Fills as much as the slices (all of length maxdims) hold.
    pub fn cart_get(&self, comm: Handle, dims: &mut [i32], periods: &mut [bool], coords: &mut [i32]) -> Res<()> { todo!() }
    /// `coords` has at least cartdim_get entries.
    pub fn cart_rank(&self, comm: Handle, coords: &[i32]) -> Res<i32> { todo!() }
    pub fn cart_coords(&self, comm: Handle, rank: i32, coords: &mut [i32]) -> Res<()> { todo!() }
    /// (source, destination)
    pub fn cart_shift(&self, comm: Handle, direction: i32, disp: i32) -> Res<(i32, i32)> { todo!() }
    /// `remain` has at least cartdim_get entries.
    pub fn cart_sub(&mut self, comm: Handle, remain: &[bool]) -> Res<Handle> { todo!() }
    /// New rank or `UNDEFINED`.
    pub fn cart_map(&self, comm: Handle, dims: &[i32], periods: &[bool]) -> Res<i32> { todo!() }
}
