//! Processes as files (`pidfd_open`).

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described};

wire_struct! {
    /// The process itself.
    pub struct Process {
        /// Its number.
        pub pid: i32,
    }
}

wire_struct! {
    /// Another process of the same set.
    pub struct Relative {
        /// Its number; 0 if it has ended and was collected.
        pub pid: i32,
    }
}

impl Described for Process {
    fn holds(&self, _: &Around<'_>) -> bool {
        self.pid > 0
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        ("process", self.pid.to_string())
    }
}

impl Described for Relative {
    fn holds(&self, _: &Around<'_>) -> bool {
        self.pid >= 0
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        let collected = self.pid == 0;
        ("process", if collected { "collected".into() } else { self.pid.to_string() })
    }
}
