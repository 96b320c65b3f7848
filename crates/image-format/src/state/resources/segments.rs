//! Shared segments that are handed over at restore.

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described, text};

wire_struct! {
    /// A shared segment handed over at restore.
    pub struct Segment {
        /// Name of its memfd.
        pub name: Vec<u8>,
    }
}

impl Described for Segment {
    fn holds(&self, _: &Around<'_>) -> bool {
        !self.name.is_empty() && !self.name.contains(&0)
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("segment", text(&self.name))
    }
}
