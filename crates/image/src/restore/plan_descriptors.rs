//! The part of a plan that is about descriptors: what the process must do itself, because it
//! depends on its number, or on the numbers of its descriptors.

use crate::kernel::descriptor_moves::{Table, Wanted};
use crate::kernel::script::Plan;
use crate::resources;
use crate::resources::file_locks;
use crate::resources::resource::Place;
use crate::restore::plan::Placed;
use eyrie_image_format::state::{Description, Owner, State};
use std::collections::{BTreeMap, BTreeSet};

const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// Where the descriptors are by which the process maps what it maps.
pub struct Mapped {
    /// For each mapped file.
    pub files: Vec<u64>,
    /// For each region, the segment behind it.
    pub segments: Vec<Option<u64>>,
}

/// The numbers that the image uses.
fn taken(state: &State) -> BTreeSet<u64> {
    state.descriptors.iter().map(|d| u64::from(d.fd)).collect()
}

/// Puts all descriptors in their places. Those that are only mapped stay open elsewhere.
pub fn descriptors(plan: &mut Plan, state: &State, placed: &Placed, pid: libc::pid_t) -> Mapped {
    let mut wanted = BTreeMap::new();
    for d in &state.descriptors {
        let source = placed.descriptions[d.description as usize];
        wanted.insert(u64::from(d.fd), Wanted { source, cloexec: d.cloexec });
    }
    let kept: BTreeSet<u64> =
        placed.files.iter().copied().chain(placed.segments.iter().flatten().copied()).collect();
    let born = kept.iter().copied().chain(placed.descriptions.iter().copied());
    let mut table = Table::new(plan, born.collect(), taken(state));
    let moved = table.make_way(plan, &kept, &wanted);
    let now = |fd: u64| moved.get(&fd).copied().unwrap_or(fd);
    table.put(plan, &wanted);
    let places = places(state);
    for d in &state.descriptors {
        let (fd, i) = (u64::from(d.fd), d.description as usize);
        let description = &state.descriptions[i];
        let first = places[i] == Some(fd);
        resources::kind(&description.target).place(plan, description, fd);
        if let Some(owner) = description.owner.as_ref().filter(|_| first) {
            own(plan, state, description, owner, fd, pid);
        }
    }
    for (description, own) in state.descriptions.iter().zip(&places) {
        if let Some(own) = own {
            let kind = resources::kind(&description.target);
            kind.register(plan, &mut table, state, &places, *own);
        }
    }
    let files = placed.files.iter().map(|&fd| now(fd)).collect();
    Mapped { files, segments: placed.segments.iter().map(|fd| fd.map(now)).collect() }
}

/// Maps what only descriptors lead to, when nothing else is mapped but the restorer.
pub fn map(plan: &mut Plan, state: &State) {
    let mut taken = vec![(plan.area.base, plan.area.end())];
    for (description, own) in state.descriptions.iter().zip(places(state)) {
        if let Some(own) = own {
            resources::kind(&description.target).map(plan, own, &mut taken);
        }
    }
}

/// Closes what was needed only to map it.
pub fn close_spare(plan: &mut Plan, state: &State) {
    Table::finish(plan, &taken(state));
}

/// What comes when nothing is closed any more. Closing any descriptor of a file would end the locks
/// that the process has on it.
pub fn finish(plan: &mut Plan, state: &State, pid: libc::pid_t) {
    let places = places(state);
    let placed = || state.descriptions.iter().zip(&places).filter_map(|(d, at)| Some((d, (*at)?)));
    for (description, fd) in placed() {
        description.locks.iter().for_each(|lock| file_locks::take(plan, fd, lock));
    }
    for (description, fd) in placed() {
        let place = Place { state, fd, pid };
        resources::kind(&description.target).finish(plan, &place);
    }
}

/// Where each description is, by its lowest number.
fn places(state: &State) -> Vec<Option<u64>> {
    let mut places = vec![None; state.descriptions.len()];
    for d in &state.descriptors {
        places[d.description as usize].get_or_insert(u64::from(d.fd));
    }
    places
}

/// Lets signals tell of a file's readiness again.
fn own(
    plan: &mut Plan,
    state: &State,
    file: &Description,
    owner: &Owner,
    fd: u64,
    pid: libc::pid_t,
) {
    let number = if owner.pid == state.pid { pid } else { owner.pid };
    let name = format!("set the owner of file descriptor {fd}");
    let pair = u64::from(owner.kind as u32) | u64::from(number as u32) << 32;
    let at = plan.words(&[pair]);
    plan.tolerant(&name, libc::SYS_fcntl, &[fd, F_SETOWN_EX, at]);
    plan.tolerant(&name, libc::SYS_fcntl, &[fd, F_SETSIG, owner.signal as u64]);
    let flags = u64::from(file.flags);
    plan.step(name, libc::SYS_fcntl, &[fd, libc::F_SETFL as u64, flags]);
}
