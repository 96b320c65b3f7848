//! One rank's MPI machine: the tables of its objects and its endpoint.

use eyrie_channel::Endpoint;

use crate::comm::CommTable;
use crate::datatype::TypeTable;
use crate::op::OpTable;

/// Everything of MPI that one rank has.
pub struct Machine {
    pub endpoint: Endpoint,
    pub comms: CommTable,
    pub types: TypeTable,
    pub ops: OpTable,
    // request tables (lead)
    pub groups: crate::group::GroupTable,
    pub infos: crate::info::InfoTable,
    pub errhandlers: crate::errhandler::ErrTable,
    pub attrs: crate::attr::AttrTable,
    pub reentry: crate::callback::Reentry,
}

impl Machine {
    /// World rank of this process and number of ranks.
    pub fn world(&self) -> (u32, u32) {
        todo!()
    }
}
