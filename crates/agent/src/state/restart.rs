//! How a rank comes back: what is looked for, what its start waits for, whether it repeats itself.
//!
//! Kept true: a search that is over never goes on. Looking is left to `death`, starting to `start`.

use eyrie_control::node::Fetch;
use eyrie_image::{Filling, MadeSockets};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a search is not to go on.
pub(crate) type Over = Arc<AtomicBool>;

/// What is to be looked for.
pub(crate) struct Search {
    pub attempt: u64,
    /// Best first.
    pub generations: Vec<u32>,
    /// On one of several nodes: how it comes here.
    pub fetch: Option<Fetch>,
}

/// Whether a process that was started repeats what its rank had done.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Replay {
    #[default]
    No,
    /// Restored; the library has not said yet that it replays.
    Expected,
    Seen,
}

/// How a rank comes back.
#[derive(Default)]
pub(crate) struct Restart {
    /// Images are to be looked for when nobody touches its process any more.
    pub find_later: Option<Search>,
    /// They are being looked for.
    pub search: Option<Over>,
    /// Number of a start that waits for what it needs.
    pub preparing: Option<u64>,
    /// Its process runs before all of its memory is there.
    pub filling: Option<Filling>,
    /// The last one died before all of its memory was there.
    pub half_filled: bool,
    pub replay: Replay,
    /// Those of its image, until it is started from that.
    pub sockets: MadeSockets,
}

impl Restart {
    /// Images are not looked for any more.
    pub fn end_search(&mut self) {
        self.find_later = None;
        self.search.take().into_iter().for_each(|over| over.store(true, Ordering::SeqCst));
    }
}
