//! Timers behind descriptors (`timerfd_create`).

use crate::bytes::encoding::wire_struct;
use crate::state::files::NANOSECONDS_END;
use crate::state::resources::described::{Around, Described};

/// Nanoseconds of a millisecond.
const MS_NS: u64 = 1_000_000;

wire_struct! {
    /// A timer behind a descriptor.
    pub struct Timer {
        /// Clock.
        pub clock: i32,
        /// Flags of `timerfd_settime`.
        pub flags: u32,
        /// Interval in nanoseconds, 0 for none.
        pub interval_ns: u64,
        /// Nanoseconds until it expires, 0 if it is not armed.
        pub left_ns: u64,
        /// When that is on its clock.
        pub at_ns: u64,
        /// Expirations that were not read.
        pub ticks: u64,
    }
}

impl Described for Timer {
    fn holds(&self, _: &Around<'_>) -> bool {
        [self.interval_ns, self.left_ns, self.at_ns].iter().all(|&ns| ns < NANOSECONDS_END)
    }

    fn describe(&self, _: &Around<'_>) -> (&'static str, String) {
        if self.left_ns == 0 {
            return ("timer", "not armed".into());
        }
        let (left, every) = (self.left_ns / MS_NS, self.interval_ns / MS_NS);
        ("timer", format!("expires in {left} ms, then every {every} ms"))
    }
}
