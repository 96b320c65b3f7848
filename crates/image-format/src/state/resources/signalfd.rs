//! Signals as a file (`signalfd`).

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described};

wire_struct! {
    /// Signals as a file.
    pub struct Signals {
        /// Which.
        pub mask: u64,
    }
}

impl Described for Signals {
    fn holds(&self, _: &Around<'_>) -> bool {
        true
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("signals", format!("{:#x}", self.mask))
    }
}
