//! Info objects (MPI 5.0 chapter 10): ordered pairs of byte strings.

use crate::error::Res;
use crate::handle::Handle;
use crate::machine::Machine;

#[allow(unused_variables)]
impl Machine {
    pub fn info_create(&mut self) -> Res<Handle> { todo!() }
    pub fn info_set(&mut self, info: Handle, key: &[u8], value: &[u8]) -> Res<()> { todo!() }
    /// Serves Info_get, Info_get_string and Info_get_valuelen.
    pub fn info_get(&self, info: Handle, key: &[u8]) -> Res<Option<&[u8]>> { todo!() }
    pub fn info_nkeys(&self, info: Handle) -> Res<i32> { todo!() }
    pub fn info_nthkey(&self, info: Handle, n: i32) -> Res<&[u8]> { todo!() }
    pub fn info_dup(&mut self, info: Handle) -> Res<Handle> { todo!() }
    pub fn info_delete(&mut self, info: Handle, key: &[u8]) -> Res<()> { todo!() }
    pub fn info_free(&mut self, info: &mut Handle) -> Res<()> { todo!() }
    /// A copy of INFO_ENV.
    pub fn info_create_env(&mut self) -> Res<Handle> { todo!() }
    /// Fills INFO_ENV (by the ABI layer, at initialisation).
    pub fn info_env_set(&mut self, key: &[u8], value: &[u8]) { todo!() }
}
