//! What is known on a node of ranks that are lost and not brought back.

/// What is known here of lost ranks.
#[derive(Default)]
pub(crate) struct Failures {
    pub(crate) lost: Vec<u32>,
    /// How many of them a rank here has handled, as the controller knows it.
    pub(crate) told: u32,
}
