//! The standard streams, which are given anew at a restore.

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described};

wire_struct! {
    /// What the process had as standard input, output or error.
    pub struct Stdio {
        /// 0, 1 or 2.
        pub which: u32,
    }
}

impl Described for Stdio {
    fn holds(&self, _: &Around<'_>) -> bool {
        self.which < 3
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        let which = ["input", "output", "error"].get(self.which as usize).unwrap_or(&"stream");
        ("stream", format!("standard {which}"))
    }
}
