//! One rank's MPI machine: the tables of its objects, its pending operations, its endpoint.
//!
//! Every exported MPI function calls `enter` first and `leave` last (they nest, so that callbacks
//! may call MPI): between them the process is not frozen except in the waiting place, and `enter`
//! is where a restored process finds out that it was restored.

use eyrie_channel::{Endpoint, OpenError};

use crate::attr::AttrTable;
use crate::bsend::Attached;
use crate::callback::Reentry;
use crate::comm::CommTable;
use crate::datatype::TypeTable;
use crate::engine::Engine;
use crate::errhandler::ErrTable;
use crate::file::FileTable;
use crate::group::GroupTable;
use crate::info::InfoTable;
use crate::op::OpTable;

/// Everything of MPI that one rank has.
pub struct Machine {
    pub endpoint: Endpoint,
    pub comms: CommTable,
    pub types: TypeTable,
    pub ops: OpTable,
    pub groups: GroupTable,
    pub infos: InfoTable,
    pub files: FileTable,
    pub errhandlers: ErrTable,
    pub attrs: AttrTable,
    pub reentry: Reentry,
    pub(crate) engine: Engine,
    pub(crate) attached: Attached,
}

impl Machine {
    /// Joins the job that the environment describes (`MPI_Init`).
    pub fn from_env() -> Result<Self, OpenError> {
        Endpoint::from_env().map(Machine::new)
    }

    /// A machine at this end of the job's channels.
    pub fn new(endpoint: Endpoint) -> Self {
        let (me, ranks) = (endpoint.rank(), endpoint.size());
        let world = endpoint.world();
        Machine {
            endpoint,
            comms: CommTable::new(me, ranks),
            types: TypeTable::new(),
            ops: OpTable::new(),
            groups: GroupTable::new(me),
            infos: InfoTable::new(),
            files: FileTable::new(),
            errhandlers: ErrTable::new(),
            attrs: AttrTable::new(ranks),
            reentry: Reentry::default(),
            engine: Engine::new(ranks, world),
            attached: Attached::default(),
        }
    }

    /// World rank of this process and number of ranks.
    pub fn world(&self) -> (u32, u32) {
        (self.endpoint.rank(), self.endpoint.size())
    }

    /// `MPI_Finalize`: completes what was started; afterwards the process is no longer restored.
    pub fn finalize(&mut self) {
        self.drain_sends();
        self.settle_freed();
        self.engine.freed.clear();
        self.endpoint.finalized();
    }

    /// The program ends without `MPI_Finalize`.
    pub fn left(&mut self) {
        self.endpoint.left();
    }

    /// `MPI_Abort`: ends the job with `code`.
    pub fn abort(&self, code: i32, why: &str) -> ! {
        self.endpoint.abort(code, why)
    }
}
