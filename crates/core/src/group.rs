//! Groups: ordered sets of processes (MPI 5.0 section 7.3). Purely local.

use std::rc::Rc;

use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;

#[allow(unused_variables)]
impl Machine {
    pub fn group_size(&self, group: Handle) -> Res<i32> { todo!() }
    /// This process's rank or `UNDEFINED`.
    pub fn group_rank(&self, group: Handle) -> Res<i32> { todo!() }
    /// `out` is as long as `ranks`.
    pub fn group_translate_ranks(&self, from: Handle, ranks: &[i32], to: Handle, out: &mut [i32]) -> Res<()> { todo!() }
    pub fn group_compare(&self, a: Handle, b: Handle) -> Res<i32> { todo!() }
    pub fn group_union(&mut self, a: Handle, b: Handle) -> Res<Handle> { todo!() }
    pub fn group_intersection(&mut self, a: Handle, b: Handle) -> Res<Handle> { todo!() }
    pub fn group_difference(&mut self, a: Handle, b: Handle) -> Res<Handle> { todo!() }
    pub fn group_incl(&mut self, group: Handle, ranks: &[i32]) -> Res<Handle> { todo!() }
    pub fn group_excl(&mut self, group: Handle, ranks: &[i32]) -> Res<Handle> { todo!() }
    /// Triplets (first, last, stride).
    pub fn group_range_incl(&mut self, group: Handle, ranges: &[[i32; 3]]) -> Res<Handle> { todo!() }
    pub fn group_range_excl(&mut self, group: Handle, ranges: &[[i32; 3]]) -> Res<Handle> { todo!() }
    pub fn group_free(&mut self, group: &mut Handle) -> Res<()> { todo!() }
}
