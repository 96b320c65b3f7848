//! What must be told apart over all processes that are looked at together.

use crate::resources::files::links::Linked;
use crate::resources::given_streams::GivenStreams;
use crate::resources::shared_memory::named::Named;
use crate::resources::sockets::between_images::Between;
use crate::resources::sockets::inet::Patience;
use std::collections::BTreeSet;
use std::fs;
use std::sync::Arc;

/// What must be told apart over all processes looked at.
#[derive(Default)]
pub struct Known {
    /// Pipes whose content was copied.
    pub copied: BTreeSet<u64>,
    /// Named shared memory.
    pub named: Named,
    /// Files that have another name than the kernel shows.
    pub linked: Linked,
    /// What leads to processes whose images are others of the same set.
    pub between: Arc<Between>,
    /// For what is in flight.
    pub patience: Patience,
    /// Mounts that there are.
    pub mounts: Mounts,
    /// All processes that have a place in the images, also those that have ended.
    pub processes: BTreeSet<libc::pid_t>,
    /// The standard streams that the first process was given.
    pub given: GivenStreams,
}

impl Known {
    /// What files are called.
    pub fn names(&mut self) -> (&Named, &mut Linked) {
        (&self.named, &mut self.linked)
    }
}

/// The mounts of the namespace of this process and those it takes images of, by their numbers.
#[derive(Default)]
pub struct Mounts(BTreeSet<u64>);

impl Mounts {
    pub fn read() -> Mounts {
        let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let number = |line: &str| line.split(' ').next()?.parse().ok();
        Mounts(text.lines().filter_map(number).collect())
    }

    /// Whether there is one; of a kernel that does not tell nothing is known.
    pub fn has(&self, number: u64) -> bool {
        self.0.is_empty() || self.0.contains(&number)
    }
}
