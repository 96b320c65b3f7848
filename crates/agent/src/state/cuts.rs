//! Ranks that stand for a consistent cut, or are to. Stopping them is left to `consistent_cut`.

use std::sync::mpsc::Sender;

/// Ranks stand still, or have done so.
pub(crate) struct Cut {
    pub(crate) attempt: u32,
    pub(crate) ranks: Vec<u32>,
    /// Dropped: they go on, and it does not count.
    pub(crate) go_on: Option<Sender<()>>,
}

/// They are to: number, and the start of each.
pub(crate) struct Due(pub(crate) u32, pub(crate) Vec<(u32, u64)>);

/// The cut of this node's ranks that is taken, and the one that is due.
#[derive(Default)]
pub(crate) struct Cuts {
    /// All ranks are stopped for a moment.
    pub(crate) now: Option<Cut>,
    /// They are to be, as soon as nobody holds one of them.
    pub(crate) due: Option<Due>,
}

impl Cuts {
    #[cfg(test)]
    pub fn is_taken(&self) -> bool {
        self.now.is_some()
    }

    /// Whether a rank, which is dead, is held. It is let go, then, with all others.
    pub fn holds(&mut self, rank: u32) -> bool {
        let Some(cut) = self.now.as_mut().filter(|c| c.ranks.contains(&rank)) else { return false };
        cut.go_on = None;
        true
    }
}
