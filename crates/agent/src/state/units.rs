//! Which ranks are one recovery unit, as a node's segment says it.

use eyrie_control::JobSpec;
use eyrie_ledger::segment::Segment;
use eyrie_ledger::unit;
use eyrie_state::units;

/// Says it in a segment that may have been made before that was so: ranks that record what happens
/// to them, and are all one unit, do so as long as it lasts.
pub(crate) fn bind_units(segment: &Segment, spec: &JobSpec) {
    if spec.protection.ft.all_go_back() && segment.header().recording().retains() {
        unit::bind_all(segment);
    } else {
        unit::bind(segment, &units::recovery_units(spec));
    }
    segment.grow_units(units::with_shared_memory(spec).is_some());
}
