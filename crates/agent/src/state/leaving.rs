//! What a node that leaves knows of its ranks and of itself. Leaving is left to `leave`.

use std::collections::BTreeSet;

/// What another node has of a rank that moves there: it need not be asked again.
#[derive(Default)]
pub(crate) struct There {
    /// In that incarnation.
    pub(crate) node: Option<(u32, u64)>,
    pub(crate) generations: BTreeSet<u32>,
    /// Those that are there when the next image is.
    pub(crate) coming: Vec<u32>,
}

/// Whether this node, or its ranks, leave the job.
#[derive(Default)]
pub(crate) struct Leaving {
    /// This node is to leave.
    pub(crate) leaves: bool,
    /// All processes of ranks are being ended, which is to be told.
    pub(crate) vacating: bool,
    /// Ranks that were here when they were told to leave for good.
    pub(crate) vacated: Vec<u32>,
    /// Nothing of the job is to stay here.
    pub(crate) departs: bool,
}

impl Leaving {
    pub fn leaves(&self) -> bool {
        self.leaves
    }

    /// The job begins anew: nobody leaves for now.
    pub fn begin_anew(&mut self) {
        *self = Leaving { departs: self.departs, ..Leaving::default() };
    }

    /// A rank that died here time and again comes back elsewhere.
    pub fn yields(&mut self, rank: u32) {
        if !self.vacated.contains(&rank) {
            self.vacated.push(rank);
        }
    }

    /// A rank starts here: others hold what is recorded of it, and this node only for itself.
    pub fn stays(&mut self, rank: u32) {
        self.vacated.retain(|r| *r != rank);
    }
}
