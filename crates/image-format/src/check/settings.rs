//! Holds what an image says of clocks, memory policies, switches and the processor against itself
//! ([`crate::check`]).

use crate::PAGE_BYTES;
use crate::state::{
    Clocks, Component, FIXED_BYTES, MAX_COMPONENT, MAX_NODES_BYTES, MODES, Placement, Policy,
    RangePolicy, Switch, Switches, Thread, switch,
};

/// What no clock shows: 146 years.
const LIMIT_NS: u64 = 1 << 62;

/// Whether the clocks make sense.
pub fn clocks_hold(clocks: Option<&Clocks>) -> bool {
    let fits = |c: &Clocks| {
        let ahead = c.ahead_ns.iter().all(|ns| ns.unsigned_abs() < LIMIT_NS);
        ahead && c.shown_ns.iter().all(|ns| *ns < LIMIT_NS)
    };
    clocks.is_none_or(fits)
}

/// Policies of threads and mappings must be such as the kernel could be told.
pub fn placement_holds(placement: &Placement, threads: &[Thread]) -> bool {
    let sound = |p: &Policy| p.mode & !MODES == 0 && p.nodes.len() <= MAX_NODES_BYTES;
    let count = placement.threads.len();
    let ordered = placement.ranges.windows(2).all(|w| w[0].end <= w[1].start);
    let aligned = |r: &RangePolicy| {
        (r.start | r.end).is_multiple_of(PAGE_BYTES) && r.start < r.end && sound(&r.policy)
    };
    (count == 0 || count == threads.len())
        && placement.allowed.len() <= MAX_NODES_BYTES
        && placement.threads.iter().all(sound)
        && ordered
        && placement.ranges.iter().all(aligned)
}

/// Whether an image may have these.
pub fn switches_hold(switches: &Switches) -> bool {
    let known = |s: &Switch| (switch::HUGE_PAGES..=switch::BARRIERS).contains(&s.which);
    let ordered = switches.set.windows(2).all(|w| w[0].which < w[1].which);
    ordered && switches.set.iter().all(known)
}

/// Whether the layout makes sense for areas of `bytes`.
pub fn layout_holds(components: &[Component], bytes: usize) -> bool {
    let holds = |c: &Component| {
        let end = c.offset.checked_add(c.bytes);
        (2..=MAX_COMPONENT).contains(&c.number)
            && c.offset as usize >= FIXED_BYTES
            // The kernel leaves out the end where nothing is in use.
            && end.is_some_and(|end| end <= 1 << 20)
    };
    components.iter().all(holds) && bytes >= FIXED_BYTES
}
