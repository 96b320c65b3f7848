//! Spare ranks (`--spare-ranks`): the last ranks of a job whose program handles failures itself, on
//! nodes of their own.
//!
//! Kept true: the other ranks are where they would be without them. Where failures are reported,
//! ranks of nodes that are lost do not go elsewhere: so spare nodes are nodes like others, which
//! have spare ranks and the room for programs that ranks start, and no ranks besides.

use crate::launch::checks::conflict;
use crate::options::run::Run;
use eyrie_control::JobSpec;
use eyrie_core::dynamic::SPARES_VARIABLE;
use eyrie_ledger::segment::MAX_RANKS;
use eyrie_protocol::placement::{Map, Placement};
use eyrie_terminal::Failure;

/// Nodes behind those of the ranks: as many as were asked for, one for spare ranks if nothing is
/// said.
pub fn nodes(run: &Run) -> u32 {
    let least = u32::from(run.placement.spare_ranks.is_some());
    run.placement.spares.unwrap_or(least)
}

/// Has the ranks know how many of them, the last ones, are spare.
pub fn tell(run: &Run) {
    let count = run.placement.spare_ranks.map(|count| count.to_string());
    // SAFETY: this process has one thread.
    unsafe {
        match count {
            Some(count) => std::env::set_var(SPARES_VARIABLE, count),
            // Of a job around this one.
            None => std::env::remove_var(SPARES_VARIABLE),
        }
    }
}

/// Adds them to a job that is described without them, behind its ranks, one on each spare node in
/// turn. `rooms`: ranks will start programs, which need a spare node as well. The spare nodes.
pub fn make(run: &Run, map: Map, rooms: bool, spec: &mut JobSpec) -> Result<u32, Failure> {
    let count = run.placement.spare_ranks.unwrap_or(0);
    if run.limits.failures.report().is_none() || (count == 0 && !rooms) {
        return Ok(0);
    }
    let (ranks, at) = (spec.program.size, &mut spec.placement);
    if ranks.saturating_add(count) > MAX_RANKS {
        let text = format!("{ranks} ranks and {count} spare ones; {MAX_RANKS} are the most");
        return Err(conflict(text));
    }
    spec.program.size += count;
    if at.nodes == 0 {
        return Ok(0);
    }
    let spares = std::mem::take(&mut at.spares);
    if at.homes.is_empty() {
        at.homes = Placement::new(ranks, at.nodes, 0, map).homes().to_vec();
    }
    at.homes.extend((0..count).map(|n| at.nodes + n % spares.max(1)));
    at.nodes += spares;
    Ok(spares)
}
