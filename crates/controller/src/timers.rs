//! The controller's timers, in one table: whoever drives it asks when the next one is due, and
//! hands it over then (`Msg::Timer`).
//!
//! Kept true: timers fire in the order in which they are due, those of one moment in the order in
//! which they were armed; none is taken back: whoever is told finds out whether it still matters.

use std::collections::BTreeMap;
use std::time::Duration;

/// What is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Timer {
    /// A node had time enough to call again through another gateway, after that connection ended.
    Reconnect { node: u32, epoch: u64, line: u64, why: String },
    /// After the death of a controller the nodes had time enough to come back.
    Rejoining,
    /// A node that joins late had time enough.
    LateNode { node: u32, epoch: u64 },
    /// The nodes had time enough to join.
    Joining,
    /// A gateway, by its cluster and the number of its start, had time enough to listen.
    GatewayLate { cluster: u32, number: u64 },
    /// Another gateway is to be started.
    GatewayDue { cluster: u32 },
    /// The nodes had time enough to say how they are.
    Looks { ask: u64 },
    /// The object store had time to say what is in it.
    Survey { attempt: u32 },
    /// Nodes that were told to end had time to say so.
    Notices,
    /// The ranks had time to end in order.
    Grace,
    /// The other ranks had time to handle that this one is lost, as one of so many.
    Unhandled { rank: u32, failures: u32 },
}

/// Those that are armed.
#[derive(Default)]
pub(crate) struct Timers {
    armed: BTreeMap<(Duration, u64), Timer>,
    count: u64,
}

impl Timers {
    /// It is due at that moment of the steady clock.
    pub fn arm(&mut self, at: Duration, timer: Timer) {
        self.count += 1;
        self.armed.insert((at, self.count), timer);
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Duration> {
        self.armed.keys().next().map(|(at, _)| *at)
    }

    /// Takes out the next one, if it is due.
    pub fn due(&mut self, now: Duration) -> Option<Timer> {
        let first = self.armed.first_entry()?;
        (first.key().0 <= now).then(|| first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_and_once() {
        let at = Duration::from_millis;
        let mut timers = Timers::default();
        assert_eq!((timers.next(), timers.due(at(1000))), (None, None));
        timers.arm(at(30), Timer::Grace);
        timers.arm(at(10), Timer::Looks { ask: 1 });
        timers.arm(at(10), Timer::Notices);
        assert_eq!((timers.next(), timers.due(at(9))), (Some(at(10)), None));
        assert_eq!(timers.due(at(10)), Some(Timer::Looks { ask: 1 }));
        assert_eq!(timers.due(at(50)), Some(Timer::Notices));
        assert_eq!(timers.due(at(29)), None);
        assert_eq!((timers.due(at(30)), timers.next()), (Some(Timer::Grace), None));
    }
}
