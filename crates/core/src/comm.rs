//! Communicators (MPI 5.0 chapter 7).

use std::rc::Rc;

use crate::error::Res;
use crate::group::Group;
use crate::handle::Handle;
use crate::machine::Machine;

pub const TYPE_SHARED: i32 = 221;
pub const TYPE_HW_UNGUIDED: i32 = 222;
pub const TYPE_HW_GUIDED: i32 = 223;
pub const TYPE_RESOURCE_GUIDED: i32 = 224;

#[allow(unused_variables)]
impl Machine {
    pub fn comm_size(&self, comm: Handle) -> Res<i32> { todo!() }
    pub fn comm_rank(&self, comm: Handle) -> Res<i32> { todo!() }
    pub fn comm_group(&mut self, comm: Handle) -> Res<Handle> { todo!() }
    pub fn comm_test_inter(&self, comm: Handle) -> Res<bool> { todo!() }
    pub fn comm_compare(&self, a: Handle, b: Handle) -> Res<i32> { todo!() }
    pub fn comm_dup(&mut self, comm: Handle) -> Res<Handle> { todo!() }
    pub fn comm_dup_with_info(&mut self, comm: Handle, info: Handle) -> Res<Handle> { todo!() }
    pub fn comm_create(&mut self, comm: Handle, group: Handle) -> Res<Handle> { todo!() }
    pub fn comm_create_group(&mut self, comm: Handle, group: Handle, tag: i32) -> Res<Handle> { todo!() }
    pub fn comm_split(&mut self, comm: Handle, color: i32, key: i32) -> Res<Handle> { todo!() }
    /// `split_type`: `TYPE_*` above or `UNDEFINED`.
    pub fn comm_split_type(&mut self, comm: Handle, split_type: i32, key: i32, info: Handle) -> Res<Handle> { todo!() }
    pub fn comm_free(&mut self, comm: &mut Handle) -> Res<()> { todo!() }
    pub fn comm_set_name(&mut self, comm: Handle, name: &[u8]) -> Res<()> { todo!() }
    /// Works for COMM_NULL too.
    pub fn comm_get_name(&self, comm: Handle) -> Res<Vec<u8>> { todo!() }
    pub fn comm_set_info(&mut self, comm: Handle, info: Handle) -> Res<()> { todo!() }
    pub fn comm_get_info(&mut self, comm: Handle) -> Res<Handle> { todo!() }
}
