//! One rank's MPI machine: the tables of its objects, its pending operations, its endpoint.
//!
//! Every exported MPI function calls `enter` first and `leave` last (they nest, so that callbacks
//! may call MPI): between them the process is not frozen except in the waiting place, and `enter`
//! is where a restored process finds out that it was restored.

use eyrie_channel::{Endpoint, OpenError};

use crate::agreement::Agreement;
use crate::attr::AttrTable;
use crate::bsend::Attached;
use crate::callback::Reentry;
use crate::comm::CommTable;
use crate::datatype::TypeTable;
use crate::dynamic::state::Known;
use crate::engine::Engine;
use crate::errhandler::ErrTable;
use crate::failures::Failures;
use crate::file::FileTable;
use crate::group::GroupTable;
use crate::info::InfoTable;
use crate::op::OpTable;
use crate::rma::WindowTable;
use crate::session::SessionTable;
use crate::turns::Threads;

/// Everything of MPI that one rank has.
pub struct Machine {
    pub endpoint: Endpoint,
    pub comms: CommTable,
    pub types: TypeTable,
    pub ops: OpTable,
    pub groups: GroupTable,
    pub infos: InfoTable,
    pub files: FileTable,
    pub sessions: SessionTable,
    pub windows: WindowTable,
    pub errhandlers: ErrTable,
    pub attrs: AttrTable,
    pub reentry: Reentry,
    pub agreement: Agreement,
    pub(crate) engine: Engine,
    pub(crate) failures: Failures,
    pub(crate) attached: Attached,
    pub(crate) threads: Threads,
}

impl Machine {
    /// Joins the job that the environment describes (`MPI_Init`).
    pub fn from_env() -> Result<Self, OpenError> {
        let endpoint = Endpoint::from_env()?;
        let known = Known::of_process(&endpoint);
        let mut machine = Machine::new(endpoint);
        if machine.take_place(known).is_err() {
            machine.endpoint.abort(1, "what this rank was started as is not known");
        }
        Ok(machine)
    }

    /// A machine at this end of the job's channels.
    pub fn new(endpoint: Endpoint) -> Self {
        let (me, ranks) = (endpoint.rank(), endpoint.size());
        let world = endpoint.world();
        let reports = endpoint.reports_failures();
        let comms = CommTable::new(me, ranks);
        let failures = Failures::new(ranks, reports, comms.of_all_ranks());
        Machine {
            endpoint,
            comms,
            types: TypeTable::new(),
            ops: OpTable::new(),
            groups: GroupTable::new(me),
            infos: InfoTable::new(),
            files: FileTable::new(),
            sessions: SessionTable::default(),
            windows: WindowTable::default(),
            errhandlers: ErrTable::new(),
            attrs: AttrTable::new(ranks),
            reentry: Reentry::default(),
            agreement: Agreement::default(),
            engine: Engine::new(ranks, world),
            failures,
            attached: Attached::default(),
            threads: Threads::default(),
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
        self.finish_with_others();
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
