//! Where the restorer works: a range of addresses that the image does not use.
//!
//! It is linked to one place, which hardly ever is in the way. Where an image does use it, the
//! restorer's mappings are moved to another before its first instruction.

use crate::PAGE_BYTES;
use crate::error::RestoreError;
use crate::error::step_failed;
use crate::kernel::procfs::Mapping;
use crate::kernel::ptrace::Tracee;
use crate::kernel::remote_calls::syscall_site;
use eyrie_image_format::state::State;
use eyrie_restorer::plan::{AREA_BYTES, PARK_OFFSET, PLAN_OFFSET, RESTORER_BASE};

/// Distance of the places that are tried.
const STEP_BYTES: u64 = 1 << 38;
/// End of what every x86-64 process can map.
const LIMIT: u64 = 0x7fff_ffff_f000;

/// The restorer's range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// Its first address.
    pub base: u64,
}

impl Default for Area {
    fn default() -> Area {
        Area { base: RESTORER_BASE }
    }
}

impl Area {
    /// One that neither the image nor `own`, the restorer's other mappings, lie in.
    pub fn choose(state: &State, own: &[Mapping]) -> Result<Area, RestoreError> {
        let usual = Area::default();
        let mut taken: Vec<(u64, u64)> = own
            .iter()
            .filter(|m| !usual.contains(m.start))
            .map(|m| (m.start, m.end))
            .chain(used(state))
            .collect();
        taken.sort_unstable();
        gap(&taken, AREA_BYTES)
            .map(|base| Area { base })
            .ok_or_else(|| RestoreError::Machine("no room is left for the restorer".into()))
    }

    /// Where the plan is mapped; later, where arguments lie.
    pub fn plan(self) -> u64 {
        self.base + PLAN_OFFSET
    }

    /// Where vvar and vdso wait.
    pub fn park(self) -> u64 {
        self.base + PARK_OFFSET
    }

    /// One past its last address.
    pub fn end(self) -> u64 {
        self.base + AREA_BYTES
    }

    /// Whether an address is in it.
    pub fn contains(self, address: u64) -> bool {
        (self.base..self.end()).contains(&address)
    }

    /// Moves the restorer, which has not run yet, from where it was loaded to here.
    pub fn enter(self, tracee: Tracee, own: &[Mapping]) -> Result<(), RestoreError> {
        let usual = Area::default();
        let (from, to) = (usual.base, self.base);
        if from == to {
            return Ok(());
        }
        let mut regs = tracee.regs()?;
        let site = syscall_site(tracee.0, own).map_err(|e| RestoreError::Machine(e.to_string()))?;
        for m in own.iter().filter(|m| usual.contains(m.start)) {
            let (bytes, target) = (m.end - m.start, m.start - from + to);
            let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
            let args = [m.start, bytes, bytes, flags, target];
            let result = tracee.syscall(site, &regs, libc::SYS_mremap, &args, &mut None)?;
            if result as u64 != target {
                return Err(step_failed("move the restorer", result));
            }
        }
        regs.rip = regs.rip - from + to;
        regs.orig_rax = u64::MAX;
        Ok(tracee.set_regs(&regs)?)
    }
}

/// Ranges that the image needs.
pub fn used(state: &State) -> impl Iterator<Item = (u64, u64)> {
    let regions = state.regions.iter().map(|r| (r.start, r.end));
    let specials = state.specials.iter().map(|s| (s.start, s.end));
    let others = state.descriptions.iter().flat_map(|d| d.target.ranges());
    regions.chain(specials).chain(others)
}

/// A place for `bytes` that is apart from what is `taken` (sorted), by a page at least.
pub fn gap(taken: &[(u64, u64)], bytes: u64) -> Option<u64> {
    let free = |base: u64| {
        let (start, end) = (base - PAGE_BYTES, base + bytes + PAGE_BYTES);
        end <= LIMIT && !taken.iter().any(|&(s, e)| s < end && start < e)
    };
    let regular = (RESTORER_BASE..LIMIT).step_by(STEP_BYTES as usize);
    // Also behind whatever is in the way, should a program have taken all of the regular places.
    let behind = taken.iter().map(|&(_, end)| end + 16 * PAGE_BYTES);
    regular.chain(behind).find(|&base| free(base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_place_unless_it_is_taken() {
        assert_eq!(gap(&[(0x1000, 0x2000)], AREA_BYTES), Some(RESTORER_BASE));
        let touching = (RESTORER_BASE - 1, RESTORER_BASE);
        assert_eq!(gap(&[touching], AREA_BYTES), Some(RESTORER_BASE + STEP_BYTES));
        let inside = (RESTORER_BASE + AREA_BYTES, RESTORER_BASE + AREA_BYTES + 4096);
        assert_eq!(gap(&[inside], AREA_BYTES), Some(RESTORER_BASE + STEP_BYTES));
    }

    #[test]
    fn between_mappings_where_all_usual_places_are_taken() {
        let all: Vec<(u64, u64)> = (0..)
            .map(|k| RESTORER_BASE + k * STEP_BYTES)
            .take_while(|&s| s < LIMIT)
            .map(|s| (s, s + 4096))
            .collect();
        let found = gap(&all, AREA_BYTES).unwrap();
        assert!(all.iter().all(|&(s, e)| e <= found || found + AREA_BYTES <= s));
        assert_eq!(gap(&[(0, LIMIT)], AREA_BYTES), None);
    }
}
