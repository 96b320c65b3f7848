//! The checkpoint of a rank that is taken, and what the next one builds on.

use crate::held_rank::HeldRank;
use crate::state::image_copy::Copy;
use eyrie_control::{Dedup, JobSpec};
use eyrie_image::{Pool, Sharing, Tap, Tracker};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Where the ranks of a job lend and borrow pages of their images, if they do. A copy for another
/// node has to be complete by itself.
pub(crate) fn pool(spec: &JobSpec) -> Option<Arc<Pool>> {
    match spec.protection.dedup {
        Dedup::Auto if spec.placement.nodes == 0 => Some(Pool::new(Sharing::Auto)),
        Dedup::On if spec.placement.nodes == 0 => Some(Pool::new(Sharing::On)),
        _ => None,
    }
}

/// A checkpoint of a rank, by the start of its process.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub rank: u32,
    pub start: u64,
    pub generation: u32,
    pub incremental: bool,
    pub hold: bool,
}

/// The checkpoint of a rank that is taken, and what the next one builds on.
#[derive(Default)]
pub(crate) struct Capture {
    /// What is known of its last image; away while a checkpoint is taken.
    pub tracker: Option<Box<Tracker>>,
    /// An image that it may build on turned out to be damaged.
    pub anew: bool,
    /// Generations whose files turned out to be damaged while one is taken.
    pub spoilt: BTreeSet<u32>,
    /// Generation under way.
    pub generation: Option<u32>,
    /// The checkpoint thread may still touch the process, whose start this is, and its control
    /// block.
    pub freezing: Option<u64>,
    /// Ends what is stored of it before it is stopped for that.
    pub ahead: Option<Arc<AtomicBool>>,
    /// Ends what is stored of it while it stands still for that.
    pub storing: Option<Arc<AtomicBool>>,
    /// Where the image that is being taken is to be copied.
    pub copy: Option<Copy>,
    /// It stays stopped after an image, or is to.
    pub hold: Option<Arc<HeldRank>>,
    /// A checkpoint that it is let go for, and who takes its image.
    pub later: Option<(Wanted, Option<Box<dyn Tap>>)>,
}

impl Capture {
    /// What is being stored of its process, while that runs or stands still for it, is not wanted
    /// any more.
    pub fn call_off(&self) {
        let all = self.ahead.iter().chain(&self.storing);
        all.for_each(|off| off.store(true, Ordering::Relaxed));
    }
}
