//! A replay that did not reproduce what was recorded: never passed on, always reported.

use crate::difference::{self, MessagePlace};
use crate::entry::Envelope;

/// Report of a difference, with both versions.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{0}")]
pub struct Divergence(pub String);

impl Divergence {
    pub(crate) fn stamp(src: u32, dst: u32, want: u64, found: u64) -> Self {
        Divergence(format!(
            "rank {src}: entry {want} of its log for rank {dst} is occupied by entry {found}"
        ))
    }

    pub(crate) fn chain(
        src: u32,
        dst: u32,
        chunk: u64,
        kept: (u64, u64),
        ours: (u64, u64),
    ) -> Self {
        Divergence(format!(
            "rank {src}: messages to rank {dst} before chunk {chunk} differ: recorded {} entries \
             with chain {:016x}, replayed {} with {:016x}",
            kept.0, kept.1, ours.0, ours.1
        ))
    }

    pub(crate) fn header(place: &MessagePlace, kept: &Envelope, ours: &Envelope) -> Self {
        Divergence(format!("rank {}: {}", place.src, difference::header(place, kept, ours)))
    }

    pub(crate) fn payload(place: &MessagePlace, offset: u64, kept: &[u8], ours: &[u8]) -> Self {
        let text = difference::payload(place, offset, kept, ours).unwrap_or_default();
        Divergence(format!("rank {}: {text}", place.src))
    }

    /// The program asked for another kind of event than the recorded one.
    pub fn event(rank: u32, number: u64, recorded: &str, asked: &str) -> Self {
        Divergence(format!(
            "rank {rank}: event {number} was recorded by {recorded}, the replay came with {asked}"
        ))
    }
}
