//! Whether the plan of a restore has room for what a process is made of: to be known when its image
//! is taken, not when it is needed.

use eyrie_image_format::state::State;
use eyrie_restorer::plan::{DATA_OFFSET, Header, Step};

/// Most steps of a plan.
const MAX_STEPS: usize = (DATA_OFFSET as usize - size_of::<Header>()) / size_of::<Step>();
/// Steps besides those of what there can be many of.
const OTHER_STEPS: usize = 1 << 16;

/// Whether all steps will have room, each region taking all that its kind can take.
pub fn has_room(state: &State) -> bool {
    // Mapped, attached, protected, lent and given a policy; advice, locks and seals by flag.
    let regions = state.regions.iter().map(|r| r.flags.count_ones() as usize + 5);
    let named = state.regions.iter().filter(|r| !r.name.is_empty()).count();
    let policies = 2 * state.placement.ranges.len();
    let files = 8 * (state.descriptors.len() + state.descriptions.len() + state.anonymous.len());
    let steps = regions.sum::<usize>() + named + policies + state.guards.len() + files;
    steps + state.pending.len() + state.posix_timers.len() + OTHER_STEPS <= MAX_STEPS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::script::Plan;
    use eyrie_image_format::state::region;
    use eyrie_image_format::testing::state;

    fn in_pieces(pieces: usize) -> State {
        let mut many = state();
        let mut piece = many.regions[0].clone();
        piece.flags = region::NORESERVE | region::NO_HUGE | region::DONT_DUMP | region::LOCKED;
        piece.name = b"name".to_vec();
        many.regions = vec![piece; pieces];
        many
    }

    #[test]
    fn as_many_mappings_as_a_process_can_have_have_room() {
        // vm.max_map_count as it is, and as it often is set.
        assert!(has_room(&in_pieces(65_530)));
        let mut plan = Plan::default();
        for _ in 0..8 * 65_530 {
            plan.step("map", 9, &[1, 2, 3]);
        }
        assert!(plan.encode().is_ok());
        assert!(!has_room(&in_pieces(262_144)));
    }
}
