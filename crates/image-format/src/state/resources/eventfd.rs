//! Event counters (`eventfd`).

use crate::bytes::encoding::wire_struct;
use crate::state::resources::described::{Around, Described};

wire_struct! {
    /// An event counter.
    pub struct Event {
        /// Its value.
        pub count: u64,
        /// Whether reading takes one.
        pub semaphore: bool,
    }
}

impl Described for Event {
    fn holds(&self, _: &Around<'_>) -> bool {
        true
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        let kind = if self.semaphore { "semaphore" } else { "counter" };
        ("event", format!("{kind} {}", self.count))
    }
}
