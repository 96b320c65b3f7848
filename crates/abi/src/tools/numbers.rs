//! The rank's numbers, from MPI_Init on.

use std::sync::OnceLock;

use eyrie_channel::counters::{Gauge, Gauges};
use eyrie_core::machine::Machine;

static GAUGES: OnceLock<Gauges> = OnceLock::new();

/// MPI has started: there are numbers.
pub fn joined(machine: &Machine) {
    let _ = GAUGES.set(machine.gauges());
}

/// All numbers, if there are any.
pub fn all() -> Option<&'static Gauges> {
    GAUGES.get()
}

/// What a number is now; 0 where there is no rank.
pub fn gauge(gauge: Gauge) -> u64 {
    all().map_or(0, |gauges| gauges.get(gauge))
}
